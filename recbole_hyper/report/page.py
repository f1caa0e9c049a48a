"""From tables and figures to one HTML page, csv and markdown."""

import base64
import html
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from recbole_hyper.evaluation.results import markdown_table, markdown_text

# head and frame of every page
FRAME = Path(__file__).with_name("page.html")
LONG_COLUMNS = {"settings", "curve", "reason", "protocol", "folder", "verdict", "note"}


class Page:
    """A page that is filled section by section and then rendered; text is escaped, nothing is fetched."""

    def __init__(self, title: str, subtitle: str) -> None:
        self.title, self.subtitle = title, subtitle
        self._parts: list[str] = []
        self._sections: list[tuple[str, str]] = []

    def section(self, title: str, text: str = "") -> None:
        """Begin a section."""
        name = f"s{len(self._sections)}"
        self._sections.append((name, title))
        self._parts.append(f'<h2 id="{name}">{html.escape(title)}</h2>')
        self.text(text)

    def heading(self, title: str) -> None:
        """Add a heading inside a section."""
        self._parts.append(f"<h3>{html.escape(title)}</h3>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        if text:
            self._parts.append(f"<p>{html.escape(text)}</p>")

    def small(self, text: str) -> None:
        """Add a paragraph of lesser weight, such as what stands below a table."""
        if text:
            self._parts.append(f'<p class="soft small">{html.escape(text)}</p>')

    def notes(self, notes: Sequence[str]) -> None:
        """Add a box of warnings."""
        if notes:
            items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
            self._parts.append(f'<div class="notes"><ul>{items}</ul></div>')

    def table(
        self, frame: pd.DataFrame, *, best: Sequence[str] = (), folded: str = "", smaller: Sequence[str] = ()
    ) -> None:
        """Add a table that sorts by a click on a column's head; ``folded`` is the summary that it is folded away under.

        The largest value of the columns ``best`` and the smallest of the columns ``smaller`` are set bold.
        """
        content = f'<div class="wide">{table_html(frame, best=best, smaller=smaller)}</div>'
        if folded:
            content = f"<details><summary>{html.escape(folded)}</summary>{content}</details>"
        self._parts.append(content)

    def figure(self, path: Path, caption: str) -> None:
        """Add an image file, with its bytes inside the page."""
        kind = "svg+xml" if path.suffix == ".svg" else "png"
        data = base64.b64encode(path.read_bytes()).decode()
        text = html.escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/{kind};base64,{data}"><figcaption>{text}</figcaption></figure>'
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


def table_html(frame: pd.DataFrame, *, best: Sequence[str] = (), smaller: Sequence[str] = ()) -> str:
    """Return rows as an HTML table; numbers right, missing values as a dash, columns that are all missing left out.

    The numbers of a column have equally many digits behind the point. A column "x std" stands behind the numbers of
    "x", as a deviation.
    """
    frame = frame.dropna(axis="columns", how="all")
    numeric = {name: pd.api.types.is_numeric_dtype(frame[name]) and frame[name].dtype != bool for name in frame}
    told_apart = {name for name in frame if frame[name].map(str).nunique() > 1}
    tops = {name: frame[name].max() for name in best if numeric.get(name) and name in told_apart}
    tops |= {name: frame[name].min() for name in smaller if numeric.get(name) and name in told_apart}
    deviations = {name: f"{name} std" for name in frame if f"{name} std" in frame}
    shown = [name for name in frame if name not in deviations.values()]
    texts = {name: column_texts(frame[name]) for name in shown}
    head = "".join(
        f'<th class="number">{_breakable(str(name))}</th>' if numeric[name] else f"<th>{_breakable(str(name))}</th>"
        for name in shown
    )
    lines = []
    for number, row in enumerate(frame.to_dict("records")):
        cells = []
        for name in shown:
            value, text = row[name], texts[name][number]
            classes = ["number"] if numeric[name] else ["long"] if name in LONG_COLUMNS else []
            if name in tops and value == tops[name]:
                classes.append("best")
            content = html.escape(text)
            if name in deviations and not is_missing(row[deviations[name]]):
                digits = len(text.partition(".")[2])
                content += f'<span class="deviation">\u00b1 {row[deviations[name]]:,.{digits}f}</span>'
            raw = "" if is_missing(value) else str(value)
            label = f' class="{" ".join(classes)}"' if classes else ""
            cells.append(f'<td{label} data-value="{html.escape(raw)}">{content}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def column_texts(column: pd.Series) -> list[str]:
    """Return the values of a column as a reader wants them; numbers with as many digits as tell most of them apart.

    A number that these digits would make 0 or round by much, such as a rate of 1e-5 beside one of 1e-3, has its own.
    """
    values = column.tolist()
    numbers = [float(value) for value in values if isinstance(value, int | float) and not is_missing(value)]
    if not pd.api.types.is_float_dtype(column) or not numbers or any(abs(n) == math.inf for n in numbers):
        return [f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else cell(v) for v in values]
    largest = max(map(abs, numbers))
    if all(number == int(number) for number in numbers):
        digits = 0
    elif largest < 0.001:
        return [cell(value) for value in values]
    else:
        digits = 4 if largest < 10 else 1
    least = 10.0**-digits

    def text(value: float) -> str:
        if digits == 1 and 0 < value < least / 2:
            return f"<{least:g}"
        return cell(value) if is_missing(value) or (digits == 4 and 0 < abs(value) < 0.001) else f"{value:,.{digits}f}"

    return [text(value) for value in values]


def _breakable(text: str) -> str:
    """Return the head of a column as HTML, which may be broken inside the name of a key or a long one of a metric."""
    return re.sub(r"(?<=_)|(?<=\w{9})(?=@)", "<wbr>", html.escape(text))


def markdown(frame: pd.DataFrame) -> str:
    """Return rows as a markdown table."""
    frame = frame.dropna(axis="columns", how="all")
    columns = [[markdown_text(text) for text in column_texts(frame[name])] for name in frame]
    rows = zip(*columns, strict=True)
    right = {str(name) for name in frame if pd.api.types.is_numeric_dtype(frame[name])}
    return markdown_table([str(name) for name in frame], rows, right) + "\n"


def cell(value: Any) -> str:
    """Return a value as a reader wants it: four digits, thousands apart, a dash where there is none."""
    if is_missing(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value == int(value) and abs(value) >= 100:
            return f"{int(value):,}"
        return f"{value:.4f}" if 0.001 <= abs(value) < 10 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def is_missing(value: Any) -> bool:
    """Whether a value is None or NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
