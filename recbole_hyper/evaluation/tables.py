"""One table as text, csv, markdown, LaTeX and HTML: the best of a column in bold, deviations, marks and a note.

Every table that this package shows or saves is made here, so that a number is written in one way everywhere.
"""

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_hyper.files import printable, write_text

Rows = Sequence[Mapping[str, Any]]

# columns of long texts, which a page may break anywhere
LONG = {"settings", "curve", "reason", "protocol", "folder", "verdict", "note"}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$", "†": r"$\dagger$"}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
# where a page may break the head of a column: inside the name of a key, or a long one of a metric
_BREAK = r"(?<=_)|(?<=\w{9})(?=@)"


@dataclass(frozen=True)
class Cell:
    """A cell as text: its number or words, a deviation, a mark, whether it is the best of its column, the raw value."""

    text: str
    deviation: str = ""
    mark: str = ""
    best: bool = False
    raw: str = ""

    def shown(self, escape: Any = str, bold: str = "{}", raised: str = "{}", deviation: str = " ± {}") -> str:
        """Return the cell in a form, given by its words around the parts."""
        text = bold.format(escape(self.text)) if self.best else escape(self.text)
        text += raised.format(escape(self.mark)) if self.mark else ""
        return text + (deviation.format(self.deviation) if self.deviation else "")


@dataclass(frozen=True)
class Table:
    """Rows, and how they are shown. Columns ``x std`` and ``x mark`` hold the deviations and marks of column ``x``.

    Attributes:
        columns: the columns that are shown, in this order; csv has all.
        best, smaller: columns whose best value is bold, and those of them whose smallest value is the best.
        heads: names of columns, where they are not their keys.
        forms: format of a column, such as ",.0f"; else every number of a column has equally many digits.
        caption, note: above and below the table.
    """

    rows: Rows
    columns: Sequence[str]
    best: Sequence[str] = ()
    smaller: Sequence[str] = ()
    heads: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""
    note: str = ""

    @classmethod
    def of(cls, frame: pd.DataFrame, **more: Any) -> "Table":
        """Return the table of a frame, without its deviations and marks as columns, and without what is all missing."""
        shown = [str(name) for name in frame if any(not is_missing(value) and value != "" for value in frame[name])]
        columns = [
            name for name in shown if not (name.endswith((" std", " mark")) and name.rpartition(" ")[0] in shown)
        ]
        # a column of pandas keeps its whole numbers, a row of pandas does not
        lists = {str(name): [None if is_missing(v) else v for v in frame[name].tolist()] for name in frame}
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        return cls(rows, columns, **more)

    @property
    def _heads(self) -> list[str]:
        return [self.heads.get(column, column) for column in self.columns]

    def is_number(self, column: str) -> bool:
        """Return whether a column has no text."""
        return all(_is_number(row.get(column)) or is_missing(row.get(column)) for row in self.rows)

    def cells(self) -> Iterator[tuple[Cell, ...]]:
        """Yield the cells of each row."""
        return zip(*map(self._column, self.columns), strict=True)

    def _column(self, column: str) -> list[Cell]:
        values = [row.get(column) for row in self.rows]
        texts = number_texts(values, self.forms.get(column, ""))
        top: Any = None
        if column in self.best and self.is_number(column):
            known: set[Any] = {value for value in values if not is_missing(value)}
            top = (min if column in self.smaller else max)(known) if len(known) > 1 else None
        cells = []
        for row, value, text in zip(self.rows, values, texts, strict=True):
            spread, missing = row.get(f"{column} std"), is_missing(value)
            digits = len(text.rpartition(".")[2]) if "." in text else 0
            deviation = "" if missing or is_missing(spread) else f"{spread:,.{digits}f}"
            mark = "" if missing else str(row.get(f"{column} mark") or "")
            cells.append(Cell(text, deviation, mark, not missing and value == top, "" if missing else str(value)))
        return cells

    def text(self) -> str:
        """Return plain text, numbers right."""
        joined = [[cell.shown() for cell in row] for row in self.cells()]
        widths = [max(map(len, entries)) for entries in zip(self._heads, *joined, strict=True)]
        right = [self.is_number(column) for column in self.columns]

        def line(entries: Sequence[str]) -> str:
            parts = [e.rjust(w) if r else e.ljust(w) for e, w, r in zip(entries, widths, right, strict=True)]
            return "  ".join(parts).rstrip()

        return "\n".join([line(self._heads), line(["-" * width for width in widths]), *map(line, joined)])

    def csv(self) -> str:
        """Return all columns, with all digits, as csv."""
        names = dict.fromkeys([*self.columns, *(name for row in self.rows for name in row)])
        return pd.DataFrame(list(self.rows), columns=list(names), dtype=object).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """Return a table of markdown, between caption and note."""
        right = ["---:" if self.is_number(column) else "---" for column in self.columns]
        lines = [[markdown_text(head) for head in self._heads], right]
        for row in self.cells():
            lines.append([cell.shown(markdown_text, "**{}**") for cell in row])
        shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [self.caption, shown, self.note])) + "\n"

    def latex(self) -> str:
        """Return a table environment for the package booktabs."""
        form = r"\textbf{{{}}}", r"\textsuperscript{{{}}}", r" $\pm$ {}"
        rows = [[cell.shown(latex_text, *form) for cell in row] for row in self.cells()]
        body = pd.DataFrame(rows, columns=[latex_text(head) for head in self._heads]).to_latex(
            index=False, column_format="".join("r" if self.is_number(column) else "l" for column in self.columns)
        )
        caption = f"\\caption{{{latex_text(self.caption)}}}\n" if self.caption else ""
        note = f"\\par\\smallskip\\footnotesize {latex_text(self.note)}\n" if self.note else ""
        return f"% \\usepackage{{booktabs}}\n\\begin{{table}}[t]\n\\centering\n{caption}{body}{note}\\end{{table}}\n"

    def html(self) -> str:
        """Return an HTML table; the raw value of each cell is in ``data-value``, for sorting."""
        kinds = ["number" if self.is_number(c) else "long" if c in LONG else "" for c in self.columns]
        texts = [re.sub(_BREAK, "<wbr>", html.escape(head)) for head in self._heads]
        marks = [_classes(kind if kind == "number" else "") for kind in kinds]
        head = "".join(f"<th{mark}>{text}</th>" for mark, text in zip(marks, texts, strict=True))
        body = ""
        for row in self.cells():
            body += "<tr>"
            for kind, cell in zip(kinds, row, strict=True):
                label = _classes(kind, "best" if cell.best else "")
                text = cell.shown(html.escape, "{}", "<sup>{}</sup>", '<span class="deviation">± {}</span>')
                body += f'<td{label} data-value="{html.escape(cell.raw)}">{text}</td>'
            body += "</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write csv, markdown and LaTeX; return their paths."""
        texts = {"csv": self.csv(), "md": self.markdown(), "tex": self.latex()}
        for ending, content in texts.items():
            write_text(folder / f"{name}.{ending}", content)
        return [folder / f"{name}.{ending}" for ending in texts]


def table(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """Return rows as plain text; every number has its own digits, for columns of unlike values."""
    columns = list(columns or rows[0])
    return printable(Table(rows, columns, forms=dict.fromkeys(columns, "own")).text())


def frame_table(frame: pd.DataFrame) -> str:
    """Return a frame as plain text, without its index."""
    columns = [str(name) for name in frame.columns]
    return table([dict(zip(columns, row, strict=True)) for row in frame.itertuples(index=False)], columns)


def is_metric(column: str) -> bool:
    """Return whether a column of a table is a metric: "ndcg@10", or "gauc", the one without a cut-off."""
    return ("@" in column and " " not in column) or column == "gauc"


def number_texts(values: Sequence[Any], form: str = "") -> list[str]:
    """Return the values of a column as a reader wants them, by ``form`` or with as many digits as tell most apart.

    A number that these digits would make 0 or round by much, such as a rate of 1e-5 beside one of 1e-3, has its own.
    The form "p" is that of p-values; "own" gives each number four digits, or one from 100 on.
    """
    if form == "own":
        return [_own_digits(value) for value in values]
    if form == "p":
        return ["" if is_missing(v) else "< 0.0001" if v < 1e-4 else f"{v:.4f}" for v in values]
    if form:
        return ["" if is_missing(value) else format(value, form) for value in values]
    numbers = [float(value) for value in values if _is_number(value) and not is_missing(value)]
    floats = any(isinstance(value, float | np.floating) and not is_missing(value) for value in values)
    if not floats or not numbers or any(abs(n) == math.inf for n in numbers):
        return [f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else cell(v) for v in values]
    largest = max(map(abs, numbers))
    digits = 0 if all(number == int(number) for number in numbers) else 4 if largest < 10 else 1
    if digits and largest < 0.001:
        return [cell(value) for value in values]

    def text(value: Any) -> str:
        if not _is_number(value) or is_missing(value):
            return cell(value)
        number = float(value)
        if digits == 1 and 0 < number < 0.05:
            return "<0.1"
        return cell(number) if digits == 4 and 0 < abs(number) < 0.001 else f"{number:,.{digits}f}"

    return [text(value) for value in values]


def cell(value: Any) -> str:
    """Return a value by itself: four digits, thousands apart, a dash where there is none."""
    if is_missing(value):
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        number = float(value)
        if number == int(number) and abs(number) >= 100:
            return f"{int(number):,}"
        small = f"{number:.4f}" if abs(number) >= 0.001 else f"{number:.3g}"
        return small if abs(number) < 10 else f"{number:,.1f}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def is_missing(value: Any) -> bool:
    """Whether a value is None or NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def markdown_text(text: str) -> str:
    """Return a text that markdown shows as it is: no HTML, no column, no link, no code, on one line."""
    shown = re.sub(r"[\\`|*\[\]]", r"\\\g<0>", html.escape(text, quote=False))
    return " ".join(shown.split("\n")).replace("\r", " ")


def latex_text(text: str) -> str:
    """Return a text that LaTeX prints as it is, on one line."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _classes(*names: str) -> str:
    return f' class="{" ".join(filter(None, names))}"' if any(names) else ""


def _own_digits(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4f}" if abs(float(value)) < 100 else f"{value:.1f}"
    return "-" if value is None else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
