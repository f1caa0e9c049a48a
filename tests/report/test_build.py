"""The page of a report: complete, escaped, and without anything from elsewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.report.build import build_report
from recbole_hyper.report.collect import collect
from recbole_hyper.report.tables import (
    leaderboard,
)
from tests.report.conftest import TRIALS, write_run, write_sweep


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
    for name in ("pareto-tiny-1", "parameters-sweep", "curves-sweep"):
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
        "leaderboard", "costs", "pareto", "trials", "environment",
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


def test_command(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folders), "--output", str(tmp_path / "out"), "--metric", "NDCG@10"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "report.html")


def test_a_metric_that_no_run_has_is_refused(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folders), "--output", str(tmp_path / "out"), "--metric=ndgc@10"]) == 1
    said = capsys.readouterr().err
    assert "no run or trial here has the metric 'ndgc@10' on validation" in said
    assert "ndcg@10" in said
    assert not (tmp_path / "out").exists()


def test_p_values_are_in_the_report(tmp_path: Path) -> None:
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


def test_evaluations_on_new_data_are_drawn_over_time(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    for day, value in ((1, 0.30), (3, 0.20), (2, 0.25)):
        counts = {"protocol": "new data", "since": 1e9, "until": 1e9 + 86400 * day}
        counts |= {"test cases": 10 + day, "cases of new users": day}
        new = {**result, "protocol": "new data", "protocol_counts": counts, "test": {"ndcg@10": value}}
        new |= {"new_data": f"day-{day}.csv", "changes": {"exclude_seen": False} if day == 3 else {}}
        (folder / f"evaluation_new_data-day-{day}.json").write_text(json.dumps(new))
    text = build_report([tmp_path], tmp_path / "report").read_text()
    assert "New data</h2>" in text
    rows = pd.read_csv(tmp_path / "report" / "new_data.csv")
    assert rows["ndcg@10"].tolist() == [0.30, 0.25, 0.20]
    assert rows["until"].tolist() == ["2001-09-10 01:46:40", "2001-09-11 01:46:40", "2001-09-12 01:46:40"]
    assert rows["of new users"].tolist() == [1, 2, 3]
    assert rows["data"].tolist() == ["day-1.csv", "day-2.csv", "day-3.csv"]
    assert rows["changes"].fillna("").tolist() == ["", "", "exclude_seen=False"]


def test_the_page_of_such_runs(sizes: Path, tmp_path: Path) -> None:
    text = build_report([sizes], tmp_path / "report").read_text()
    assert '<td class="long" data-value="hidden_size=16, train_batch_size=32, epochs=9">' in text
    assert '<td class="long" data-value="hidden_size=128, train_batch_size=64, epochs=90">' in text


def test_the_caption_names_a_line_only_where_there_is_one(tmp_path: Path) -> None:
    """A front of one point draws no line."""
    runs = tmp_path / "runs"
    write_run(runs / "a", model="Pop", valid={"ndcg@10": 0.1}, test={"ndcg@10": 0.1})
    write_run(runs / "b", model="EASER", valid={"ndcg@10": 0.2}, test={"ndcg@10": 0.2})
    assert "Pareto front" not in build_report([runs], tmp_path / "one").read_text()
    costs = {"peak_memory_bytes_per_phase": {"train": 2**30}, "seconds": {"train": 9.0, "total": 9.0}}
    write_run(runs / "c", model="EASER", valid={"ndcg@10": 0.3}, test={"ndcg@10": 0.3}, **costs)
    assert "A line is a model&#39;s Pareto front." in build_report([runs], tmp_path / "two").read_text()
