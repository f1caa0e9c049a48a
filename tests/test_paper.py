"""The papers cite what their bibliography has, and state figures of the result table."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from recbole_hyper.models.rank import Ranker
from tests.conftest import script
from tests.raising import refused

PAPER = Path(__file__).parents[1] / "paper"
RESULTS = PAPER.parent / "results"
TEXT = (PAPER / "paper.md").read_text(encoding="utf-8")
PREPRINT = (PAPER / "preprint.tex").read_text(encoding="utf-8")
FIGURE = re.compile(r"(?<![\w.])\.\d{3,}")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return script(PAPER / "tables.py")


@pytest.fixture(scope="module")
def texts(tables: ModuleType) -> dict[str, str]:
    """What `make paper` writes, but the figures."""
    return tables.texts()


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


def test_numbers_of_the_preprint_are_written(texts: dict[str, str]) -> None:
    written = re.findall(r"\\newcommand\{\\(\w+)\}", texts["numbers"])
    # no command of LaTeX in it has a capital inside
    used = set(re.findall(r"\\([a-z]+[A-Z][a-zA-Z]*|boards|pairs|leads|certain)\b", PREPRINT))
    assert len(used) > 20
    assert used - set(written) == set()


def test_tables_and_figures_of_the_preprint_are_written(tables: ModuleType, texts: dict[str, str]) -> None:
    named = re.findall(r"\\results\{\w+\}\{(\w+)\}", PREPRINT)
    assert len(named) > 5
    assert {*named, "numbers"} == set(texts)
    assert all(texts[name].count(r"\\") > 5 for name in named)
    assert set(re.findall(r"\\ref\{tab:(\w+)\}", PREPRINT)) == set(named)
    images = re.findall(r"\\includegraphics\[[^]]*\]\{build/([\w.]+)\}", PREPRINT)
    assert images == list(tables.IMAGES)
    assert set(tables.IMAGES.values()) <= set(tables.FIGURES)


def test_a_sentence_that_results_contradict_is_an_error(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ahead", lambda dataset: True)
    with refused(AssertionError, "preprint.tex", "Foursquare"):
        tables.board_numbers()
