"""Metrics by hand: RecBole's from ranks, lists that are shorter than the cut-off, and the overlap of lists."""

import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from recbole.evaluator import register

from recbole_hyper.config import Config
from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.types import Ranks
from tests.raising import refused


def test_a_metric_that_a_plugin_registers_with_recbole(tmp_path: Path) -> None:
    code = """
        from recbole.evaluator import metrics, register

        class Found(metrics.Hit):
            def calculate_metric(self, data):
                return {key.replace("hit", "found"): value for key, value in super().calculate_metric(data).items()}

        register.metrics_dict["found"] = Found
        register.metric_information["found"] = ["rec.topk"]
    """
    (tmp_path / "found.py").write_text(textwrap.dedent(code))
    keys = {"interactions": "given", "plugins": str(tmp_path / "found.py"), "metrics": ["Found"], "topk": [1, 2]}
    try:
        config = Config("SASRecCE", config_dict={**keys, "valid_metric": "Found@2"})
        ranks = Ranks(np.array([1, 2]), np.array([12, 12]), np.array([[1, 2], [3, 2]], dtype=np.int32), 0.0)
        found = compute_metrics(ranks, config["metrics"], config["topk"], 4, n_items=12, n_users=2)
    finally:
        register.metrics_dict.pop("found", None)
        register.metric_information.pop("found", None)
    assert found == {"found@1": 0.5, "found@2": 1.0}


def test_metrics_by_hand() -> None:
    ranks = Ranks(np.array([1, 3, 11]), np.array([12, 12, 12]), np.array([[1, 2], [3, 2], [1, 3]], dtype=np.int32), 0.0)
    found = compute_metrics(ranks, ["NDCG", "Hit", "MRR", "ItemCoverage"], [1, 2, 10], 6, n_items=12, n_users=3)
    assert found["hit@1"] == pytest.approx(1 / 3, abs=1e-6)
    assert found["hit@10"] == pytest.approx(2 / 3, abs=1e-6)
    assert found["ndcg@10"] == pytest.approx((1 + 1 / np.log2(4)) / 3, abs=1e-6)
    assert found["mrr@10"] == pytest.approx((1 + 1 / 3) / 3, abs=1e-6)
    assert found["itemcoverage@1"] == pytest.approx(2 / 12, abs=1e-6)


def test_lists_shorter_than_the_cut_off_hold_no_item_0() -> None:
    lists = [[5, 4, 3], [5, 4, 2, 1]]
    names = ["ItemCoverage", "ShannonEntropy", "GiniIndex", "TailPercentage"]
    counts = Counter({item: item for item in range(1, 6)})
    padded = np.array([row + [0] * (5 - len(row)) for row in lists])
    ranks = Ranks(np.array([4, 5]), np.array([4, 5]), padded, tied=0.0)
    found = compute_metrics(ranks, names, [1, 5], 6, n_items=5, n_users=2, item_counts=counts, tail_ratio=0.5)
    listed = [item for row in lists for item in row]
    assert found["itemcoverage@5"] == len(set(listed)) / 5
    share = np.array([listed.count(item) for item in set(listed)]) / len(listed)
    assert found["shannonentropy@5"] == pytest.approx(-(share * np.log(share)).sum() / len(share), abs=1e-6)
    rank_of = np.arange(5 - len(share) + 1, 6)
    assert found["giniindex@5"] == pytest.approx(((2 * rank_of - 6) * np.sort(share)).sum() / 5, abs=1e-6)
    assert "tailpercentage@5" in found
    nothing = Ranks(np.array([4, 5]), np.array([4, 5]), np.zeros((2, 5), dtype=np.int64), tied=0.0)
    empty = compute_metrics(nothing, names[1:3], [5], 6, n_items=5, n_users=2, item_counts=counts, tail_ratio=0.5)
    assert set(empty.values()) == {0.0}


def test_no_case_has_no_metrics() -> None:
    empty = np.empty(0, dtype=np.int64)
    ranks = Ranks(empty, empty, np.empty((0, 5), dtype=np.int32), tied=0.0)
    with refused(ValueError, "case", "ranked"):
        compute_metrics(ranks, ["NDCG"], [5], 6, n_items=5, n_users=2)
