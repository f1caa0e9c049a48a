"""Intervals against scipy, and by how often they cover the truth."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.stats import binomtest

from recbole_hyper.evaluation.statistics import case_values, intervals


def test_values_of_cases_by_hand() -> None:
    ranks = np.array([1, 3, 4])
    np.testing.assert_allclose(case_values("NDCG@3", ranks), [1.0, 0.5, 0.0])
    np.testing.assert_allclose(case_values("mrr@3", ranks), [1.0, 1 / 3, 0.0])
    np.testing.assert_allclose(case_values("hit@3", ranks), [1.0, 1.0, 0.0])
    np.testing.assert_allclose(case_values("precision@4", ranks), [0.25, 0.25, 0.25])
    assert case_values("itemcoverage@3", ranks) is None
    assert case_values("gauc", ranks) is None


def test_values_of_cases_average_to_recboles_metrics() -> None:
    from recbole_hyper.evaluation.metrics import compute_metrics
    from recbole_hyper.types import Ranks

    ranks = np.random.default_rng(0).integers(1, 30, 200)
    names = ["NDCG", "Hit", "MRR", "Recall", "Precision", "MAP"]
    outcome = Ranks(ranks, np.full(200, 30), np.ones((200, 10), dtype=np.int32), 0.0)
    for metric, value in compute_metrics(outcome, names, [1, 5, 10], 10, n_items=30, n_users=200).items():
        assert case_values(metric, ranks).mean() == pytest.approx(value, abs=1e-9), metric


def test_intervals_equal_scipys_bca() -> None:
    ranks = np.random.default_rng(1).geometric(0.08, 400)
    values = np.array([1 / np.log2(rank + 1) if rank <= 10 else 0.0 for rank in ranks])
    ours = intervals(ranks, np.arange(400), ["ndcg@10", "itemcoverage@10"], resamples=20000)
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=20000, method="BCa", rng=2).confidence_interval
    assert list(ours) == ["ndcg@10"]
    np.testing.assert_allclose(ours["ndcg@10"], theirs, atol=0.0015)
    percentile = intervals(ranks, np.arange(400), ["ndcg@10"], confidence=0.5, resamples=5000)["ndcg@10"]
    assert ours["ndcg@10"][0] < percentile[0] < values.mean() < percentile[1] < ours["ndcg@10"][1]


def test_cases_of_a_user_are_drawn_together() -> None:
    # 40 users with 50 equal cases each: as sure as 40 cases, not as 2000
    per_user = np.random.default_rng(3).geometric(0.1, 40)
    users = np.repeat(np.arange(40), 50)
    clustered = intervals(np.repeat(per_user, 50), users, ["hit@10"])["hit@10"]
    alone = intervals(per_user, np.arange(40), ["hit@10"])["hit@10"]
    np.testing.assert_allclose(clustered, alone, atol=1e-12)
    naive = intervals(np.repeat(per_user, 50), np.arange(2000), ["hit@10"])["hit@10"]
    assert clustered[1] - clustered[0] > 5 * (naive[1] - naive[0])


def test_users_weigh_by_their_cases() -> None:
    # the estimate is the mean over cases: 9 hits of 10 cases, whichever user they belong to
    ranks, users = np.array([1] * 9 + [50]), np.array([0] * 9 + [1])
    low, high = intervals(ranks, users, ["hit@10"], resamples=4000)["hit@10"]
    assert (low, high) == (0.0, 1.0)
    assert intervals(np.empty(0, dtype=int), [], ["hit@10"]) == {}


def test_users_of_one_value_have_the_exact_interval() -> None:
    for n in (5, 30):
        low, high = binomtest(0, n).proportion_ci(method="exact")
        found = intervals(np.full(n, 99), np.arange(n), ["hit@10", "precision@10"])
        assert found["hit@10"] == pytest.approx([low, high])
        assert found["precision@10"] == pytest.approx([0.0, high / 10])
        assert intervals(np.ones(n, dtype=int), np.arange(n), ["ndcg@10"])["ndcg@10"] == pytest.approx([1 - high, 1.0])


@pytest.mark.parametrize("clustered", [False, True])
def test_intervals_cover_the_truth_as_often_as_they_say(clustered: bool) -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for trial in range(300):
        chance = generator.beta(2, 4, 60)  # users differ; the mean over users is 1/3
        users = np.repeat(np.arange(60), 8) if clustered else np.arange(60)
        hit = generator.random(len(users)) < chance[users]
        low, high = intervals(np.where(hit, 1, 99), users, ["hit@10"], confidence=0.9, resamples=400, seed=trial)[
            "hit@10"
        ]
        covered += low <= 1 / 3 <= high
    assert 0.84 <= covered / 300 <= 0.96  # three standard errors of 0.9 are 0.052


def test_a_run_writes_intervals_and_prints_its_protocol(random_data, tmp_path, capsys) -> None:
    from recbole_hyper import run

    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", "confidence": 0.9}
    keys |= {"eval_args": {"split": {"GT": {"valid": 0.6, "test": 0.8}}, "successive": True}, "protocol_report": True}
    result = run("Pop", "random", config_dict={**keys, "output_dir": str(tmp_path / "out")})
    for part in ("valid", "test"):
        assert sorted(result[f"{part}_intervals"]) == ["hit@5", "mrr@5", "ndcg@5"]
        for metric, (low, high) in result[f"{part}_intervals"].items():
            assert low <= result[part][metric] <= high
            assert low < high
    assert "users" in result["interval_method"]
    printed = capsys.readouterr().out
    assert "Protocol: global timepoint" in printed
    counts = result["protocol_counts"]
    for line in ("train ", "valid ", "test ", counts["test starts"]):
        assert line in printed
    cases = pd.read_parquet(tmp_path / "out" / "cases_test.parquet")
    assert case_values("ndcg@5", cases["rank"].to_numpy()).mean() == pytest.approx(result["test"]["ndcg@5"], abs=1e-6)
