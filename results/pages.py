"""The pages of results/: every figure is read from runs.csv or from the file of a benchmark.

    python results/pages.py             # writes a page for each file of results/pages/
    python results/pages.py PAGE ROW    # prints the command of a row

A file of results/pages/ has a title, a text and tables. A table names runs (rows of runs.csv, with what was published)
or one file of a benchmark. In a text, {RUN:test.ndcg@10} is that figure of a run.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "benchmarks")]
from peers.driver.tables import at_equal_seconds, markdown  # noqa: E402
from table import SHOWN, Run, command, figure_text, runs, seeds_of, short  # noqa: E402

from recbole_hyper.evaluation.tables import Table  # noqa: E402

PAGES = HERE / "pages"
ROW_KEYS = {"row", "run", "runs", "published"}
READING = """\
Test figures of runs.csv. Selection used validation only. One seed: in brackets the 95 % interval over users (BCa
bootstrap), where the run computed it. Several seeds: mean ± standard deviation. Epochs: the best one of those trained.
Minutes: training, with a refit, on one or two CPU cores, often beside other work. `python results/pages.py PAGE ROW`
prints the command of a row: PAGE is the name of this page, ROW the row's first cell."""
# a figure of a run in a text
FIGURE = re.compile(r"\{([^{}:]+):(valid|test)\.([^{}]+)\}")


def runs_of(row: dict[str, Any]) -> list[Run]:
    """Return the runs of a row: ``runs``, or ``run`` with all its seeds."""
    return [runs()[name] for name in row.get("runs") or seeds_of(row["run"])]


def filled(text: str) -> str:
    """Return a text with its figures, in lines that fit a screen."""
    found = FIGURE.sub(lambda figure: short(runs()[figure[1]][f"{figure[2]} {figure[3]}"]), text).strip()
    wrapped = (textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) for part in found.split("\n"))
    return "\n".join(wrapped)


def row_cells(row: dict[str, Any], metrics: list[str], compared: bool) -> dict[str, Any]:
    """Return the cells of a row of runs; with the published figures if the table has some."""
    group, published = runs_of(row), row.get("published", {})
    cells = {"row": row["row"]} | {SHOWN[metric]: figure_text(group, metric) for metric in metrics}
    if compared:
        known = [metric for metric in metrics if metric in published]
        cells["published"] = ", ".join(short(published[m]) if m in published else "-" for m in metrics) if known else ""
    else:
        cells["valid"] = figure_text(group, metrics[0], "valid")
    best, epochs = group[0]["best_epoch"], group[0]["epochs"]
    minutes = statistics.fmean(run["minutes"] for run in group if run["minutes"] is not None)
    return cells | {
        "seeds": str(len(group)),
        "epochs": f"{best + 1} of {epochs}" if best >= 0 else "-",
        "minutes": f"{minutes:.0f}",
    }


def runs_table(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table of runs."""
    for row in table["rows"]:
        if unknown := row.keys() - ROW_KEYS:
            # a title that holds commas reads as further keys where it is not quoted
            raise SystemExit(f"results/pages, row {row['row']!r}: unknown keys {sorted(unknown)}; quote it?")
    compared = any("published" in row for row in table["rows"])
    rows = [row_cells(row, table["metrics"], compared) for row in table["rows"]]
    return Table(rows, list(rows[0])).markdown().strip().splitlines()


def file_table(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table that shows a file: text as it is, csv and json as a table of ``columns``."""
    path = HERE / table["file"]
    if path.suffix == ".txt":
        return ["```text", path.read_text().rstrip(), "```"]
    if path.suffix == ".csv":
        frame = pd.read_csv(path)
    else:
        content = json.loads(path.read_text())
        for key in table.get("at", ()):
            content = content[key]
        if isinstance(content, dict):
            content = [
                {"": name, **(entry if isinstance(entry, dict) else {"value": entry})}
                for name, entry in content.items()
            ]
        frame = pd.DataFrame(content)
    if "pivot" in table:
        frame = frame.pivot(**table["pivot"]).reindex(frame[table["pivot"]["index"]].unique()).reset_index()
        frame.columns = [
            ", ".join(map(str, name)).strip(", ") if isinstance(name, tuple) else str(name) for name in frame
        ]
    columns = table.get("columns") or list(frame)
    forms = dict.fromkeys(columns[1:], ".2f")
    if "pivot" not in table:
        # seconds and milliseconds of one size; whole numbers and small ones as they are
        floats = frame[columns[1:]].select_dtypes("float").dropna(axis=1)
        forms = {name: ",.1f" for name in floats if floats[name].max() >= 10 and floats[name].min() > 0.05}
    return [Table.of(frame[columns], heads=table.get("heads", {}), forms=forms).markdown().strip()]


def peer_table(table: dict[str, Any]) -> list[str]:
    """Return the lines of a comparison with other packages, as its benchmark writes them."""
    content = json.loads((HERE / table["peers"]).read_text())
    peers = content["peers"]
    return [markdown(peers, content["quality"]), "", at_equal_seconds(peers)]


MAKERS = {"rows": runs_table, "peers": peer_table, "file": file_table}


def page_text(page: dict[str, Any]) -> str:
    """Return a page as markdown."""
    lines = [f"# {page['title']}", "", "<!-- written by results/pages.py -->", "", filled(page["about"])]
    lines += ["", READING] if any("rows" in table for table in page["tables"]) else []
    for table in page["tables"]:
        lines += ["", f"## {table['title']}", "", *([filled(table["about"]), ""] if "about" in table else [])]
        lines += next(make for key, make in MAKERS.items() if key in table)(table)
    return "\n".join(lines) + "\n"


@functools.cache
def pages() -> dict[str, dict[str, Any]]:
    """Return the content of every file of results/pages/, by name."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted(PAGES.glob("*.yaml"))}


def main(words: list[str]) -> None:
    """Write the pages, or print the command of a row."""
    found = pages()
    if words:
        page, name = words
        for table in found[page]["tables"]:
            for row in table.get("rows", ()):
                if row["row"] == name:
                    print(f"# {table['title']}", command(runs_of(row)[0]), sep="\n")
        return
    for page, content in found.items():
        (HERE / f"{page}.md").write_text(page_text(content))


if __name__ == "__main__":
    main(sys.argv[1:])
