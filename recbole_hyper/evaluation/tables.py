"""Tables as text, CSV, markdown and LaTeX, with bold best values, deviations, marks and a note.

Every table that the package shows or saves is made here, so numbers look the same everywhere.
"""

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from recbole_hyper.files import printable, write_text

Rows = Sequence[Mapping[str, Any]]

# columns of long text, which a page may break anywhere
LONG = {"settings", "reason", "protocol", "folder", "verdict", "note"}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


class Cell(NamedTuple):
    """A formatted cell with deviation and mark, the kind of its column, whether it is the best there, and its value."""

    text: str
    kind: str
    best: bool
    value: Any


@dataclass(frozen=True)
class Table:
    """Rows, and how to show them. Columns ``x std`` and ``x mark`` are the deviations and marks of column ``x``.

    Attributes:
        columns: columns to show, in this order; CSV has all of them.
        best, smaller: columns whose best value is bold; of these, the ones where smaller is better.
        heads: column heads that differ from the keys.
        forms: format of a column, such as ",.0f"; by default each number is formatted by itself, see :func:`cell`.
        caption, note: text above and below the table.
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
        """Return the table of a frame. Empty columns are not shown; deviations and marks join their column."""
        frame = frame.convert_dtypes()  # numbers beside gaps stay whole
        filled = [str(name) for name in frame if any(not is_missing(value) and value != "" for value in frame[name])]
        columns = [
            name for name in filled if not (name.endswith((" std", " mark")) and name.rpartition(" ")[0] in filled)
        ]
        rows = [
            {str(name): None if is_missing(value) else value for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
        return cls(rows, columns, **more)

    def head(self, column: str) -> str:
        """Return the head of a column."""
        return self.heads.get(column, column)

    def kind(self, column: str) -> str:
        """Return "number" for a column of numbers and missing values, "long" for one of long texts, else ""."""
        if all(_is_number(row.get(column)) or is_missing(row.get(column)) for row in self.rows):
            return "number"
        return "long" if column in LONG else ""

    def cells(self) -> Iterator[tuple[Cell, ...]]:
        """Yield the cells of each row."""
        return zip(*map(self._column, self.columns), strict=True)

    def _column(self, column: str) -> list[Cell]:
        values, kind = [row.get(column) for row in self.rows], self.kind(column)
        texts = number_texts(values, self.forms.get(column, ""))
        known: set[Any] = {value for value in values if not is_missing(value)} if column in self.best else set()
        best = (min if column in self.smaller else max)(known) if len(known) > 1 else None
        cells = []
        for row, value, text in zip(self.rows, values, texts, strict=True):
            digits = len(text.rpartition(".")[2]) if "." in text else 0
            mark, spread = row.get(f"{column} mark") or "", row.get(f"{column} std")
            text += mark + ("" if is_missing(spread) else f" ± {spread:,.{digits}f}")
            cells.append(Cell(text, kind, best is not None and value == best, None if is_missing(value) else value))
        return cells

    def text(self) -> str:
        """Return plain text with numbers aligned right."""
        lines = [[self.head(column) for column in self.columns], *([cell.text for cell in row] for row in self.cells())]
        widths = [max(map(len, entries)) for entries in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        sides = [">" if self.kind(column) == "number" else "<" for column in self.columns]
        formats = [f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)]
        return "\n".join("  ".join(formats).format(*line).rstrip() for line in lines)

    def csv(self) -> str:
        """Return CSV with all columns and all digits."""
        names = dict.fromkeys([*self.columns, *(name for row in self.rows for name in row)])
        return pd.DataFrame(list(self.rows), columns=list(names), dtype=object).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """Return a markdown table between caption and note."""
        rules = ["---:" if self.kind(column) == "number" else "---" for column in self.columns]
        lines = [[markdown_text(self.head(column)) for column in self.columns], rules]
        for row in self.cells():
            lines.append([f"**{markdown_text(c.text)}**" if c.best else markdown_text(c.text) for c in row])
        shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [self.caption, shown, self.note])) + "\n"

    def latex(self) -> str:
        """Return a table environment for the package booktabs, with caption and note as its caption."""
        rows = list(self.cells())
        heads = [latex_text(self.head(column)) for column in self.columns]
        texts = pd.DataFrame([[latex_text(cell.text) for cell in row] for row in rows], columns=heads)
        bold = pd.DataFrame([["font-weight: bold" if cell.best else "" for cell in row] for row in rows], columns=heads)
        sides = "".join("r" if self.kind(column) == "number" else "l" for column in self.columns)
        styled = texts.style.hide(axis="index").apply(lambda _: bold, axis=None)
        return str(
            styled.to_latex(
                hrules=True, convert_css=True, column_format=sides, position="t", position_float="centering",
                caption=latex_text(f"{self.caption} {self.note}") or None,
            )
        )  # fmt: skip

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write ``name`` as csv, md and tex into ``folder``; return the paths."""
        texts = {folder / f"{name}.csv": self.csv(), folder / f"{name}.md": self.markdown()}
        texts[folder / f"{name}.tex"] = self.latex()
        for path, content in texts.items():
            write_text(path, content)
        return list(texts)


def table(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """Return rows as plain text."""
    return printable(Table(rows, list(columns or rows[0])).text())


def frame_table(frame: pd.DataFrame) -> str:
    """Return a frame as plain text, without its index."""
    rows: Any = frame.to_dict("records")
    return table(rows, list(map(str, frame)))


# metrics by the names of RecBole, and other columns in words
_METRICS = (
    "NDCG Hit MRR MAP Recall Precision GAUC AUC ItemCoverage AveragePopularity GiniIndex ShannonEntropy TailPercentage "
    "Novelty IntraListDiversity PopularityMiscalibration"
)
METRIC_NAMES = {name.lower(): name for name in _METRICS.split()}
HEADS = {
    "model": "Model",
    "seeds": "Seeds",
    "metric": "Metric",
    "valid": "Validation",
    "test": "Test",
    "train_seconds": "Training (s)",
    "total_seconds": "Total (s)",
    "peak_memory_mib": "Peak memory (MiB)",
    "parameters": "Parameters",
    "difference": "Difference",
    "low": "from",
    "high": "to",
    "p_value": "p",
    "over": "p covers",
    "note": "Note",
    "first": "First",
    "second": "Second",
}


def head_of(column: str) -> str:
    """Return a column's head for readers: "NDCG@10" for "ndcg@10", "Training (s)" for "train_seconds"."""
    name, at, cut = column.partition("@")
    return HEADS.get(column) or METRIC_NAMES.get(name, name) + at + cut


def is_metric(column: str) -> bool:
    """Return whether a column is a metric, such as "ndcg@10", or "gauc", the only one without a cut-off."""
    return ("@" in column and " " not in column) or column == "gauc"


def number_texts(values: Sequence[Any], form: str = "") -> list[str]:
    """Return values as text, by a ``form`` such as ",.1f", or "p" for p-values, else by :func:`cell`."""
    if form == "p":
        return ["" if is_missing(p) else "< 0.0001" if p < 1e-4 else f"{p:.4f}" for p in values]
    return ["" if is_missing(value) else format(value, form) for value in values] if form else [*map(cell, values)]


def cell(value: Any) -> str:
    """Return one value as text: four digits below 10, one above, thousands separated, a dash for a missing value.

    A number that these digits would make 0, such as 1e-5, has three significant ones.
    """
    if is_missing(value):
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if not isinstance(value, float | np.floating):
        return f"{value:,}" if _is_number(value) else str(value)
    text = f"{value:,.{4 if abs(float(value)) < 10 else 1}f}"
    return text if value == 0 or text.strip("-0.") else f"{value:.3g}"


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or pandas' NA."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def markdown_text(text: str) -> str:
    """Return ``text`` on one line, escaped so that markdown shows it literally."""
    shown = re.sub(r"[\\`|*\[\]]", r"\\\g<0>", html.escape(text, quote=False))
    return re.sub("[\r\n]", " ", shown)


def latex_text(text: str) -> str:
    """Return ``text`` on one line, escaped so that LaTeX prints it literally."""
    # two hyphens would become a dash
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split())).replace("--", "-{}-")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
