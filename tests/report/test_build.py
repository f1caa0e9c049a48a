"""The page of a report: complete, escaped, and without anything from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.errors import ConfigError
from recbole_hyper.report.build import build_report
from recbole_hyper.report.collect import collect
from recbole_hyper.report.tables import leaderboard
from tests.raising import refused
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
    text = build_report([folders], tmp_path / "report").read_text(encoding="utf-8")
    parser = Outside()
    parser.feed(text)
    assert parser.open == []
    assert parser.fetched == []
    assert parser.images >= 3
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", re.sub(r"data:image/[^\"]*", "", text))
    assert "<script>alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    for value in ("0.3500", "0.1500", "gSASRec", "uni99"):
        assert value in text
    figures = {figure.name for figure in (tmp_path / "report" / "figures").iterdir()}
    for name in ("parameters-sweep", "curves-sweep"):
        assert {f"{name}.svg", f"{name}.png"} <= figures
    # its tables are written as CSV and Markdown
    board = leaderboard(collect([folders]))
    read = pd.read_csv(tmp_path / "report" / "leaderboard.csv")
    assert read["ndcg@10"].tolist() == pytest.approx(board["ndcg@10"].tolist())
    lines = (tmp_path / "report" / "leaderboard.md").read_text().splitlines()
    assert len(lines) == 2 + len(board)
    assert len({line.count("|") for line in lines}) == 1
    assert {path.stem for path in (tmp_path / "report").glob("*.csv")} == {"leaderboard", "trials"}


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
    build_report([tmp_path / "cut"], tmp_path / "report")
    for name, named in (("trials.csv", "would overwrite"), ("file", "is a file")):
        (tmp_path / "cut" / name).touch()
        with refused(ConfigError, name, named, "--output"):
            build_report([tmp_path / "cut"], tmp_path / "cut" / name.replace("trials.csv", ""))


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
    assert "†</td>" in text
    assert "One seed covers other users of these trained models only" in text
    assert ">ndcg@10 mark<" not in text
    # models with one row list no settings
    assert ">settings<" not in text
