"""Curvature from a matrix: the formula on the measurements, the cache, the item vectors."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist

import recbole_hyper.curvature.estimate as module
from recbole_hyper import run, svd
from recbole_hyper.curvature.estimate import estimate_curvature, item_vectors, sample_deltas, upper_ranks
from tests.conftest import SMALL
from tests.raising import refused
from tests.reference.gromov import curvature_of


def popularity_matrix(users: int = 400, items: int = 300, seed: int = 0) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    popularity = 0.5 / (1 + np.arange(items)) ** 0.7
    return scipy.sparse.csr_matrix(rng.random((users, items)) < popularity, dtype=np.float32)


OPTIONS = {"ranks": [32, 64], "sample_size": 240, "repeats": 5, "seed": 3}


def test_the_estimate_is_the_formula_on_the_trials() -> None:
    matrix = popularity_matrix()
    counts = np.asarray(matrix.sum(axis=0)).ravel()
    vectors = item_vectors(matrix[:, counts > 0], 64, seed=3)
    level = sample_deltas(vectors, [32, 64], 240, repeats=5, seed=3)
    estimate = estimate_curvature(matrix, **OPTIONS, eps=1e-5)
    assert estimate.delta_rel == pytest.approx(np.mean(level), rel=1e-9)
    assert estimate.curvature == pytest.approx(curvature_of(float(np.mean(level)), 1e-5), rel=1e-9)
    assert estimate.lower <= estimate.curvature <= estimate.upper
    assert estimate.lower == pytest.approx(curvature_of(float(np.quantile(level, 0.975)), 1e-5), rel=1e-9)
    assert (estimate.ranks, estimate.sample_size) == ((32, 64), 240)
    assert estimate.n_items == int((counts > 0).sum())


def test_padding_and_unseen_items_change_nothing() -> None:
    matrix = popularity_matrix()
    padded = scipy.sparse.csr_matrix(scipy.sparse.hstack([scipy.sparse.csr_matrix((400, 3)), matrix]))
    assert estimate_curvature(padded, **OPTIONS).curvature == estimate_curvature(matrix, **OPTIONS).curvature


def test_the_cache_is_used_for_the_same_question_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "curvature.json"
    first = estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path)
    assert not first.cached
    assert [p.name for p in path.parent.iterdir()] == ["curvature.json"]
    calls = []
    real = module.sample_deltas
    monkeypatch.setattr(module, "sample_deltas", lambda *a, **k: (calls.append(1), real(*a, **k))[1])
    again = estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path)
    assert again.cached
    assert not calls
    assert (again.curvature, again.lower, again.upper) == (first.curvature, first.lower, first.upper)
    estimate_curvature(popularity_matrix(seed=1), **OPTIONS, cache_path=path)
    estimate_curvature(popularity_matrix(seed=1), **(OPTIONS | {"seed": 4}), cache_path=path)
    assert len(calls) == 2
    for damage in ("", "{", "[]", json.dumps({"key": json.loads(path.read_text())["key"]})):
        path.write_text(damage)
        assert not estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path).cached
        assert json.loads(path.read_text())["curvature"] == pytest.approx(first.curvature)


@pytest.mark.parametrize(
    "change", [{"curvature": -5.0}, {"curvature": 0}, {"curvature": "flat"}, {"lower": 9.0, "upper": 1.0}, {"more": 1}]
)
def test_an_edited_cache_is_named_and_measured_anew(tmp_path, change, caplog) -> None:
    path = tmp_path / "curvature.json"
    first = estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path)
    assert estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path).cached
    assert caplog.text == ""
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    again = estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path)
    assert (again.cached, again.curvature) == (False, first.curvature)
    assert f"{path} is unusable and will be estimated again" in caplog.text
    assert estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=path).cached


def test_a_cache_that_cannot_be_written_costs_no_second_measurement(tmp_path, caplog, monkeypatch) -> None:
    (tmp_path / "file").touch()
    calls = []
    real = module.sample_deltas
    monkeypatch.setattr(module, "sample_deltas", lambda *a, **k: (calls.append(1), real(*a, **k))[1])
    estimate_curvature(popularity_matrix(), **OPTIONS, cache_path=tmp_path / "file" / "curvature.json")
    assert "could not be cached" in caplog.text
    assert calls == [1]


def test_a_run_keeps_the_estimate_in_the_users_cache(random_data, tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    keys = {**SMALL, "epochs": 0, "geometry": "poincare", "curvature": "auto", "topk": [5], "valid_metric": "NDCG@5"}
    keys |= {"data_path": str(random_data), "use_gpu": False}
    before = sorted(random_data.rglob("*"))
    found = run("SASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "one")})["config"]["curvature"]
    assert sorted(random_data.rglob("*")) == before
    (kept,) = cache.rglob("curvature/*.json")
    assert re.fullmatch(r"random-[0-9a-f]{16}\.json", kept.name)
    assert json.loads(kept.read_text())["curvature"] == found
    # another split is another file
    other = {"eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}, "output_dir": str(tmp_path / "two")}
    run("SASRecCE", "random", config_dict={**keys, **other})
    assert len(list(cache.rglob("curvature/*.json"))) == 2


def test_small_and_impossible_data() -> None:
    small = estimate_curvature(popularity_matrix(60, 30))
    assert small.sample_size == small.n_items <= 30
    assert math.isfinite(small.curvature)
    for rank in (0, 31, 1000):
        with refused(ValueError, f"rank {rank}", "40 users x 30 items"):
            item_vectors(interactions(40, 30), rank)
    with refused(ValueError, "no interaction"):
        item_vectors(scipy.sparse.csr_matrix((5, 5)), 2)
    for matrix, options, named in (
        (np.ones((5, 3)), {}, "3 items"),
        (np.ones((5, 6)), {}, "coincide"),
        (np.ones((12, 8)), {}, "coincide"),
        (popularity_matrix(60, 30), {"ranks": [64]}, "rank 64"),
        (popularity_matrix(60, 30), {"sample_size": 31}, "sample_size 31"),
        (scipy.sparse.eye(40), {}, "tree"),  # every item has its own user: all distances are equal
    ):
        with refused(ValueError, named):
            estimate_curvature(scipy.sparse.csr_matrix(matrix), **options)


def test_default_ranks_are_cut_at_what_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = module.trained_items(popularity_matrix())
    monkeypatch.setattr(svd, "DENSE", 10)
    monkeypatch.setattr(svd, "_BASIS_BYTES", 8 * min(matrix.shape) * 6 * 35)
    monkeypatch.setattr(module, "AUTO_RANKS", (8, 16, 32, 64, 128))
    cut = estimate_curvature(matrix, sample_size=120, repeats=3)
    assert cut.ranks == (32, 35)
    assert cut.delta_rel == estimate_curvature(matrix, ranks=[32, 35], sample_size=120, repeats=3).delta_rel
    with refused(ValueError, "rank 40 of"):
        estimate_curvature(matrix, ranks=[40])
    assert upper_ranks((64, 128), 1) == [1]
    assert upper_ranks([32, 64, 128, 256], 999) == [128, 256]
    assert upper_ranks([64, 32], 999) == [32, 64]


def distances(points: np.ndarray) -> np.ndarray:
    """All pairwise Euclidean distances, by scipy."""
    return cdist(points, points)


def interactions(users: int, items: int, seed: int = 0) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    taste, offer = rng.random((users, 6)) ** 3, rng.random((items, 6)) ** 3
    return scipy.sparse.csr_matrix(rng.random((users, items)) < np.minimum(0.9, taste @ offer.T / 2), dtype=np.float64)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
@pytest.mark.parametrize("scaling", [1.0, 0.4])
def test_equal_to_a_dense_svd(shape: tuple[int, int], scaling: float) -> None:
    matrix = interactions(*shape)
    counts = np.asarray(matrix.sum(axis=0)).ravel()
    dense = matrix.toarray() * np.where(counts > 0, np.maximum(counts, 1) ** ((scaling - 1) / 2), 0)
    _, values, vectors = np.linalg.svd(dense, full_matrices=False)
    found = item_vectors(matrix, 12, scaling=scaling)
    assert found.shape == (shape[1], 12)
    for rank in (1, 5, 12):
        expected = distances(vectors[:rank].T * values[:rank])
        np.testing.assert_allclose(distances(found[:, :rank]), expected, atol=1e-8)


def test_full_rank_distances_are_those_of_the_columns() -> None:
    matrix = interactions(50, 30)
    found = distances(item_vectors(matrix, 30))
    np.testing.assert_allclose(found, distances(matrix.toarray().T), atol=1e-6)


def test_counts_are_binarised_and_the_input_is_left_alone() -> None:
    matrix = interactions(40, 30)
    doubled = matrix * 3.0
    before = doubled.copy()
    np.testing.assert_array_equal(item_vectors(doubled, 5), item_vectors(matrix, 5))
    assert (doubled != before).nnz == 0


@pytest.mark.parametrize("shape", [(500, 300), (300, 500)])
def test_the_iteration_equals_the_dense_path(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = interactions(*shape, seed=1)
    dense = distances(item_vectors(matrix, 30))
    monkeypatch.setattr(svd, "DENSE", 10)
    found = item_vectors(matrix, 30)
    np.testing.assert_allclose(distances(found), dense, atol=1e-4 * dense.max())
    norms = np.linalg.norm(found, axis=0)
    assert (np.diff(norms) <= 1e-9).all()  # singular values, falling
    np.testing.assert_allclose(norms, np.linalg.svd(matrix.toarray(), compute_uv=False)[:30], rtol=1e-6)


def test_a_rank_that_memory_does_not_allow_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svd, "DENSE", 10)
    monkeypatch.setattr(svd, "_BASIS_BYTES", 8 * 300 * 240)
    monkeypatch.setattr(svd.scipy.sparse, "diags", None)  # not reached
    matrix = interactions(500, 300, seed=1)
    with refused(ValueError, "rank 45", "300 x 300", "at most 40"):
        item_vectors(matrix, 45, scaling=0.5)
    assert item_vectors(matrix, 50).shape == (300, 50)  # decomposed whole: no basis
