"""Every number of a report comes from the folders, and the page needs nothing outside itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.cli import main
from recbole_hyper.report.build import build_report
from recbole_hyper.report.collect import ReportError, collect
from recbole_hyper.report.tables import (
    cost_table,
    embedding_sizes,
    leaderboard,
    pareto,
    trial_table,
    warnings_of,
)
from tests.report.conftest import TRIALS, write_run, write_sweep


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A sweep, two runs of one configuration, one of another, and one with other candidates."""
    write_sweep(tmp_path / "saved" / "sweep", TRIALS, best=1)
    for seed, value in ((1, 0.30), (2, 0.40)):
        write_run(
            tmp_path / "saved" / f"run-{seed}",
            model="gSASRec",
            test={"ndcg@10": value},
            config={"seed": seed},
            seed=seed,
        )
    write_run(tmp_path / "saved" / "sampled", eval_args={"mode": "uni99"}, test={"ndcg@10": 0.9})
    return tmp_path / "saved"


def test_leaderboard(folders: Path) -> None:
    board = leaderboard(collect([folders]))
    full = board[board.protocol == "leave-one-out, full ranking, seen items excluded"]
    assert full.model.tolist() == ["gSASRec", "SASRecCE"]
    assert full["ndcg@10"].tolist() == pytest.approx([0.35, 0.15])
    assert full["ndcg@10 std"].tolist() == pytest.approx([0.0707107, 0.0707107])
    assert full.seeds.tolist() == [2, 2]
    assert full["peak MiB"].tolist() == [80.0, 80.0]
    # sampled candidates are another group, however high
    assert board[board["ndcg@10"] == 0.9].protocol.tolist() == [
        "leave-one-out, 99 drawn candidates (uni99), seen items excluded"
    ]


def test_the_same_seed_twice_counts_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name)
    assert leaderboard(collect([tmp_path])).seeds.tolist() == [1]


def test_folders_within_one_another_count_once(folders: Path) -> None:
    assert len(collect([folders, folders / "sweep", folders / "run-1"]).entries) == len(collect([folders]).entries)


def test_trials_show_failures(folders: Path) -> None:
    table = trial_table(collect([folders]))
    assert table.status.tolist() == ["finished"] * 3 + ["failed"]
    assert table.hidden_size.tolist() == [32, 64, 64, 128]
    assert table.reason.iloc[3].startswith("out of memory")
    assert table["peak MiB"].tolist()[:3] == [100, 200, 90]


def test_embedding_sizes(folders: Path) -> None:
    sizes = embedding_sizes(cost_table(collect([folders / "sweep"])))
    assert sizes.hidden_size.tolist() == [32, 64]
    assert sizes["valid ndcg@10"].tolist() == [0.20, 0.25]
    assert sizes.optimum.tolist() == [False, True]


def test_of_equal_embedding_sizes_the_smallest_is_the_optimum(tmp_path: Path) -> None:
    trials = [{**TRIALS[0], "hidden_size": size, "score": score} for size, score in ((64, 0.2), (32, 0.2), (16, 0.1))]
    sizes = embedding_sizes(cost_table(collect([write_sweep(tmp_path / "s", trials)])))
    assert sizes[sizes.optimum].hidden_size.tolist() == [32]


def test_costs_leave_failed_trials_and_tested_copies_out(folders: Path) -> None:
    costs = cost_table(collect([folders / "sweep"]))
    assert costs["ndcg@10"].tolist() == [0.20, 0.25, 0.15]


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=25)


@settings(deadline=None)
@given(points)
def test_pareto_against_the_definition(drawn: list[tuple[int, int]]) -> None:
    frame = pd.DataFrame(drawn, columns=["cost", "value"])
    front = {tuple(row) for row in pareto(frame, "cost", "value")[["cost", "value"]].to_numpy().tolist()}
    slow = set()
    for cost, value in drawn:
        beaten = any((c <= cost and v > value) or (c < cost and v >= value) for c, v in drawn)
        if not beaten:
            slow.add((cost, value))
    assert front == slow
    assert len(pareto(frame, "cost", "value")) == len(slow)


def test_warnings(folders: Path) -> None:
    write_run(folders / "other", data_fingerprint="xyz", commit="fedc")
    notes = " ".join(warnings_of(collect([folders])))
    assert "2 fingerprints" in notes
    assert "2 versions of the code" in notes
    assert "1 trials of the sweep sweep failed" in notes


class Outside(HTMLParser):
    """Collects what a browser would fetch, and checks that tags are closed."""

    VOID = {"meta", "img", "br", "link", "wbr"}

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.images += tag == "img"
        if tag not in self.VOID:
            self.open.append(tag)
        for name in ("src", "href"):
            value = values.get(name) or ""
            if value and not value.startswith(("data:image/", "#")):
                self.fetched.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_complete_escaped_and_fetches_nothing(folders: Path, tmp_path: Path) -> None:
    path = build_report([folders], tmp_path / "report")
    text = path.read_text(encoding="utf-8")
    parser = Outside()
    parser.feed(text)
    assert parser.open == []
    assert parser.fetched == []
    assert parser.images >= 5
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", re.sub(r"data:image/[^\"]*", "", text))
    assert "<script>alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    for value in ("0.3500", "0.1500", "gSASRec", "uni99", "0123456789ab"):
        assert value in text
    figures = {figure.name for figure in (tmp_path / "report" / "figures").iterdir()}
    for name in ("pareto-tiny-1", "embedding_size-tiny-0", "parameters-sweep", "curves-sweep"):
        assert {f"{name}.svg", f"{name}.png"} <= figures


def test_tables_are_written_as_csv_and_markdown(folders: Path, tmp_path: Path) -> None:
    build_report([folders], tmp_path / "report")
    board = leaderboard(collect([folders]))
    read = pd.read_csv(tmp_path / "report" / "leaderboard.csv")
    assert read["ndcg@10"].tolist() == pytest.approx(board["ndcg@10"].tolist())
    lines = (tmp_path / "report" / "leaderboard.md").read_text().splitlines()
    assert len(lines) == 2 + len(board)
    assert len({line.count("|") for line in lines}) == 1
    assert {path.stem for path in (tmp_path / "report").glob("*.csv")} == {
        "leaderboard", "costs", "pareto", "embedding_size", "trials", "environment",
    }  # fmt: skip


def test_a_learned_curvature_is_one_of_the_curves(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", curvature=0.7, curvature_origin="learned")
    (folder / "train.csv").write_text("epoch,train_loss,curvature\n0,3.0,1.0\n1,2.0,0.7\n")
    first = build_report([tmp_path], tmp_path / "report").read_text()
    assert "learned curvature c" in (tmp_path / "report" / "figures" / "curves-SASRecCE.svg").read_text()
    # the page of an earlier report changes nothing
    assert build_report([tmp_path], tmp_path / "report").read_text() == first


def test_an_unfinished_sweep_is_shown_as_such(tmp_path: Path) -> None:
    write_sweep(tmp_path / "cut", TRIALS, best=None)
    text = build_report([tmp_path / "cut"], tmp_path / "report").read_text()
    assert "The sweep cut is not finished." in text
    assert "trials use validation only" in text


FOREIGN = [
    "[]", "", "{", "3", '"text"', "{}", '{"accuracy": 0.9}', '{"model": "SASRecCE", "dataset": "tiny", "config": []}',
    '{"model": "SASRecCE", "dataset": "tiny", "config": {}, "valid": {"ndcg@10": "high"}}',
    '{"model": "SASRecCE", "dataset": "tiny", "config": {}, "seed": [1]}',
    '{"model": "SASRecCE", "dataset": "tiny", "config": {}, "seconds": [1]}', "[" * 5000, "\x00",
]  # fmt: skip


@pytest.mark.parametrize("text", FOREIGN)
def test_a_result_of_another_program_is_left_out_with_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "good")
    write_run(tmp_path / "bad")
    (tmp_path / "bad" / "result.json").write_text(text)
    page = build_report([tmp_path], tmp_path / "report").read_text()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: skipped: ")
    assert str(tmp_path / "bad" / "result.json") in line
    assert str(tmp_path / "bad" / "result.json") in page
    assert [entry.folder.name for entry in collect([tmp_path]).entries] == ["good"]


@pytest.mark.parametrize("name", ["sweep.yaml", "sweep.json", "trials/0000-x/result.json", "trials/0000-x/trial.json"])
@pytest.mark.parametrize("text", ["[]", "!!python/object:os.system x", "trials: 3", '{"trials": 3}'])
def test_a_damaged_file_of_a_sweep_is_named(name: str, text: str, folders: Path) -> None:
    (folders / "sweep" / name).write_text(text)
    found = collect([folders])
    (problem,) = found.problems
    assert str(folders / "sweep" / name) in problem
    assert problem in warnings_of(found)


def test_names_are_text_in_markdown_and_html(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> `rm` | [x](javascript:1)\nnew *line*"
    write_run(tmp_path / "run", model=evil, dataset=evil, config={"loss_type": evil, "$x": "$\\frac"}, protocol=evil)
    write_run(tmp_path / "other", model=evil, dataset=evil, config={"loss_type": "$a"}, protocol=evil)
    page = build_report([tmp_path], tmp_path / "report").read_text()
    assert "<script>alert" not in page
    for path in (tmp_path / "report").glob("*.md"):
        lines = path.read_text().splitlines()
        assert "<script" not in "".join(lines)
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, path.name
    board = (tmp_path / "report" / "leaderboard.md").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\`rm\\` \\| \\[x\\](javascript:1) new \\*line\\*" in board


def test_the_best_of_a_metric_that_should_be_small_is_the_smallest(tmp_path: Path) -> None:
    for name, value in (("SASRecCE", 7.5), ("Pop", 12.5)):
        scores = {"valid": {"averagepopularity@10": value + 1}, "test": {"averagepopularity@10": value}}
        config = {"valid_metric": "AveragePopularity@10"}
        write_run(tmp_path / "saved" / name, model=name, best_valid_score=value + 1, config=config, **scores)
    page = build_report([tmp_path / "saved"], tmp_path / "report").read_text(encoding="utf-8")
    assert 'class="number best" data-value="7.5"' in page
    assert 'class="number best" data-value="8.5"' in page
    assert 'class="number best" data-value="12.5"' not in page


def test_nothing_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ReportError, match="is not a folder"):
        collect([tmp_path / "nothing"])
    assert main(["report", str(tmp_path)]) == 1
    assert "no run was found" in capsys.readouterr().err


def test_command(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folders), "--output", str(tmp_path / "out"), "--metric", "NDCG@10"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "report.html")


def test_a_metric_that_no_run_has_is_refused(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folders), "--output", str(tmp_path / "out"), "--metric=ndgc@10"]) == 1
    said = capsys.readouterr().err
    assert "metric 'ndgc@10': no run or trial here has it on validation" in said
    assert "ndcg@10" in said
    assert not (tmp_path / "out").exists()


def test_p_values_stand_in_the_report(tmp_path: Path) -> None:
    ranks = {"good": [1] * 30, "bad": [9] * 30, "other": [1] * 29 + [2]}
    for name, own in ranks.items():
        folder = write_run(
            tmp_path / name, model=f"Model{name}", test={"ndcg@10": float(np.mean(1 / np.log2(1 + np.array(own))))}
        )
        frame = pd.DataFrame({"user_id": [f"u{number:02d}" for number in range(30)], "rank": own})
        frame.to_parquet(folder / "cases_test.parquet")
    board = leaderboard(collect([tmp_path])).set_index("model")
    assert pd.isna(board.loc["Modelgood", "p_value"])
    assert board.loc["Modelbad", "p_value"] < 0.001
    assert board.loc["Modelother", "p_value"] > 0.5
    assert board.loc["Modelbad", "ndcg@10 mark"] == "†"
    text = build_report([tmp_path], tmp_path / "report").read_text()
    assert "<sup>†</sup>" in text
    assert "One seed covers other users of these trained models only" in text
    assert ">ndcg@10 mark<" not in text
    # models with one row list no settings
    assert ">settings<" not in text


def with_cases(folder: Path, ranks: list[int], **more: Any) -> Path:
    gains = 1 / np.log2(1 + np.array(ranks))
    scores = {"ndcg@10": float(gains.mean()), "itemcoverage@10": 0.1 * len(set(ranks))}
    folder = write_run(folder, test=scores, **more)
    n = len(ranks)
    frame = pd.DataFrame(
        {
            "user_id": [f"u{number:02d}" for number in range(n)],
            "item_id": "i",
            "rank": ranks,
            "position": np.arange(n) % 12 + 1,
            "item_count": np.arange(n) * 7,
            "user_count": np.arange(n) % 2,
        }
    )
    frame.to_parquet(folder / "cases_test.parquet")
    return folder


def test_segments_of_tested_runs(tmp_path: Path) -> None:
    (tmp_path / "data" / "tiny").mkdir(parents=True)
    (tmp_path / "data" / "tiny" / "tiny.item").write_text("item_id:token\tkind:token\ni\tx\n")
    keys = {"data_path": str(tmp_path / "data")}
    with_cases(tmp_path / "a", [1, 2, 3] * 10, model="ModelA", config=keys)
    with_cases(tmp_path / "b", [2, 4, 9] * 10, model="ModelB", config=keys)
    names = ["history_length", "item_popularity", "user.new", "item.kind"]
    text = build_report([tmp_path], tmp_path / "report", segments=names).read_text()
    assert "Segments</h2>" in text
    assert "Accuracy against coverage: ndcg@10, itemcoverage@10." in text
    (saved,) = (tmp_path / "report").glob("segments-*.csv")
    rows = pd.read_csv(saved)
    for _, part in rows.groupby(["model", "by"]):
        assert part["cases"].sum() == 30
    part = rows[(rows.model == "ModelA") & (rows.by == "user.new") & (rows.segment == "new")].iloc[0]
    own = 1 / np.log2(1 + np.array(([1, 2, 3] * 10)[::2]))
    assert part["ndcg@10"] == pytest.approx(own.mean())
    assert part["ndcg@10 low"] < own.mean() < part["ndcg@10 high"]
    assert set(rows[rows.by == "item.kind"].segment) == {"x"}
    assert set(rows[rows.by == "history_length"].segment) == {"1 to 4", "5 to 9", "10 to 19"}
    assert set(rows[rows.by == "item_popularity"].segment) == {
        "not trained on", "5 to 19", "20 to 99", "100 to 499",
    }  # fmt: skip


def test_evaluations_on_new_data_are_drawn_over_time(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    for day, value in ((1, 0.30), (3, 0.20), (2, 0.25)):
        counts = {"protocol": "new data", "since": 1e9, "until": 1e9 + 86400 * day}
        counts |= {"test cases": 10 + day, "cases of new users": day}
        new = {**result, "protocol": "new data", "protocol_counts": counts, "test": {"ndcg@10": value}}
        (folder / f"evaluation_new_data-day-{day}.json").write_text(json.dumps(new))
    text = build_report([tmp_path], tmp_path / "report").read_text()
    assert "New data</h2>" in text
    rows = pd.read_csv(tmp_path / "report" / "new_data.csv")
    assert rows["ndcg@10"].tolist() == [0.30, 0.25, 0.20]
    assert rows["until"].tolist() == ["2001-09-10 01:46:40", "2001-09-11 01:46:40", "2001-09-12 01:46:40"]
    assert rows["of new users"].tolist() == [1, 2, 3]
