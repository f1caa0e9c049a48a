"""Write the tables of docs/models/*.md, below `## Figures`, from the result files: python results/model_pages.py."""

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.evaluation.tables import Table

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from claims import published as strongest  # noqa: E402
from pages import SHOWN, figure_text, pages, results_of, short  # noqa: E402

DOCS = HERE.parent / "docs" / "models"
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
        shown.append({**shared, "model": name, "published": text, "ours": figure_text(results_of(rows[row]), metric)})
    return shown


def text_of(page: str) -> str:
    """Return a page with its table as the result files have it."""
    groups = yaml.safe_load((HERE / "model_pages.yaml").read_text())[page]
    rows = [row for group in groups for row in rows_of(group)]
    table = Table(rows, ["data", "model", "published", "ours"]).markdown().strip() + "\n"
    return TABLE.sub(lambda _: table, (DOCS / f"{page}.md").read_text(), count=1)


def main() -> None:
    """Write the tables."""
    for page in yaml.safe_load((HERE / "model_pages.yaml").read_text()):
        (DOCS / f"{page}.md").write_text(text_of(page))


if __name__ == "__main__":
    main()
