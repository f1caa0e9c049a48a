from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from recbole_hyper import run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.loader import accumulate, history_matrix, history_steps
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.models import _linear, easer, puresvd
from recbole_hyper.models.puresvd import item_factors
from recbole_hyper.protocols.base import make_split
from recbole_hyper.training.build import build
from recbole_hyper.types import Cases
from tests.conftest import write_inter
from tests.reference import planted
from tests.reference.linear import ease_weights, pure_svd_scores

SUCCESSIVE = {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True}


@pytest.fixture(autouse=True)
def _no_shared_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_linear, "_recent", {})


def fitted(model: str, data: Path, **keys: Any) -> tuple[Any, Any, Any]:
    """Return (fitted model, config, split)."""
    config = Config(model, "random", config_dict={"data_path": str(data), "use_gpu": False, **keys})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    net, loader, _ = build(config, dataset, split, split.train_lengths)
    assert len(loader) == 1
    for batch in loader:
        assert float(net.calculate_loss(batch).detach()) == 0.0
    return net, config, split


def dense_train(net: Any) -> np.ndarray:
    return net.matrix.toarray().astype(np.float64)


def dense_histories(cases: Cases) -> np.ndarray:
    """Binary histories, one case and one item at a time."""
    result = np.zeros((len(cases), cases.store.n_items))
    for index, (row, start, end) in enumerate(zip(cases.rows, cases.starts, cases.ends, strict=True)):
        for item in cases.store.row(row)[start:end]:
            result[index, item] = 1.0
    return result


@pytest.mark.parametrize("scaling", [0.0, 0.4, 1.0])
def test_puresvd_equals_a_dense_svd(random_data: Path, scaling: float) -> None:
    net, _, split = fitted("PureSVDN", random_data, rank=7, scaling=scaling, eval_args=SUCCESSIVE)
    expected = pure_svd_scores(dense_train(net), 7, scaling, dense_histories(split.test))
    np.testing.assert_allclose(net.score_cases(split.test).numpy(), expected, atol=2e-6)
    np.testing.assert_allclose(net.score_histories(history_matrix(split.test)).numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("reg_weight", [0.5, 8.0, 500.0])
@pytest.mark.parametrize("cached", [False, True])
def test_easer_equals_the_dense_inverse(
    random_data: Path, tmp_path: Path, reg_weight: float, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(easer, "_BLOCK", 7)  # several blocks, the last one smaller
    folder = str(tmp_path / "fits") if cached else None
    net, _, split = fitted("EASER", random_data, reg_weight=reg_weight, fit_cache=folder, eval_args=SUCCESSIVE)
    weights = ease_weights(dense_train(net), reg_weight)
    np.testing.assert_allclose(net.weights.numpy(), weights, atol=1e-7, rtol=1e-6)
    assert not np.diagonal(net.weights.numpy()).any()
    expected = dense_histories(split.test) @ weights
    np.testing.assert_allclose(net.score_cases(split.test).numpy(), expected, atol=1e-5)


def test_easer_equals_recboles_ease_on_its_own_split(random_data: Path) -> None:
    from recbole.model.general_recommender.ease import EASE

    config = Config("EASE", "random", config_dict={"data_path": str(random_data), "use_gpu": False, "reg_weight": 3.0})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    training = dataset.restrict(split.store, split.train_lengths)
    theirs = EASE(config, training)
    net, _, _ = fitted("EASER", random_data, reg_weight=3.0)
    np.testing.assert_allclose(net.weights.numpy(), np.asarray(theirs.item_similarity), atol=2e-6)
    users = torch.arange(1, dataset.user_num)
    from recbole.data.interaction import Interaction

    batch = Interaction({config["USER_ID_FIELD"]: users})
    scores = theirs.full_sort_predict(batch).view(len(users), -1)
    np.testing.assert_allclose(net.full_sort_predict(batch).numpy(), scores.numpy(), atol=1e-5)


def test_pop_counts_every_training_interaction(random_data: Path) -> None:
    net, _, split = fitted("Pop", random_data)
    counts = [0] * split.store.n_items
    for row in range(split.store.n_rows):
        for item in split.store.row(row)[: split.train_lengths[row]]:
            counts[item] += 1
    assert net.score_cases(split.test[:2]).tolist() == [counts, counts]


@pytest.mark.parametrize(("model", "keys"), [("EASER", {"reg_weight": 250.0}), ("PureSVDN", {"rank": 6})])
def test_what_occurs_together_is_recommended_together(model: str, keys: dict, blocks: Path, tmp_path: Path) -> None:
    """Five items of the user's block are left, one of them comes next: chance of hit@5 is 5 / 54."""
    settings = {"data_path": str(blocks), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", **keys}
    result = run(model, "blocks", config_dict={**settings, "output_dir": str(tmp_path / "run")})
    assert result["test"]["hit@5"] > 0.85


def test_pop_ranks_by_counts_of_the_training_part(blocks: Path, tmp_path: Path) -> None:
    rows: dict[str, list[str]] = {}
    for user, item, _ in planted.block_rows():
        rows.setdefault(user, []).append(item)
    counts = Counter(item for items in rows.values() for item in items[:-2])
    ranks = []
    for items in rows.values():
        left = {f"i{item}" for item in range(planted.ITEMS)} - set(items[:-1])
        ranks.append(sum(counts[item] >= counts[items[-1]] for item in left))
    settings = {"data_path": str(blocks), "use_gpu": False, "topk": [5, 20], "valid_metric": "NDCG@5"}
    result = run("Pop", "blocks", config_dict={**settings, "output_dir": str(tmp_path / "run")})
    for k in (5, 20):
        assert result["test"][f"hit@{k}"] == pytest.approx(np.mean(np.array(ranks) <= k), abs=1e-6)
        gains = [1 / math.log2(rank + 1) if rank <= k else 0.0 for rank in ranks]
        assert result["test"][f"ndcg@{k}"] == pytest.approx(np.mean(gains), abs=1e-6)


@pytest.mark.parametrize(
    ("model", "key", "values"), [("PureSVDN", "rank", [9, 4]), ("EASER", "reg_weight", [2.0, 50.0])]
)
def test_one_fit_serves_a_sweep(
    random_data: Path, tmp_path: Path, model: str, key: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import scipy.linalg

    solved = []
    original = scipy.linalg.eigh
    monkeypatch.setattr(scipy.linalg, "eigh", lambda *a, **k: solved.append(1) or original(*a, **k))
    shared = {"fit_cache": str(tmp_path / "fits"), **({"max_rank": 9} if model == "PureSVDN" else {})}
    scores = []
    for index, value in enumerate([*values, values[-1]]):
        if index == 2:
            _linear._recent.clear()  # as in another process: the file serves
        net, _, split = fitted(model, random_data, **{key: value}, **shared)
        scores.append(net.score_cases(split.test))
    assert len(solved) == 1
    assert len(list((tmp_path / "fits").iterdir())) == 1
    _linear._recent.clear()
    alone, _, split = fitted(model, random_data, **{key: values[-1]})
    torch.testing.assert_close(scores[1], alone.score_cases(split.test), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scores[1], scores[2])
    assert not torch.allclose(scores[0], scores[1], atol=1e-3)


def test_many_items_are_decomposed_by_the_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    taste, offer = generator.random((500, 6)) ** 3, generator.random((300, 6)) ** 3
    matrix = scipy.sparse.csr_matrix(generator.random((500, 300)) < np.minimum(0.9, taste @ offer.T / 2))
    dense = item_factors(matrix, 6, 0.6)
    monkeypatch.setattr(puresvd, "GRAM_ITEMS", 10)
    iterated = item_factors(matrix, 6, 0.6)
    assert not np.array_equal(iterated, dense)
    np.testing.assert_allclose(iterated @ iterated.T, dense @ dense.T, atol=1e-5)


def test_another_training_part_is_another_fit(random_data: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "fits")
    fitted("PureSVDN", random_data, rank=3, fit_cache=folder)
    fitted("PureSVDN", random_data, rank=3, fit_cache=folder, eval_args=SUCCESSIVE)
    assert len(list((tmp_path / "fits").iterdir())) == 2


def test_leading_factors_do_not_depend_on_the_rank(random_data: Path) -> None:
    net, _, _ = fitted("PureSVDN", random_data, rank=3)
    four, nine = (item_factors(net.matrix, rank, 0.5) for rank in (4, 9))
    np.testing.assert_allclose(np.abs(four), np.abs(nine[:, :4]), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "keys", "match"),
    [
        ("PureSVDN", {"rank": 0}, "rank=0"),
        ("PureSVDN", {"scaling": 1.5}, "scaling=1.5: a number in"),
        ("PureSVDN", {"rank": 8, "max_rank": 4}, "max_rank=4"),
        ("EASER", {"reg_weight": 0.0}, "reg_weight=0.0.*above 0"),
    ],
)
def test_bad_keys_fail_before_data_are_read(
    random_data: Path, model: str, keys: dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=match):
        Config(model, "random", config_dict={"data_path": str(random_data), **keys})


def test_a_rank_beyond_the_matrix_is_refused(random_data: Path) -> None:
    with pytest.raises(ValueError, match=r"rank=60: the training matrix of 40 users and \d+ items has at most 40"):
        fitted("PureSVDN", random_data, rank=60)


def test_easer_refuses_what_does_not_fit(random_data: Path) -> None:
    with pytest.raises(ValueError, match=r"EASER needs .* GB for \d+ items.*item_inter_num_interval.*PureSVDN"):
        fitted("EASER", random_data, ease_memory_budget=10_000)


def test_steps_add_up_to_histories_with_repeats_and_shared_prefixes() -> None:
    tokens = ["[PAD]", *"abcde"]
    users, items = [1] * 6 + [2] * 3, [1, 2, 1, 3, 2, 4, 5, 5, 1]
    store = SequenceStore.from_interactions(users, items, range(9), ["[PAD]", "u", "v"], tokens)
    cases = Cases.build(store, [0, 0, 0, 1, 1, 0, 0], [1, 3, 5, 1, 2, 2, 5], [0, 0, 0, 0, 0, 1, 1])
    steps, goes_on = history_steps(cases)
    assert goes_on.tolist() == [False, True, True, False, True, False, True]
    assert steps.nnz == 1 + 1 + 1 + 1 + 0 + 1 + 2
    summed = accumulate(torch.from_numpy(steps.toarray()), goes_on)
    np.testing.assert_array_equal(summed.numpy(), dense_histories(cases))
    np.testing.assert_array_equal(history_matrix(cases).toarray(), dense_histories(cases))


def test_cases_score_the_same_in_any_slices(random_data: Path) -> None:
    net, _, split = fitted("EASER", random_data, eval_args=SUCCESSIVE)
    whole = net.score_cases(split.test)
    ones = torch.cat([net.score_cases(split.test[slice(i, i + 1)]) for i in range(len(split.test))])
    torch.testing.assert_close(whole, ones, atol=1e-6, rtol=1e-5)
    order = np.random.default_rng(0).permutation(len(split.test))
    shuffled = dataclasses.replace(
        split.test, rows=split.test.rows[order], ends=split.test.ends[order], starts=split.test.starts[order]
    )
    torch.testing.assert_close(whole[torch.from_numpy(order)], net.score_cases(shuffled), atol=1e-6, rtol=1e-5)


def test_run_refits_on_train_and_validation(random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", "reg_weight": 5.0}
    keys |= {"eval_args": SUCCESSIVE, "show_progress": False}
    once = run("EASER", "random", config_dict={**keys, "output_dir": str(tmp_path / "a")})
    again = run("EASER", "random", config_dict={**keys, "output_dir": str(tmp_path / "b"), "refit": True})
    assert once["valid"] == again["valid"]
    assert once["parameters"] == (once["n_items"]) * (once["n_items"] - 1)
    _, _, split = fitted("EASER", random_data, eval_args=SUCCESSIVE, reg_weight=5.0, refit=True)
    matrix = split.store.matrix(split.refit_lengths).toarray()
    scores = dense_histories(split.test) @ ease_weights(matrix, 5.0)
    hits = 0
    for case, score in enumerate(scores):
        target = split.test.targets[case]
        score[0] = -np.inf
        score[~split.catalogue] = -np.inf
        score[dense_histories(split.test[slice(case, case + 1)])[0] > 0] = -np.inf
        hits += (score >= score[target]).sum() <= 5
    assert again["test"]["hit@5"] == pytest.approx(hits / len(scores), abs=1e-6)


def test_new_users_are_scored_by_their_history(tmp_path: Path) -> None:
    # user "late" appears after the training part: a then b is what everyone did
    rows = [(f"u{u}", item, 10 * u + t) for u in range(9) for t, item in enumerate("abc")]
    rows += [("late", "a", 100), ("late", "b", 101), ("u0", "d", 60), ("u1", "d", 61)]
    data = write_inter(tmp_path / "data", "random", rows)
    split = {"split": {"GT": {"valid": "1970-01-01 00:00:50", "test": "1970-01-01 00:01:39"}}, "successive": True}
    net, _, made = fitted("EASER", data, eval_args=split, reg_weight=1.0)
    token = list(made.store.item_tokens)
    late = made.test
    assert [str(made.store.user_tokens[made.store.users[row]]) for row in late.rows] == ["late"]
    scores = net.score_cases(late)[0]
    assert scores[token.index("b")] > scores[token.index("d")]
    assert scores[token.index("b")] > 0
