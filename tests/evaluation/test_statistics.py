"""Intervals and paired tests against scipy, against counting, and by their error rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from recbole_hyper.evaluation.statistics import (
    StatisticsError,
    case_values,
    compare_cases,
    holm,
    intervals,
    pooled_cases,
    sign_flip_p_value,
)


def table(ranks: np.ndarray, users: np.ndarray | None = None) -> pd.DataFrame:
    users = np.arange(len(ranks)) if users is None else users
    return pd.DataFrame(
        {
            "user_id": [f"u{user}" for user in users],
            "item_id": [f"i{index % 7}" for index in range(len(ranks))],
            "position": np.arange(len(ranks)) % 5 + 1,
            "timestamp": np.arange(len(ranks), dtype=float),
            "rank": ranks,
            "n_candidates": 100,
        }
    )


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
    assert intervals(np.ones(5, dtype=int), np.arange(5), ["hit@10"])["hit@10"] == [1.0, 1.0]
    assert intervals(np.empty(0, dtype=int), [], ["hit@10"]) == {}


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


def test_sign_flips_count_every_assignment() -> None:
    differences = np.array([0.5, -0.1, 0.0, 0.3, 0.2])
    moving = [0.5, -0.1, 0.3, 0.2]
    observed, beyond = abs(sum(moving)), 0
    for mask in range(16):
        total = sum(-value if mask >> bit & 1 else value for bit, value in enumerate(moving))
        beyond += abs(total) >= observed - 1e-12
    generator = np.random.default_rng(0)
    assert sign_flip_p_value(differences, 1000, generator) == beyond / 16
    assert sign_flip_p_value(np.zeros(4), 1000, generator) == 1.0


def test_the_observed_signs_count_among_the_flips() -> None:
    differences = np.linspace(1, 2, 100)  # no drawn assignment reaches the sum of all
    assert sign_flip_p_value(differences, 99, np.random.default_rng(0)) == 1 / 100


def test_sign_flips_equal_scipys_permutation_test() -> None:
    differences = np.round(np.random.default_rng(4).normal(0.12, 1.0, 200), 2)
    theirs = scipy.stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=20000, rng=1
    ).pvalue
    ours = sign_flip_p_value(differences, 20000, np.random.default_rng(2))
    assert ours == pytest.approx(theirs, abs=0.012)
    assert 0.01 < ours < 0.6


def test_equal_models_are_seldom_called_different() -> None:
    generator = np.random.default_rng(8)
    p_values = []
    for trial in range(200):
        users = np.repeat(np.arange(50), 6)
        first, second = (np.where(generator.random(300) < 0.3, 1, 99) for _ in range(2))
        # a user's six cases share one outcome: a test that took them for independent would reject far too often
        first, second = first[users * 6], second[users * 6]
        p_values.append(
            compare_cases(
                table(first, users), table(second, users), "hit@10", resamples=50, flips=400, seed=trial
            ).p_value
        )
    assert np.mean(np.array(p_values) <= 0.05) < 0.1
    assert np.mean(np.array(p_values) <= 0.5) > 0.35


def test_a_better_model_is_found_and_measured() -> None:
    generator = np.random.default_rng(9)
    ranks = generator.integers(1, 40, 500)
    better = np.maximum(1, ranks - generator.integers(0, 8, 500))
    found = compare_cases(table(better), table(ranks), "ndcg@10")
    assert found.p_value < 0.001
    assert found.low < found.difference < found.high
    assert found.low > 0
    gains = [[1 / np.log2(rank + 1) if rank <= 10 else 0.0 for rank in own] for own in (better, ranks)]
    assert found.difference == pytest.approx(np.mean(gains[0]) - np.mean(gains[1]))
    assert (found.n_cases, found.n_users) == (500, 500)
    back = compare_cases(table(ranks), table(better), "ndcg@10")
    assert back.difference == pytest.approx(-found.difference)


def test_rows_are_paired_by_case_and_not_by_place() -> None:
    generator = np.random.default_rng(1)
    first, second = table(generator.integers(1, 20, 60)), table(generator.integers(1, 20, 60))
    shuffled = second.sample(frac=1.0, random_state=3)
    straight, mixed = (compare_cases(first, other, "mrr@10", flips=500) for other in (second, shuffled))
    assert straight == mixed
    assert compare_cases(first, first.sample(frac=1.0, random_state=1), "mrr@10").p_value == 1.0


def change(frame: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    return frame.assign(**columns)


def test_runs_on_other_splits_are_refused(tmp_path: Path) -> None:
    cases = table(np.arange(1, 21))
    with pytest.raises(StatisticsError, match="20 and 19 cases"):
        compare_cases(cases, cases[1:], "hit@10")
    with pytest.raises(StatisticsError, match="1 of 20 cases differ in item_id"):
        compare_cases(cases, change(cases, item_id=["other", *cases["item_id"][1:]]).sort_values("item_id"), "hit@10")
    with pytest.raises(StatisticsError, match="numbers of candidates"):
        compare_cases(cases, change(cases, n_candidates=99), "hit@10")
    with pytest.raises(StatisticsError, match="'itemcoverage@10' is not a mean over cases"):
        compare_cases(cases, cases, "itemcoverage@10")
    with pytest.raises(StatisticsError, match=r"cases_test\.parquet does not exist"):
        pooled_cases({None: tmp_path})
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        cases.to_parquet(tmp_path / name / "cases_test.parquet")
    first, second = (pooled_cases({None: tmp_path / name}) for name in ("a", "b"))
    assert compare_cases(first, second, "hit@10").difference == 0.0


def test_holm_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_a_run_writes_intervals_and_prints_its_protocol(
    random_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for line in ("train ", "valid ", "test ", "items in no part", "users in no part", counts["test starts"]):
        assert line in printed
    cases = pd.read_parquet(tmp_path / "out" / "cases_test.parquet")
    assert case_values("ndcg@5", cases["rank"].to_numpy()).mean() == pytest.approx(result["test"]["ndcg@5"], abs=1e-6)
