"""Metrics by hand: RecBole's from ranks, lists that are shorter than the cut-off, and the overlap of lists."""

import re
import textwrap
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from recbole.evaluator import register
from scipy.optimize import brentq

from recbole_hyper import run
from recbole_hyper.config import Config
from recbole_hyper.evaluation.metrics import CANDIDATES, CASES, chance_overlap, compute_metrics, list_overlap
from recbole_hyper.types import Ranks
from tests.conftest import SMALL, write_inter
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


def test_no_case_has_no_metrics() -> None:
    empty = np.empty(0, dtype=np.int64)
    ranks = Ranks(empty, empty, np.empty((0, 5), dtype=np.int32), tied=0.0)
    with refused(ValueError, "case", "ranked"):
        compute_metrics(ranks, ["NDCG"], [5], 6, n_items=5, n_users=2)


def ranked(lists: np.ndarray, n_candidates: int = 10_000) -> Ranks:
    n = len(lists)
    return Ranks(np.ones(n, np.int64), np.full(n, n_candidates), lists.astype(np.int32), tied=0.0)


def test_it_is_the_mean_over_all_pairs() -> None:
    random = np.random.default_rng(0)
    lists = np.stack([random.choice(np.arange(1, 30), 5, replace=False) for _ in range(120)])
    lists[:7, 3:] = 0  # short lists
    shared = [len({*one} & {*two} - {0}) / 5 for one, two in permutations(lists.tolist(), 2)]
    assert list_overlap(ranked(lists)) == pytest.approx(np.mean(shared), rel=1e-12)


def test_the_same_for_all_is_1_and_lists_apart_are_0() -> None:
    assert list_overlap(ranked(np.tile(np.arange(1, 11), (CASES, 1)))) == 1.0
    assert list_overlap(ranked(np.arange(1, CASES * 10 + 1).reshape(CASES, 10))) == 0.0


def test_what_would_be_chance_has_none() -> None:
    lists = np.tile(np.arange(1, 11), (CASES, 1))
    assert list_overlap(ranked(lists[1:])) is None
    assert list_overlap(ranked(lists, n_candidates=10 * CANDIDATES - 1)) is None
    assert list_overlap(ranked(lists, n_candidates=10 * CANDIDATES)) == 1.0


def test_chance_is_that_of_lists_drawn_by_popularity() -> None:
    assert chance_overlap(np.ones(200), 10) == pytest.approx(10 / 200, rel=1e-9)
    assert chance_overlap(np.ones(10), 10) == 1.0
    # Poisson sampling, drawn
    random = np.random.default_rng(0)
    counts = 1 / np.arange(1.0, 301) ** 1.5
    chance = chance_overlap(counts, 10)
    probabilities = random.random((4000, 300))
    m = brentq(lambda m: (1 - np.exp(-m * counts)).sum() - 10, 0, 1e9)
    lists = probabilities < 1 - np.exp(-m * counts)
    shared = (lists.sum(0) * (lists.sum(0) - 1)).sum() / (4000 * 3999 * 10)
    assert lists.sum(1).mean() == pytest.approx(10, abs=0.2)
    assert chance == pytest.approx(shared, abs=0.01)
    # a third of the items in common is far from nearly the same for such a catalogue
    assert 0.4 < chance < 0.6


def test_a_run_says_that_everyone_gets_the_same(tmp_path: Path) -> None:
    """Seven steps on a circle of 150 items; where weight_decay keeps all weights at 0, all scores are equal."""
    rows = [(f"u{user}", f"i{(user + 7 * step) % 150}", step) for user in range(150) for step in range(10)]
    write_inter(tmp_path, "circle", rows)
    said = {}
    for weight_decay in (10.0, 0.0):
        out = tmp_path / str(weight_decay)
        keys = {
            "learning_rate": 0.01,
            "weight_decay": weight_decay,
            "epochs": 4,
            "eval_step": 4,
            "topk": [5],
            "valid_metric": "NDCG@5",
        }
        run("SASRecCE", "circle", config_dict={**SMALL, **keys, "data_path": str(tmp_path), "output_dir": str(out)})
        said[weight_decay] = re.findall(r"two validation cases share .*", (out / "run.log").read_text())
    assert said[0.0] == []
    assert len(said[10.0]) == 1
    assert "of their 5 best items on average (3 % if lists were drawn by popularity)" in said[10.0][0]
    assert "the model recommends nearly the same items to everyone" in said[10.0][0]
    assert "weight_decay (10.0)" in said[10.0][0]
