"""One HTML page of tables and figures."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from string import Template

from recbole_hyper.evaluation.tables import Table
from recbole_hyper.files import write_text

# head and frame of every page
FRAME = Path(__file__).with_name("page.html")


class Page:
    """An HTML page: add sections, then render. Text is escaped, and the page loads nothing from elsewhere."""

    def __init__(self, title: str, subtitle: str) -> None:
        self.title, self.subtitle = title, subtitle
        self._parts: list[str] = []
        self._sections: list[tuple[str, str]] = []

    def section(self, title: str, text: str = "") -> None:
        """Start a section."""
        name = f"s{len(self._sections)}"
        self._sections.append((name, title))
        self._parts.append(f'<h2 id="{name}">{html.escape(title)}</h2>')
        self.text(text)

    def heading(self, title: str) -> None:
        """Add a heading inside a section."""
        self._parts.append(f"<h3>{html.escape(title)}</h3>")

    def text(self, text: str, *, small: bool = False) -> None:
        """Add a paragraph; ``small`` is for notes."""
        if text:
            kind = ' class="soft small"' if small else ""
            self._parts.append(f"<p{kind}>{html.escape(text)}</p>")

    def notes(self, notes: Sequence[str]) -> None:
        """Add a box of warnings."""
        if notes:
            items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
            self._parts.append(f'<div class="notes"><ul>{items}</ul></div>')

    def table(self, table: Table, *, folded: str = "") -> None:
        """Add a table that sorts by a click on a column head. With ``folded`` it is folded under that summary."""
        content = f'<div class="wide">{table.html()}</div>'
        if folded:
            content = f"<details><summary>{html.escape(folded)}</summary>{content}</details>"
        self._parts.append(content)
        self.text(table.note, small=True)

    def figure(self, svg: Path, caption: str) -> None:
        """Add an SVG file; the page contains its bytes."""
        data, text = base64.b64encode(svg.read_bytes()).decode(), html.escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{data}"><figcaption>{text}</figcaption></figure>'
        )

    def render(self) -> str:
        """Return the page."""
        navigation = "".join(f'<a href="#{name}">{html.escape(title)}</a>' for name, title in self._sections)
        return Template(FRAME.read_text(encoding="utf-8")).substitute(
            title=html.escape(self.title),
            subtitle=html.escape(self.subtitle),
            navigation=navigation,
            body="\n".join(self._parts),
        )


def write_page(table: Table, path: Path, title: str) -> Path:
    """Write a page with one table; return its path."""
    page = Page(title, table.caption)
    page.table(table)
    write_text(path, page.render())
    return path
