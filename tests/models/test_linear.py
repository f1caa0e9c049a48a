"""What the linear models share: scores of cases, new users."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from recbole_hyper import run
from recbole_hyper.batches.histories import accumulate, history_matrix, history_steps
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases
from tests.conftest import write_inter
from tests.models.fitting import SUCCESSIVE, dense_histories, fitted
from tests.raising import refused
from tests.reference.linear import ease_weights


@pytest.mark.parametrize(("model", "keys"), [("EASER", {"reg_weight": 250.0}), ("PureSVDN", {"rank": 6})])
def test_what_occurs_together_is_recommended_together(model: str, keys: dict, blocks: Path, tmp_path: Path) -> None:
    """Five items of the user's block are left, one of them comes next: chance of hit@5 is 5 / 54."""
    settings = {"data_path": str(blocks), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", **keys}
    result = run(model, "blocks", config_dict={**settings, "output_dir": str(tmp_path / "run")})
    assert result["test"]["hit@5"] > 0.85


@pytest.mark.parametrize(
    ("model", "key", "value"), [("PureSVDN", "rank", 0), ("PureSVDN", "scaling", 1.5), ("EASER", "reg_weight", 0.0)]
)
def test_bad_keys_fail_before_data_are_read(random_data: Path, model: str, key: str, value: float) -> None:
    with refused(ConfigError, f"{key}={value}"):
        Config(model, "random", config_dict={"data_path": str(random_data), key: value})


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


def test_users_and_pairs_score_the_same(random_data: Path) -> None:
    net, _, _ = fitted("EASER", random_data)
    users, items = torch.tensor([1, 2, 3]), torch.tensor([4, 1, 2])
    whole = net.full_sort_predict({net.USER_ID: users})
    assert net.predict({net.USER_ID: users, net.ITEM_ID: items}).tolist() == whole[range(3), items].tolist()


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
