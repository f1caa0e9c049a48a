"""Write the tables of docs/models/*.md, below `## Figures`, and of docs/curvature.md: python results/model_pages.py.

Each figure comes from a result file. In docs/curvature.md a table follows a line `<!-- table NAME -->`.
"""

import functools
import itertools
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from recbole_hyper.evaluation.pairs import holm
from recbole_hyper.evaluation.tables import Table

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from claims import group_of, welch  # noqa: E402
from claims import published as strongest  # noqa: E402
from pages import pages, runs_of  # noqa: E402
from table import SHOWN, figure_text, short, signed  # noqa: E402

DOCS = HERE.parent / "docs" / "models"
CURVATURE = DOCS.parent / "curvature.md"
AFTER_NAME = re.compile(r"(<!-- table ([\w-]+) -->\n\n)\|.*?\n(?=\n|$)", flags=re.DOTALL)
TABLE = re.compile(r"(?<=## Figures\n\n)\|.*?\n(?=\n|$)", flags=re.DOTALL)


def rows_of(group: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of one entry of model_pages.yaml."""
    metric = group.get("metric", "ndcg@10")
    shared = {"data": f"{group['data']}, {SHOWN[metric]}"}
    if "published" in group:
        ((dataset, names),) = group["published"].items()
        known = {row["model"]: row for row in strongest(dataset)}
        return [{**shared, "model": name, "published": short(known[name][metric]), "ours": "not run"} for name in names]
    tables = {table.get("short", table["title"]): table for table in pages()[group["page"]]["tables"]}
    rows = {row["row"]: row for row in tables[group["table"]]["rows"]}
    names = group["rows"] if isinstance(group["rows"], dict) else {name: name for name in group["rows"]}
    shown = []
    for name, row in names.items():
        figures = rows[row].get("published", {})
        text = short(figures[metric]) if metric in figures else ""
        if "best" in group:
            best = strongest(group["best"])[0]
            text = f"{short(best[metric])} ({best['model']})"
        shown.append({**shared, "model": name, "published": text, "ours": figure_text(runs_of(rows[row]), metric)})
    return shown


def text_of(page: str) -> str:
    """Return a page with its table as the result files have it."""
    groups = yaml.safe_load((HERE / "model_pages.yaml").read_text())[page]
    rows = [row for group in groups for row in rows_of(group)]
    table = Table(rows, ["data", "model", "published", "ours"]).markdown().strip() + "\n"
    return TABLE.sub(lambda _: table, (DOCS / f"{page}.md").read_text(), count=1)


def seeds_text(values: list[float]) -> str:
    """Return the mean over the seeds with its deviation; with fewer than three seeds, their number in brackets."""
    if not values:
        return ""
    mean = short(statistics.fmean(values))
    return f"{mean} ± {short(statistics.stdev(values))}" if len(values) > 2 else f"{mean} ({len(values)})"


def head_values(table: dict[str, Any], head: str, width: int) -> list[float]:
    """Return the test NDCG@10 of all seeds of a head at a width."""
    if "data" in table:
        found = study_values("curvature_control.csv", "ndcg@10")
        return found.get((table["heads"][head], table["data"], width), [])
    return [run["test ndcg@10"] for run in group_of(table["runs"][head].format(d=width))]


@functools.cache
def study_values(file: str, column: str) -> dict[tuple[str, str, int], list[float]]:
    """Return a column of a study for all seeds, by head, data set and width."""
    groups = pd.read_csv(HERE / file).groupby(["head", "data", "d"])[column]
    return {key: values.tolist() for key, values in groups}


def tuned_rows(table: dict[str, Any]) -> list[dict[str, str]]:
    """Return a row for each head of a study, with the means over the seeds."""
    values = study_values(table["study"], table["column"])
    return [
        {"head": head} | {text: seeds_text(values[key, *cell]) for text, cell in table["cells"].items()}
        for head, key in table["heads"].items()
    ]


def leads(table: dict[str, Any]) -> list[dict[str, str]]:
    """Return by how much the head ``of`` is ahead of the others: 95 % intervals, a star if Holm's p is below .05."""
    values = study_values(table["study"], table["column"])
    pairs = list(itertools.product(table["heads"].items(), table["cells"].items()))
    tests = [welch(values[table["of"], *cell], values[key, *cell]) for (_, key), (_, cell) in pairs]
    rows = {head: {"head": head} for head in table["heads"]}
    for ((head, _), (text, _)), test, adjusted in zip(pairs, tests, holm([test["p"] for test in tests]), strict=True):
        rows[head][text] = f"{signed(test['difference'])} ({test['interval']}){'*' if adjusted < 0.05 else ''}"
    return list(rows.values())


def curvature_text() -> str:
    """Return docs/curvature.md with its tables as the result files have them."""
    tables = yaml.safe_load((HERE / "curvature.yaml").read_text())

    def written(name: str) -> str:
        table = tables[name]
        if "of" in table:
            rows = leads(table)
        elif "study" in table:
            rows = tuned_rows(table)
        else:
            rows = [
                {"head": head} | {f"d {d}": seeds_text(head_values(table, head, d)) for d in table["widths"]}
                for head in table.get("heads", table.get("runs"))
            ]
        return Table(rows, list(rows[0])).markdown().strip() + "\n"

    return AFTER_NAME.sub(lambda found: found[1] + written(found[2]), CURVATURE.read_text(encoding="utf-8"))


def main() -> None:
    """Write the tables."""
    CURVATURE.write_text(curvature_text(), encoding="utf-8")
    for page in yaml.safe_load((HERE / "model_pages.yaml").read_text()):
        (DOCS / f"{page}.md").write_text(text_of(page))


if __name__ == "__main__":
    main()
