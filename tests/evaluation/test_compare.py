"""The comparison of models: its keys, its table, what it skips and what it refuses."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.evaluation.compare import (
    comparison,
    comparison_caption,
    comparison_table,
    deviation,
    mean,
    pair_table,
    require_one_split,
    seeds_table,
)
from recbole_hyper.evaluation.results import candidates_text, headline
from recbole_hyper.evaluation.statistics import StatisticsError, case_values
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.runs.run import _print_summary
from tests.evaluation.test_tables import latex_cells
from tests.raising import refused

RANKS = {
    "Good": np.array([1, 1, 2, 1, 3, 1, 2, 1, 1, 2, 1, 1]),
    "Near": np.array([1, 2, 2, 1, 3, 1, 2, 1, 1, 2, 1, 1]),
    "Bad": np.array([9, 8, 9, 7, 9, 9, 8, 9, 9, 6, 9, 9]),
}


def ndcg(k: int, ranks: np.ndarray) -> float:
    """Mean of 1 / log2(rank + 1) over ranks up to k, 0 beyond."""
    return sum(1 / math.log2(rank + 1) for rank in ranks.tolist() if rank <= k) / len(ranks)


def results_of(folder: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    results, folders = {}, {}
    for name, ranks in RANKS.items():
        folders[name] = folder / name
        folders[name].mkdir()
        frame = pd.DataFrame({"user_id": [f"u{i}" for i in range(12)], "item_id": "i", "position": 3, "rank": ranks})
        frame.to_parquet(folders[name] / "cases_test.parquet")
        results[name] = {
            "model": name,
            "test": {
                "ndcg@1": ndcg(1, ranks),
                "ndcg@5": ndcg(5, ranks),
                "averagepopularity@5": {"Good": 7.0, "Near": 3.0, "Bad": 5.0}[name],
            },
            "valid": {},
            "seconds": {"train": 2.0, "refit": 1.5, "total": 9.0},
            "peak_memory_bytes": 3 << 20,
            "parameters": 12345,
            "best_epoch": 4,
            "data_fingerprint": "f",
            "eval_args": {"split": {"LS": "valid_and_test"}, "mode": {"valid": "full", "test": "full"}},
            "exclude_seen": True,
            "n_test_cases": 12,
        }
    return results, folders


def alone(by_name: dict[str, Any]) -> dict[str, dict[None, Any]]:
    """Return what is of one run of each model in the form of several seeds."""
    return {name: {None: one} for name, one in by_name.items()}


def test_rows_hold_metrics_cost_and_the_test_against_the_best(tmp_path: Path) -> None:
    results, folders = results_of(tmp_path)
    broken = {"Broken": "no | memory for <1 tensor>"}
    rows, pairs = comparison(alone(results), alone(folders), "ndcg@5", failed=broken)
    by_name = {row["model"]: row for row in rows}
    assert list(by_name) == ["Good", "Near", "Bad", "Broken"]
    assert by_name["Good"]["train_seconds"] == 3.5
    assert by_name["Good"]["peak_memory_mib"] == 3.0
    assert "p_value" not in by_name["Good"]
    assert by_name["Near"]["p_value"] == 1.0  # one user differs: both signs are equally likely
    assert by_name["Bad"]["p_value"] == 2 / 2**12  # all twelve users agree, and no other flip does
    assert by_name["Bad"]["over"] == "users, one seed"
    assert by_name["Bad"]["difference"] == pytest.approx(ndcg(5, RANKS["Bad"]) - ndcg(5, RANKS["Good"]))

    assert by_name["Bad"]["ndcg@5 mark"] == "†"
    assert [(pair.first, pair.second) for pair in pairs] == [("Good", "Near"), ("Good", "Bad"), ("Near", "Bad")]

    table = comparison_table(rows, [1, 5], note="what it says")
    assert table.columns == [
        "model", "ndcg@5", "averagepopularity@5", "train_seconds", "peak_memory_mib", "parameters", "p_value", "over",
        "note",
    ]  # fmt: skip
    lines = table.markdown().splitlines()
    heads = [
        "Model",
        "NDCG@5",
        "AveragePopularity@5",
        "Training (s)",
        "Peak memory (MiB)",
        "Parameters",
        "p",
        "p covers",
    ]
    assert lines[0] == "| " + " | ".join([*heads, "Note"]) + " |"
    assert lines[2] == f"| Good | **{results['Good']['test']['ndcg@5']:.4f}** | 7.0000 | 3.5 | 3 | 12,345 |  |  |  |"
    assert "| **3.0000** |" in lines[3]  # less popular items are better
    assert f"{results['Bad']['test']['ndcg@5']:.4f}† |" in lines[4]
    assert lines[5].endswith("| failed: no \\| memory for &lt;1 tensor&gt; |")
    table.save(tmp_path, "compare")
    # four models as LaTeX: every row has the columns that are declared
    printed = latex_cells((tmp_path / "compare.tex").read_text())
    assert [line[0] for line in printed] == ["Model", *by_name]
    assert "train" not in (tmp_path / "compare.tex").read_text()
    assert printed[1][1] == rf"\bfseries {results['Good']['test']['ndcg@5']:.4f}"
    with open(tmp_path / "compare.csv", newline="") as file:
        saved = list(csv.DictReader(file))
    assert [row["model"] for row in saved] == list(by_name)
    assert float(saved[0]["ndcg@1"]) == results["Good"]["test"]["ndcg@1"]
    assert saved[3]["note"] == "failed: no | memory for <1 tensor>"
    assert (tmp_path / "compare.md").read_text() == table.markdown()
    assert table.markdown().endswith("what it says\n")
    assert "| Near | Bad | +" in pair_table(pairs, "ndcg@5").markdown()


def test_the_table_shows_the_cut_off_of_the_p_values(tmp_path: Path) -> None:
    results, _ = results_of(tmp_path)
    for metric, cut in (("ndcg@1", 1), ("ndcg@5", 5)):
        whole = alone({name: {**result, "dataset": "d", "seed": 1} for name, result in results.items()})
        table, pairs = Comparison(whole, tmp_path, metric, [1, 5]).tables()
        shown = [column for column in table.columns if "@" in column]
        assert {column.rpartition("@")[2] for column in shown} == {str(cut)}
        assert table.note.startswith(f"p: NDCG@{cut} against the best")
        assert pairs is not None
        assert pairs.note.startswith(f"NDCG@{cut} of the first")
        assert {"ndcg@1", "ndcg@5"} <= set(table.csv().splitlines()[0].split(","))


def test_a_metric_without_a_cut_off_has_a_column(tmp_path: Path) -> None:
    results, folders = results_of(tmp_path)
    for name, value in (("Good", 0.25), ("Near", 0.75), ("Bad", 0.5)):
        results[name]["test"] = {"gauc": value}
    rows, _ = comparison(alone(results), alone(folders), "gauc")
    table = comparison_table(rows, [1, 5])
    assert table.columns == ["model", "gauc", "train_seconds", "peak_memory_mib", "parameters", "note"]
    assert [(cells[1].text, cells[1].best) for cells in table.cells()] == [
        ("0.2500", False),
        ("0.7500", True),
        ("0.5000", False),
    ]


def test_results_of_other_splits_are_refused(tmp_path: Path) -> None:
    results, folders = results_of(tmp_path)
    results["Near"]["data_fingerprint"] = "g"
    with refused(StatisticsError, "'f'", "'g'", "data_fingerprint"):
        comparison(alone(results), alone(folders), "ndcg@5")


@pytest.mark.parametrize(("mode", "drawn"), [("uni9", True), ("pop5", True), ("full", False), ("mine.txt", False)])
def test_results_on_other_drawn_candidates_are_refused(tmp_path: Path, mode: str, drawn: bool) -> None:
    results, _ = results_of(tmp_path)
    for name, seed in (("Good", 1), ("Near", 2), ("Bad", 3)):
        eval_args = {"split": {"LS": "valid_and_test"}, "mode": {"valid": "full", "test": mode}}
        results[name].update(eval_args=eval_args, seed=seed, config={"candidate_seed": 7})
    require_one_split(results)
    results["Bad"]["config"] = {"candidate_seed": 8}
    if not drawn:
        require_one_split(results)
        return
    with refused(StatisticsError, "candidate_seed"):
        require_one_split(results)


def test_missing_cases_leave_a_note_instead_of_a_p_value(tmp_path: Path) -> None:
    results, folders = results_of(tmp_path)
    (folders["Bad"] / "cases_test.parquet").unlink()
    rows = {row["model"]: row for row in comparison(alone(results), alone(folders), "ndcg@5")[0]}
    assert "save_cases=True" in rows["Bad"]["note"]
    assert "p_value" not in rows["Bad"]
    assert "p_value" in rows["Near"]


def test_targets_that_repeat_their_history_are_named(tmp_path: Path) -> None:
    result = {**results_of(tmp_path)[0]["Good"], "dataset": "d", "protocol": "leave-one-out", "seed": 1}
    result["protocol_counts"] = {"test cases": 12, "test targets that repeat an item of their history": 11}
    said = "(92% of the test targets are in their own history and can never be hit; --repeatable=True"
    assert said in headline(result)
    assert said in comparison_caption(result)
    assert "history" not in headline({**result, "exclude_seen": False})
    result["protocol_counts"]["test targets that repeat an item of their history"] = 0
    assert "history" not in headline(result)


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("full", "full ranking"),
        ("uni99", "99 drawn candidates (uni99)"),
        ({"valid": "pop9", "test": "pop9"}, "9 drawn candidates (pop9)"),
        ({"valid": "uni9", "test": "full"}, "9 drawn candidates (uni9) in validation, full ranking in the test"),
        ({"valid": "mine.txt", "test": "mine.txt"}, "candidates of mine.txt"),
    ],
)
def test_the_candidates_in_words(tmp_path: Path, mode: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = {**results_of(tmp_path)[0]["Good"], "dataset": "d", "protocol": "leave-one-out", "seed": 1, "epochs": 2}
    result["eval_args"] = {"split": {"LS": "valid_and_test"}, "mode": mode}
    _print_summary(result, tmp_path)
    assert f"Good on d: leave-one-out, {text}, seen items excluded, seed 1" in capsys.readouterr().out
    tested = candidates_text(mode["test"] if isinstance(mode, dict) else mode)
    assert f", {tested}, seen items excluded" in comparison_caption(result)


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
    with refused(StatisticsError, "data_fingerprint"):
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
    assert cells[0][1].text.endswith(f" ± {rows['A']['ndcg@5 std']:.4f}")
    assert cells[2][1].text == ""
