"""The study of delta: its measurements against single calls, the verdict where the answer is known, the command."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples import delta_study as study
from examples.delta_study import Measurement, judge, main, measure_samples, training_matrix
from recbole_hyper.curvature.estimate import sample_deltas
from recbole_hyper.curvature.gromov import gromov_delta
from tests.conftest import write_inter
from tests.raising import refused
from tests.reference.gromov import tree_distances


def plain(measurements: list[Measurement]) -> list[Measurement]:
    return [replace(measurement, seconds=0.0) for measurement in measurements]


@pytest.mark.parametrize("whole", [True, False])
def test_trials_equal_single_calls(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(study, "_WHOLE_BYTES", 0)
    vectors = np.random.default_rng(0).standard_t(2, size=(300, 12))
    measurements = measure_samples(vectors, ranks=[3, 12], sample_sizes=[50, 200], repeats=3, seed=5, threads=2)
    assert [(t.rank, t.sample_size, t.repeat) for t in measurements] == [
        (k, m, r) for k in (3, 12) for m in (50, 200) for r in range(3)
    ]
    for measurement in measurements:
        order = np.random.default_rng([5, measurement.repeat]).permutation(300)[: measurement.sample_size]
        single = gromov_delta(vectors[order, : measurement.rank])
        assert measurement.base == order[0]
        assert measurement.delta_rel == pytest.approx(single.delta_rel, rel=1e-9)
        assert measurement.diameter == pytest.approx(single.diameter, rel=1e-9)
    every = measure_samples(vectors, ranks=[3], sample_sizes=[50], repeats=2, seed=5, every_base=True)
    for measurement in every:
        order = np.random.default_rng([5, measurement.repeat]).permutation(300)[:50]
        expected = max(gromov_delta(vectors[order, :3], base=base).delta for base in range(50))
        assert measurement.delta == pytest.approx(expected, rel=1e-9)


def test_the_estimate_of_a_run_is_the_largest_sample() -> None:
    vectors = np.random.default_rng(0).standard_t(2, size=(300, 12))
    study_of = measure_samples(vectors, ranks=[3, 12], sample_sizes=[50, 200], repeats=3, seed=5)
    largest = [one.delta_rel for one in study_of if one.sample_size == 200]
    assert sample_deltas(vectors, [3, 12], 200, repeats=3, seed=5).ravel().tolist() == largest


def hyperbolic_disk(n: int, radius: float, rng: np.random.Generator) -> np.ndarray:
    """Distances of points spread evenly over a disk of the hyperbolic plane."""
    r = np.arccosh(1 + rng.random(n) * (np.cosh(radius) - 1))
    angle = rng.random(n) * 2 * np.pi
    product = np.cosh(r)[:, None] * np.cosh(r) - np.sinh(r)[:, None] * np.sinh(r) * np.cos(angle[:, None] - angle)
    distances = np.arccosh(np.maximum(product, 1.0))
    np.fill_diagonal(distances, 0.0)
    return (distances + distances.T) / 2


def random_tree(n: int, rng: np.random.Generator) -> np.ndarray:
    return tree_distances([int(rng.integers(0, i + 1)) for i in range(n - 1)], list(rng.integers(1, 9, n - 1)))


def sphere(n: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(size=(n, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("kind", "expected", "because"),
    [
        ("tree", "compatible", None),
        ("hyperbolic disk", "compatible", None),
        ("gaussian, 128 dimensions", "not compatible", "change per doubling of the rank"),
        ("grid", "not compatible", "level"),
        ("sphere", "not compatible", "level"),
        ("flat square", "not compatible", "level"),
    ],
)
def test_verdict_where_the_answer_is_known(kind: str, expected: str, because: str | None) -> None:
    rng = np.random.default_rng(0)
    n = 400
    arguments = {
        "tree": lambda: {"distances": random_tree(n, rng)},
        "hyperbolic disk": lambda: {"distances": hyperbolic_disk(n, 8.0, rng)},
        "gaussian, 128 dimensions": lambda: {"vectors": rng.normal(size=(n, 128)), "ranks": [16, 32, 64, 128]},
        "grid": lambda: {"vectors": np.argwhere(np.ones((20, 20)))},
        "sphere": lambda: {"vectors": sphere(n, 3, rng)},
        "flat square": lambda: {"vectors": rng.random((n, 2))},
    }[kind]()
    verdict = judge(measure_samples(**arguments, sample_sizes=[100, 200, 400], repeats=12, seed=1))
    assert verdict.verdict == expected, verdict.explain()
    if because:
        assert any(question.name.startswith(because) and question.answer == "no" for question in verdict.questions)
    if kind == "tree":
        assert verdict.questions[0].value == 0.0


def made(level: dict[int, float], growth: float, repeats: int = 8, noise: float = 0.0) -> list[Measurement]:
    """Trials with the given level at each rank and growth over the last doubling of the sample."""
    rng = np.random.default_rng(0)
    return [
        Measurement(
            k, m, r, 0, 0.0, 1.0, value * (1 + (growth if m == 1000 else 0.0)) * (1 + noise * rng.normal()), 0.0
        )
        for k, value in level.items()
        for m in (500, 1000)
        for r in range(repeats)
    ]


def test_each_question_decides() -> None:
    flat = {64: 0.25, 128: 0.25, 256: 0.25, 512: 0.25}
    assert judge(made(flat, 0.0)).verdict == "compatible"
    assert judge(made(flat, 0.02)).verdict == "compatible"
    assert judge(made(flat, 0.10)).verdict == "not compatible"
    assert judge(made(dict.fromkeys(flat, 0.40), 0.0)).verdict == "not compatible"
    assert judge(made(flat | {512: 0.18}, 0.0)).verdict == "not compatible"
    assert judge(made(flat | {64: 0.40, 128: 0.33}, 0.0)).verdict == "compatible"  # low ranks are not asked
    assert judge(made(flat, 0.045, noise=0.05)).verdict == "undecided"
    assert judge(made(flat, 0.0, repeats=2)).verdict == "undecided"
    assert judge([t for t in made(flat, 0.0) if t.sample_size == 1000]).verdict == "undecided"
    assert judge(made({64: 0.25}, 0.0)).verdict == "undecided"
    assert "rank" in " ".join(judge(made({64: 0.25}, 0.0)).explain())
    for incomplete in (made(flat, 0.0)[1:], []):
        with refused(ValueError, "measure"):
            judge(incomplete)


ROWS = [("a", "x", 1), ("a", "y", 2), ("b", "x", 3), ("b", "z", 9), ("c", "y", 10)]


def test_only_interactions_before_the_quantile_are_used(tmp_path: Path) -> None:
    data = str(write_inter(tmp_path, "few", ROWS))
    matrix, count = training_matrix("few", data, 1.0)
    assert (matrix.shape, matrix.nnz, count) == ((3, 3), 5, 5)
    # the last two interactions are later, so that c has none and the item z has no user
    matrix, count = training_matrix("few", data, 0.7)
    assert count == 5
    assert sorted(map(sorted, matrix.toarray().astype(int).tolist())) == [[0, 0, 1], [0, 1, 1]]
    with refused(ValueError, "train_quantile"):
        training_matrix("few", data, 1.5)


def test_the_study_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--dataset=ml-100k", f"--output_dir={tmp_path}", "--repeats=3"]
    main([*command, "--ranks", "8", "16", "32", "--sample_sizes", "100", "200"])
    out = capsys.readouterr().out
    assert "verdict: " in out
    assert "--curvature=" in out
    assert {path.name for path in tmp_path.iterdir()} == {"delta.csv", "delta.json"}
    rows = list(csv.DictReader((tmp_path / "delta.csv").open()))
    assert len(rows) == 3 * 2 * 3
    content = json.loads((tmp_path / "delta.json").read_text())
    level = np.mean([float(r["delta_rel"]) for r in rows if r["sample_size"] == "200" and r["rank"] in ("16", "32")])
    assert content["estimate"]["delta_rel"] == pytest.approx(level)
    assert content["curvature_by_eps"]["1e-12"] == pytest.approx(content["estimate"]["curvature"])
    assert content["curvature_by_eps"]["1e-05"] > content["curvature_by_eps"]["1e-12"]
    assert content["n_train_interactions"] == 94999
