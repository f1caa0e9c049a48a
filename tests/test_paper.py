"""The papers cite what their bibliography has, and state figures of the result table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recbole_hyper.models.rank import Ranker
from tests.conftest import script

PAPER = Path(__file__).parents[1] / "paper"
RESULTS = PAPER.parent / "results"
TEXT = (PAPER / "paper.md").read_text(encoding="utf-8")
PREPRINT = (PAPER / "preprint.tex").read_text(encoding="utf-8")
FIGURE = re.compile(r"(?<![\w.])\.\d{3,}")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the preprint reads."""
    folder = tmp_path_factory.mktemp("paper")
    script(PAPER / "tables.py").main(folder)
    return folder


def test_every_citation_has_its_entry_and_the_reverse() -> None:
    entries = re.findall(r"^@\w+\{(\w+),", (PAPER / "paper.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lists = re.findall(r"\\cite[tp]?\{([\w,]+)\}", PREPRINT)
    cited = {key for keys in lists for key in keys.split(",")} | set(re.findall(r"@(\w+)[\];]", TEXT))
    assert sorted(cited) == sorted(entries)


def test_the_paper_is_short() -> None:
    body = TEXT.split("---", 2)[2].partition("# References")[0]
    assert len(body.split()) <= 1000


def test_figures_are_those_of_the_page_of_claims() -> None:
    claims = set(FIGURE.findall((RESULTS / "claims.md").read_text(encoding="utf-8")))
    figures = FIGURE.findall(TEXT)
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in claims] == []


def test_the_preprint_types_no_figure_but_design_constants() -> None:
    assert FIGURE.findall(PREPRINT) == [".001"]
    numbers = Ranker().numbers
    assert f"the {numbers.numel()} numbers of the reranker" in PREPRINT
    assert f"{numbers.shape[1]} numbers each" in PREPRINT


def test_numbers_of_the_preprint_are_written(build: Path) -> None:
    written = re.findall(r"\\newcommand\{\\(\w+)\}", (build / "numbers.tex").read_text(encoding="utf-8"))
    # no command of LaTeX in it has a capital inside
    used = set(re.findall(r"\\([a-z]+[A-Z][a-zA-Z]*|boards|pairs|leads|certain)\b", PREPRINT))
    assert len(used) > 20
    assert used - set(written) == set()


def test_tables_and_figures_of_the_preprint_are_written(build: Path) -> None:
    named = re.findall(r"\\results\{\w+\}\{(\w+)\}", PREPRINT)
    images = re.findall(r"\\includegraphics\[[^]]*\]\{build/([\w.]+)\}", PREPRINT)
    files = {"numbers.tex", *images, *(f"{name}.tex" for name in named)}
    assert len(files) > 8
    assert {path.name for path in build.iterdir()} == files
    for label in re.findall(r"\\ref\{tab:(\w+)\}", PREPRINT):
        assert label in named
    for name in named:
        assert (build / f"{name}.tex").read_text(encoding="utf-8").count(r"\\") > 5
