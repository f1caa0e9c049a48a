"""One HTML page of tables and figures."""

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment

from recbole_hyper.evaluation.tables import Table
from recbole_hyper.files import write_text

TEMPLATE = Path(__file__).with_name("page.html")


class Page:
    """An HTML page: add sections, then render. Text is escaped, and the page loads nothing from elsewhere."""

    def __init__(self, title: str, subtitle: str) -> None:
        self.title, self.subtitle = title, subtitle
        # (kind, values) of each part, in the order of the page
        self._parts: list[tuple[str, dict[str, object]]] = []

    def _add(self, kind: str, **values: object) -> None:
        self._parts.append((kind, values))

    def section(self, title: str, text: str = "") -> None:
        """Start a section."""
        self._add("section", name=f"s{sum(kind == 'section' for kind, _ in self._parts)}", title=title)
        self.text(text)

    def heading(self, title: str) -> None:
        """Add a heading inside a section."""
        self._add("heading", title=title)

    def text(self, text: str, *, small: bool = False) -> None:
        """Add a paragraph; ``small`` is for notes."""
        if text:
            self._add("text", text=text, small=small)

    def notes(self, notes: Sequence[str]) -> None:
        """Add a box of warnings."""
        if notes:
            self._add("notes", notes=notes)

    def table(self, table: Table, *, folded: str = "") -> None:
        """Add a table that sorts by a click on a column head. With ``folded`` it is folded under that summary."""
        self._add("table", table=table, folded=folded)
        self.text(table.note, small=True)

    def figure(self, svg: Path, caption: str) -> None:
        """Add an SVG file; the page contains its bytes."""
        self._add("figure", data=base64.b64encode(svg.read_bytes()).decode(), caption=caption)

    def render(self) -> str:
        """Return the page."""
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
        return template.render(title=self.title, subtitle=self.subtitle, parts=self._parts)


def write_page(table: Table, path: Path, title: str) -> Path:
    """Write a page with one table; return its path."""
    page = Page(title, table.caption)
    page.table(table)
    write_text(path, page.render())
    return path
