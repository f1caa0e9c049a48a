"""A sequential model of RecBole learns the same in a run as through RecBole's own functions, to the last digit."""

from pathlib import Path

import numpy as np
import pytest
from recbole.quick_start import run_recbole

from recbole_hyper import run
from tests.conftest import write_inter

KEYS = {"hidden_size": 8, "embedding_size": 8, "inner_size": 8, "epochs": 3, "train_batch_size": 64, "n_heads": 1}


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Return a data_path with the dataset "steps": times that float32, which RecBole sorts by, can tell apart."""
    draws = np.random.default_rng(3)
    pairs = [(f"u{user}", f"i{item}") for user in range(30) for item in draws.permutation(40)[: draws.integers(4, 20)]]
    return write_inter(tmp_path, "steps", [(*pairs[n], time) for time, n in enumerate(draws.permutation(len(pairs)))])


@pytest.mark.parametrize(("model", "keys"), [
    ("GRU4Rec", {"train_neg_sample_args": None}),
    ("SASRec", {"train_neg_sample_args": None, "n_layers": 1}),
    ("GRU4Rec", {"loss_type": "BPR"}),
    ("SASRec", {"loss_type": "BPR", "train_neg_sample_args": {"distribution": "uniform", "sample_num": 2}}),
])  # fmt: skip
def test_a_run_learns_what_recbole_learns(model, keys, steps, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {
        **KEYS,
        **keys,
        "data_path": str(steps),
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"},
        "metrics": ["NDCG", "Hit", "MRR"],
        "topk": [10],
        "metric_decimal_place": 6,
        "show_progress": False,
    }
    theirs = run_recbole(model=model, dataset="steps", config_dict=dict(keys), saved=True)
    ours = run(
        model, "steps", config_dict={**keys, "exclude_seen": False, "valid_metric": "MRR@10", "output_dir": "out"}
    )
    assert dict(theirs["best_valid_result"]) == pytest.approx(ours["valid"], abs=1e-6)
    assert dict(theirs["test_result"]) == pytest.approx(ours["test"], abs=1e-6)
