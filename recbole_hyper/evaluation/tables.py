"""Tables as text, CSV, markdown, LaTeX and HTML, with bold best values, deviations, marks and a note.

Every table that the package shows or saves is made here, so numbers look the same everywhere.
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
from jinja2 import Environment

from recbole_hyper.files import printable, write_text

Rows = Sequence[Mapping[str, Any]]

_HTML = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
    """\
<table><thead><tr>
{%- for kind, parts in zip(kinds, heads) -%}
<th{% if kind == "number" %} class="number"{% endif %}>
{%- for part in parts %}{{ part }}{% if not loop.last %}<wbr>{% endif %}{% endfor -%}
</th>
{%- endfor -%}
</tr></thead><tbody>
{%- for row in rows -%}
<tr>
{%- for kind, cell in zip(kinds, row) -%}
{% set classes = (kind ~ (" best" if cell.best else "")) | trim -%}
<td{% if classes %} class="{{ classes }}"{% endif %} data-value="{{ cell.raw }}">{{ cell.text }}
{%- if cell.mark %}<sup>{{ cell.mark }}</sup>{% endif -%}
{%- if cell.deviation %}<span class="deviation">± {{ cell.deviation }}</span>{% endif -%}
</td>
{%- endfor -%}
</tr>
{%- endfor -%}
</tbody></table>""",
    globals={"zip": zip},
)

# columns of long text, which a page may break anywhere
LONG = {"settings", "reason", "protocol", "folder", "verdict", "note"}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$", "†": r"$\dagger$"}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
# where a page may break a column's head: in the name of a key, or before the cut-off of a long metric
_BREAK = r"(?<=_)|(?<=\w{9})(?=@)"


@dataclass(frozen=True)
class Cell:
    """A formatted cell: text, deviation, mark, whether it is the best of its column, and the raw value."""

    text: str
    deviation: str = ""
    mark: str = ""
    best: bool = False
    raw: str = ""

    def shown(self, escape: Any = str, bold: str = "{}", raised: str = "{}", deviation: str = " ± {}") -> str:
        """Return the cell as one text; each template is filled with one of its parts."""
        text = bold.format(escape(self.text)) if self.best else escape(self.text)
        text += raised.format(escape(self.mark)) if self.mark else ""
        return text + (deviation.format(self.deviation) if self.deviation else "")


@dataclass(frozen=True)
class Table:
    """Rows, and how to show them. Columns ``x std`` and ``x mark`` are the deviations and marks of column ``x``.

    Attributes:
        columns: columns to show, in this order; CSV has all of them.
        best, smaller: columns whose best value is bold; of these, the ones where smaller is better.
        heads: column heads that differ from the keys.
        forms: format of a column, such as ",.0f"; by default all numbers of a column have the same number of digits.
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
        filled = [str(name) for name in frame if any(not is_missing(value) and value != "" for value in frame[name])]
        columns = [
            name for name in filled if not (name.endswith((" std", " mark")) and name.rpartition(" ")[0] in filled)
        ]
        rows = [
            {str(name): None if is_missing(value) else value for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
        return cls(rows, columns, **more)

    @property
    def _heads(self) -> list[str]:
        return [self.heads.get(column, column) for column in self.columns]

    def is_number(self, column: str) -> bool:
        """Return whether a column has only numbers and missing values."""
        return all(_is_number(row.get(column)) or is_missing(row.get(column)) for row in self.rows)

    def cells(self) -> Iterator[tuple[Cell, ...]]:
        """Yield the cells of each row."""
        return zip(*map(self._column, self.columns), strict=True)

    def _column(self, column: str) -> list[Cell]:
        values = [row.get(column) for row in self.rows]
        texts = number_texts(values, self.forms.get(column, ""))
        best: Any = None
        if column in self.best and self.is_number(column):
            known: set[Any] = {value for value in values if not is_missing(value)}
            best = (min if column in self.smaller else max)(known) if len(known) > 1 else None
        cells = []
        for row, value, text in zip(self.rows, values, texts, strict=True):
            if is_missing(value):
                cells.append(Cell(text))
                continue
            spread, digits = row.get(f"{column} std"), len(text.rpartition(".")[2]) if "." in text else 0
            deviation = "" if is_missing(spread) else f"{spread:,.{digits}f}"
            cells.append(Cell(text, deviation, str(row.get(f"{column} mark") or ""), value == best, str(value)))
        return cells

    def text(self) -> str:
        """Return plain text with numbers aligned right."""
        joined = [[cell.shown() for cell in row] for row in self.cells()]
        widths = [max(map(len, entries)) for entries in zip(self._heads, *joined, strict=True)]
        right = [self.is_number(column) for column in self.columns]

        def line(entries: Sequence[str]) -> str:
            parts = [e.rjust(w) if r else e.ljust(w) for e, w, r in zip(entries, widths, right, strict=True)]
            return "  ".join(parts).rstrip()

        return "\n".join([line(self._heads), line(["-" * width for width in widths]), *map(line, joined)])

    def csv(self) -> str:
        """Return CSV with all columns and all digits."""
        names = dict.fromkeys([*self.columns, *(name for row in self.rows for name in row)])
        return pd.DataFrame(list(self.rows), columns=list(names), dtype=object).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """Return a markdown table between caption and note."""
        rules = ["---:" if self.is_number(column) else "---" for column in self.columns]
        lines = [[markdown_text(head) for head in self._heads], rules]
        lines += [[cell.shown(markdown_text, "**{}**") for cell in row] for row in self.cells()]
        shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [self.caption, shown, self.note])) + "\n"

    def latex(self) -> str:
        """Return a table environment for the package booktabs."""
        templates = r"\textbf{{{}}}", r"\textsuperscript{{{}}}", r" $\pm$ {}"
        rows = [[cell.shown(latex_text, *templates) for cell in row] for row in self.cells()]
        body = pd.DataFrame(rows, columns=[latex_text(head) for head in self._heads]).to_latex(
            index=False, column_format="".join("r" if self.is_number(column) else "l" for column in self.columns)
        )
        caption = f"\\caption{{{latex_text(self.caption)}}}\n" if self.caption else ""
        note = f"\\par\\smallskip\\footnotesize {latex_text(self.note)}\n" if self.note else ""
        return f"% \\usepackage{{booktabs}}\n\\begin{{table}}[t]\n\\centering\n{caption}{body}{note}\\end{{table}}\n"

    def html(self) -> str:
        """Return an HTML table; sorting reads the raw values in ``data-value``."""
        kinds = ["number" if self.is_number(c) else "long" if c in LONG else "" for c in self.columns]
        heads = [re.split(_BREAK, head) for head in self._heads]
        return _HTML.render(kinds=kinds, heads=heads, rows=list(self.cells()))

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write ``name`` as csv, md and tex into ``folder``; return the paths."""
        texts = {folder / f"{name}.csv": self.csv(), folder / f"{name}.md": self.markdown()}
        texts[folder / f"{name}.tex"] = self.latex()
        for path, content in texts.items():
            write_text(path, content)
        return list(texts)


def table(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """Return rows as plain text. Each number is formatted by itself, because the values of a column may differ much."""
    columns = list(columns or rows[0])
    return printable(Table(rows, columns, forms=dict.fromkeys(columns, "own")).text())


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


def heads_of(columns: Sequence[str]) -> dict[str, str]:
    """Return the column heads for readers: "NDCG@10" for "ndcg@10", "Training (s)" for "train_seconds"."""
    heads = {}
    for column in columns:
        name, at, cut = column.partition("@")
        heads[column] = HEADS.get(column) or METRIC_NAMES.get(name, name) + at + cut
    return heads


def is_metric(column: str) -> bool:
    """Return whether a column is a metric, such as "ndcg@10", or "gauc", the only one without a cut-off."""
    return ("@" in column and " " not in column) or column == "gauc"


def number_texts(values: Sequence[Any], form: str = "") -> list[str]:
    """Return the values of a column as text, by ``form`` or with the same number of digits.

    A number that would round to 0 or lose most of its digits, such as 1e-5 beside 1e-3, is formatted by itself.
    ``form`` is a format, "p" for p-values, or "own": each number with four digits, or with one from 100 on.
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
    """Return one value as text: four digits, thousands separated, a dash for a missing value."""
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


def _own_digits(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4f}" if abs(float(value)) < 100 else f"{value:.1f}"
    return "-" if value is None else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
