"""One table in five forms: each form says the same, and what has a meaning in a form is escaped there."""

import csv
import io
import re
from pathlib import Path

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.evaluation.tables import Table, latex_text, markdown_text, number_texts, table
from recbole_hyper.report.page import write_page

ROWS = [
    {"model": "A_1", "ndcg@10": 0.5, "ndcg@10 std": 0.0123456, "ndcg@10 mark": "", "seconds": 12.0},
    {"model": "B & C", "ndcg@10": 0.25, "ndcg@10 std": None, "ndcg@10 mark": "†", "seconds": 1.5},
    {"model": "failed", "ndcg@10": None},
]
BOTH = Table(ROWS, ["model", "ndcg@10", "seconds"], best=["ndcg@10", "seconds"], smaller=["seconds"], note="50 % of p")


def latex_cells(text: str) -> list[list[str]]:
    """A reader of tables of booktabs: the rules are there in order, every line has the declared columns."""
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        ("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table"),
    ]  # fmt: skip
    match = re.search(r"\\begin\{tabular\}\{([lrc]+)\}(.*)\\end\{tabular\}", text, flags=re.DOTALL)
    assert match
    kinds, body = match.groups()
    rules = [line for line in body.split("\n") if re.fullmatch(r"\\(toprule|midrule|bottomrule)", line)]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]
    cells = []
    for line in [line for line in body.strip().split("\n") if line not in rules]:
        assert line.endswith(r"\\")
        plain = line[:-2].replace(r"\textbackslash{}", "").replace(r"\textasciitilde{}", "")
        plain = plain.replace(r"\textasciicircum{}", "").replace("-{}-", "")
        assert not re.search(r"(?<!\\)[%#${}]", plain)
        cells.append([entry.strip() for entry in re.split(r"(?<!\\)&", line[:-2])])
    assert {len(line) for line in cells} == {len(kinds)}
    return cells


def test_the_forms_of_a_table() -> None:
    assert BOTH.markdown().splitlines()[2:5] == [
        "| A_1 | **0.5000 ± 0.0123** | 12.0 |",
        "| B &amp; C | 0.2500† | **1.5000** |",
        "| failed | - | - |",
    ]
    assert latex_cells(BOTH.latex()) == [
        ["model", "ndcg@10", "seconds"],
        [r"A\_1", r"\bfseries 0.5000 ± 0.0123", "12.0"],
        [r"B \& C", "0.2500†", r"\bfseries 1.5000"],
        ["failed", "-", "-"],
    ]
    assert r"50 \% of p" in BOTH.latex()
    assert BOTH.text().splitlines()[2].split() == ["A_1", "0.5000", "±", "0.0123", "12.0"]
    saved = list(csv.DictReader(io.StringIO(BOTH.csv())))
    assert (saved[0]["ndcg@10 std"], saved[2]["ndcg@10"]) == ("0.0123456", "")


def test_the_page_of_a_table(tmp_path: Path) -> None:
    text = write_page(BOTH, tmp_path / "table.html", "A title").read_text(encoding="utf-8")
    assert '<td class="number best" data-value="0.5">0.5000 ± 0.0123</td>' in text
    assert '<td class="number" data-value="0.25">0.2500†</td>' in text
    assert '<td class="" data-value="B &amp; C">B &amp; C</td>' in text
    assert '<td class="number" data-value="">-</td>' in text


# csv readers differ in what a bare carriage return means
ONE_LINE = st.text(st.characters(exclude_characters="\r"), max_size=12)


@settings(max_examples=30)
@given(st.lists(ONE_LINE, min_size=1, max_size=4), st.text(max_size=20))
def test_any_text_stays_in_its_cell(names: list[str], caption: str) -> None:
    shown = Table([{"model": name, "x": 0.5} for name in names], ["model", "x"], caption=caption, note=caption)
    assert len(latex_cells(shown.latex())) == len(names) + 1
    lines = [line for line in Table(shown.rows, shown.columns).markdown().split("\n") if line]
    assert len(lines) == len(names) + 2
    assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3 for line in lines)
    assert [row["model"] for row in csv.DictReader(io.StringIO(shown.csv(), newline=""))] == names


def test_nothing_is_the_best_where_all_are_equal() -> None:
    assert not any(c.best for row in Table([{"x": 0.5}, {"x": 0.5}], ["x"], best=["x"]).cells() for c in row)


def test_a_frame_as_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": [0.5, 0.25], "x std": [0.1, None], "x mark": ["", "†"], "n_layers": [1, None], "gone": [None, None]}
    )
    made = Table.of(frame, best=["x"])
    assert made.columns == ["x", "n_layers"]
    assert [[c.text for c in row] for row in made.cells()] == [["0.5000 ± 0.1000", "1"], ["0.2500†", "-"]]
    paths = made.save(tmp_path, "made")
    assert [path.name for path in paths] == ["made.csv", "made.md", "made.tex"]
    assert pd.read_csv(paths[0])["x"].tolist() == [0.5, 0.25]


def test_cells() -> None:
    assert number_texts([None, float("nan"), 0.12345, 1e-5, 0.0, 12.3456, 1500.0, 123456, True, "x"]) == [
        "-", "-", "0.1235", "1e-05", "0.0000", "12.3", "1,500.0", "123,456", "yes", "x",
    ]  # fmt: skip


def test_forms_of_columns() -> None:
    assert number_texts([1e-9, 0.02, None], "p") == ["< 0.0001", "0.0200", ""]
    assert number_texts([1234.5, None], ",.1f") == ["1,234.5", ""]


def test_plain_rows() -> None:
    assert table([{"a": 1, "b": "x"}, {"a": 22, "b": None}]).splitlines()[2:] == [" 1  x", "22  -"]


def test_what_means_something_elsewhere() -> None:
    assert markdown_text("a|b<i>\n") == "a\\|b&lt;i&gt; "
    assert latex_text("see --seeds") == "see -{}-seeds"
    assert latex_text("a_b^~\\{") == r"a\_b\textasciicircum{}\textasciitilde{}\textbackslash{}\{"
