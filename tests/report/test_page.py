"""A page has its sections, tables and figures in order, and shows any text as text."""

import base64
import re
from pathlib import Path

from recbole_hyper.evaluation.tables import Table
from recbole_hyper.report.page import Page

EVIL = '<script>alert(1)</script> & "quoted"'
TABLE = Table([{"model": EVIL, "ndcg@10": 0.5}], ["model", "ndcg@10"], note=EVIL)


def test_sections_are_in_the_navigation_and_in_order() -> None:
    page = Page("A title", "and more")
    for name in ("First", "Second"):
        page.section(name, f"About {name}.")
    text = page.render()
    assert re.findall(r'<a href="#(s\d)">(\w+)</a>', text) == [("s0", "First"), ("s1", "Second")]
    assert re.findall(r'<h2 id="(s\d)">(\w+)</h2>', text) == [("s0", "First"), ("s1", "Second")]
    assert text.index("About First.") < text.index('id="s1"') < text.index("About Second.")


def test_all_text_is_escaped(tmp_path: Path) -> None:
    svg = tmp_path / "x.svg"
    svg.write_text(EVIL)
    page = Page(EVIL, EVIL)
    page.section(EVIL, EVIL)
    page.heading(EVIL)
    page.notes([EVIL])
    page.table(TABLE, folded=EVIL)
    page.figure(svg, EVIL)
    text = page.render()
    assert "<script>alert" not in text
    # title, heading, subtitle; section, link, text; heading; note; summary, cell twice, note of the table; figure twice
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 14
    assert base64.b64encode(EVIL.encode()).decode() in text
