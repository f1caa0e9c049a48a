"""Mean, deviation and paired tests over seeds, against counting by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.evaluation.compare import comparison, comparison_table, deviation, mean, seeds_table
from recbole_hyper.evaluation.statistics import StatisticsError, case_values

USERS = np.array(["a", "b", "b", "c", "d", "e", "e", "e"])
SEEDS = (3, 5, 11)
EVAL_ARGS = {"split": {"LS": "valid_and_test"}, "mode": {"valid": "full", "test": "full"}}


def result_of(value: float, **keys: Any) -> dict[str, Any]:
    plain = {"data_fingerprint": "f", "eval_args": EVAL_ARGS, "exclude_seen": True, "n_test_cases": len(USERS)}
    cost = {"seconds": {"train": value, "total": 9.0}, "peak_memory_bytes": 3 << 20, "parameters": 7, "best_epoch": 2}
    scores = {"valid": {"ndcg@5": value / 2}, "test": {"ndcg@5": value, "itemcoverage@5": 0.5}}
    return {"model": "M", "dataset": "d", "protocol": "leave-one-out", **plain, **cost, **scores, **keys}


def runs_of(folder: Path, ranks: dict[int, np.ndarray]) -> tuple[dict[int, dict[str, Any]], dict[int, Path]]:
    """Write the cases of a model's seeds, each in a different order."""
    results, folders = {}, {}
    for seed, found in ranks.items():
        folders[seed] = folder / f"seed-{seed}"
        folders[seed].mkdir(parents=True)
        items = [f"i{index}" for index in range(len(USERS))]
        frame = pd.DataFrame({"user_id": USERS, "item_id": items, "position": 3, "rank": found, "n_candidates": 40})
        frame.sample(frac=1, random_state=seed).to_parquet(folders[seed] / "cases_test.parquet")
        results[seed] = result_of(float(case_values("ndcg@5", found).mean()))
    return results, folders


def drawn(first: int) -> dict[int, np.ndarray]:
    return {seed: np.random.default_rng(first + seed).integers(1, 8, len(USERS)) for seed in SEEDS}


def test_mean_and_deviation() -> None:
    values = [0.1, 0.4, 0.25]
    assert mean(values) == pytest.approx(np.mean(values))
    assert deviation(values) == pytest.approx(np.std(values, ddof=1))
    assert (mean([7, 7]), deviation([7, 7])) == (7, 0.0)
    assert deviation([0.3]) is None
    assert (mean([0.3, None]), deviation([0.3, None])) == (None, None)


def test_a_row_per_metric() -> None:
    rows = seeds_table({1: result_of(0.2), 4: result_of(0.4)}).rows
    assert [row["metric"] for row in rows] == ["ndcg@5", "itemcoverage@5"]
    assert rows[0]["test"] == pytest.approx(0.3)
    assert rows[0]["test std"] == pytest.approx(0.2 / np.sqrt(2))
    assert (rows[0]["valid seed 4"], rows[0]["test seed 1"]) == (0.2, 0.2)
    assert (rows[1]["valid"], rows[1]["test"]) == (None, 0.5)
    with pytest.raises(StatisticsError, match="seed 1 and seed 4 cannot be compared: data_fingerprint"):
        seeds_table({1: result_of(0.2), 4: result_of(0.4, data_fingerprint="g")})


def test_a_row_per_model(tmp_path: Path) -> None:
    results, folders = {}, {}
    for name, first in (("A", 0), ("B", 100)):
        results[name], folders[name] = runs_of(tmp_path / name, drawn(first))
    found, (pair,) = comparison(results, folders, "ndcg@5", failed={"C": "seed 3: too bad"})
    rows = {row["model"]: row for row in found}
    means = {name: np.mean([one["test"]["ndcg@5"] for one in found.values()]) for name, found in results.items()}
    best = max(means, key=lambda name: means[name])
    other = min(means, key=lambda name: means[name])
    for name, value in means.items():
        assert rows[name]["ndcg@5"] == pytest.approx(value)
        spread = np.std([one["test"]["ndcg@5"] for one in results[name].values()], ddof=1)
        assert rows[name]["ndcg@5 std"] == pytest.approx(spread)
        assert rows[name]["train_seconds"] == pytest.approx(value)
        assert (rows[name]["seeds"], rows[name]["parameters"]) == (3, 7)
    assert "p_value" not in rows[best]
    assert rows[other]["difference"] == pytest.approx(means[other] - means[best])
    assert rows["C"]["note"] == "failed: seed 3: too bad"
    assert (pair.over, rows[other]["over"]) == ("users and 3 seeds", "users and 3 seeds")
    cells = list(comparison_table(found, [5]).cells())
    assert cells[0][1].deviation == f"{rows['A']['ndcg@5 std']:.4f}"
    assert cells[2][1].text == ""
