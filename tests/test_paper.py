"""The paper cites what its bibliography has, is short, and states figures of the result table."""

from __future__ import annotations

import re
from pathlib import Path

PAPER = Path(__file__).parents[1] / "paper"
RESULTS = PAPER.parent / "results"
TEXT = (PAPER / "paper.md").read_text(encoding="utf-8")
FIGURE = re.compile(r"(?<![\w.])\.\d{3,}")


def test_every_citation_has_its_entry_and_the_reverse() -> None:
    entries = re.findall(r"^@\w+\{(\w+),", (PAPER / "paper.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(set(re.findall(r"@(\w+)[\];]", TEXT))) == sorted(entries)


def test_the_paper_is_short() -> None:
    body = TEXT.split("---", 2)[2].partition("# References")[0]
    assert len(body.split()) <= 1000


def test_figures_are_those_of_the_page_of_claims() -> None:
    claims = set(FIGURE.findall((RESULTS / "claims.md").read_text(encoding="utf-8")))
    figures = FIGURE.findall(TEXT)
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in claims] == []
