"""Write claims.md (the default model beside published rows, differences between models) and README.

    python results/claims.py            # from runs.csv and readme_template.md
    python results/claims.py --first    # first run README's ten lines, and write what they print into first_run.txt

claims.yaml has the facts and the pairs of runs, published.yaml the published rows; every figure is computed here.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml
from scipy import stats

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from table import Run, figure_text, interval, mean, runs, seeds_of, short, signed  # noqa: E402

from recbole_hyper.evaluation.pairs import holm  # noqa: E402
from recbole_hyper.evaluation.tables import Table  # noqa: E402

README = HERE.parent / "README.md"
# the model that README recommends; its runs have it in their names
DEFAULT = "FMLPRecMemory"
TABLE = {
    "amazon-beauty-sequences": "Amazon Beauty",
    "amazon-sports-sequences": "Amazon Sports",
    "ml-1m": "MovieLens-1M",
}
APART = {
    "amazon-toys-sequences": "Amazon Toys",
    "lastfm-sequences": "LastFM",
    "foursquare-sequences": "Foursquare",
    "yelp-sequences": "Yelp",
}
# README's first run with all epochs
FIRST = "ml-100k_FMLPRecMemory_default"


@functools.cache
def facts() -> dict[str, Any]:
    """Return claims.yaml: sentences by name, and groups of differences."""
    return yaml.safe_load((HERE / "claims.yaml").read_text())


def group_of(name: str) -> list[Run]:
    """Return a run and its further seeds."""
    return [runs()[one] for one in seeds_of(name)]


def of_default(dataset: str) -> list[Run]:
    """Return the runs of the default model on a data set."""
    return group_of(f"{dataset}_{DEFAULT}_default")


def without_reranker(dataset: str) -> list[Run]:
    """Return the runs of the default model without its reranker."""
    return group_of(f"{dataset}_{DEFAULT}_without_reranker")


@functools.cache
def known_rows() -> dict[str, list[dict[str, Any]]]:
    """Return the published rows by data set."""
    return yaml.safe_load((HERE / "published.yaml").read_text())


def published(dataset: str, metric: str = "ndcg@10", *, marked: bool = False) -> list[dict[str, Any]]:
    """Return the published rows on the protocol of README's table, the best first; also those with a mark if wanted."""
    rows = known_rows()[dataset]
    return sorted((row for row in rows if marked or "apart" not in row), key=lambda row: -row[metric])


def ahead(dataset: str, metric: str = "ndcg@10") -> bool:
    """Return whether every seed of the default model is above the best published row."""
    return min(run[f"test {metric}"] for run in of_default(dataset)) > published(dataset, metric)[0][metric]


def difference(row: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return the difference of two groups of runs over their common seeds, and what can be said of it."""
    groups = [group_of(row[side]) for side in ("first", "second")]
    shared = {run["seed"] for run in groups[0]} & {run["seed"] for run in groups[1]}
    groups = [[run for run in group if run["seed"] in shared] for group in groups]
    keys = ("fingerprint", "protocol", "cases", "exclude_seen")
    splits = {str([run[key] for key in keys]) for group in groups for run in group}
    assert len(splits) == 1, f"{row['row']}: runs of {len(splits)} splits"
    first, second = ([run[f"test {metric}"] for run in group] for group in groups)
    found = {"row": row["row"], "seeds": min(len(first), len(second))}
    if found["seeds"] == 1:
        value = mean(groups[0], metric) - mean(groups[1], metric)
        return {**found, "difference": value, "interval": "one seed", "p": "", "Holm": ""}
    return found | welch(first, second)


def welch(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Return the difference of two means, its 95 % interval as text, and its p-value, by Welch's test."""
    value, low, high, p_value = welch_test(first, second)
    return {"difference": value, "interval": f"{signed(low)} to {signed(high)}", "p": p_value}


def welch_test(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the difference of two means, the ends of its 95 % interval and its p-value, by Welch's test."""
    test = stats.ttest_ind(first, second, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return sum(first) / len(first) - sum(second) / len(second), low, high, float(test.pvalue)


def shown(p_value: float) -> str:
    """Return a p-value with two digits."""
    return f"{p_value:.2f}" if p_value >= 0.01 else "< .01"


def claims() -> list[dict[str, Any]]:
    """Return the differences of claims.yaml, each with its group."""
    found = []
    for group in facts()["differences"]:
        found += [{"of": group["title"]} | difference(row, group["metric"]) for row in group["rows"]]
    tested = [row for row in found if row["seeds"] > 1]
    for row, adjusted in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row |= {"p": shown(row["p"]), "Holm": shown(adjusted)}
    return found


def result_rows(datasets: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows of the default model, without its reranker, and of what is published, on these data sets."""
    rows = []
    for dataset, title in datasets.items():
        for name, group in (("default *", of_default(dataset)), ("without reranker", without_reranker(dataset))):
            if not group:
                rows.append({"data": title, "row": name, "NDCG@10": "no run", "HR@10": "no run", "seeds": "-"})
                continue
            cells = {"data": title, "row": name, "seeds": str(len(group))}
            for metric, head in (("ndcg@10", "NDCG@10"), ("hit@10", "HR@10")):
                low, high = interval(group[0], metric) or (0.0, 0.0)
                lowest = min(run[f"test {metric}"] for run in group)
                cells[head] = f"{figure_text(group, metric)}, lowest {short(lowest)} ({short(low)}-{short(high)})"
            rows.append(cells)
        marked = [row for row in published(dataset, marked=True) if "apart" in row]
        for row in published(dataset)[:3] + marked[:1]:
            name = f"{row['model']}{' **' if 'apart' in row else ''} (published)"
            cells = {"data": title, "row": name, "seeds": str(row.get("seeds", 1))}
            rows.append(cells | {"NDCG@10": short(row["ndcg@10"]), "HR@10": short(row["hit@10"])})
    return rows


def claims_text() -> str:
    """Return claims.md."""
    texts = {name: text.strip() for name, text in facts()["texts"].items()}
    columns = ["data", "row", "seeds", "NDCG@10", "HR@10"]
    parts = ["# The default model, and differences between models", "", "<!-- written by results/claims.py -->"]
    parts += ["", Template(texts["protocol"]).substitute(default=DEFAULT), ""]
    parts += [Table(result_rows(TABLE | APART), columns).markdown().strip()]
    for name in ("published", "order", "rules"):
        parts += ["", texts[name]]
    parts += ["", "## Differences", "", texts["differences"], ""]
    columns = ["of", "row", "seeds", "difference", "interval", "p", "Holm"]
    parts += [Table(claims(), columns, forms={"difference": "+.4f"}).markdown().strip()]
    return "\n".join(parts) + "\n"


def readme() -> str:
    """Return README: readme_template.md with the default model, its scores and what the ten lines print."""

    scores = ", ".join(f"{short(mean(of_default(name), 'ndcg@10'))} on {title}" for name, title in TABLE.items())
    without = ", ".join(short(mean(without_reranker(name), "ndcg@10")) for name in TABLE)
    results = Template(facts()["readme"]).substitute(default=DEFAULT, scores=scores, without=without)
    values = {"default": DEFAULT, "results": textwrap.fill(results, 140, break_on_hyphens=False)}
    values["first_run"] = (HERE / "first_run.txt").read_text().strip()
    values["all_epochs"] = f"{runs()[FIRST]['test ndcg@10']:.3f}".removeprefix("0")
    return Template((HERE / "readme_template.md").read_text()).substitute(values)


def ten_lines() -> str:
    """Return README's Python."""
    (block,) = re.findall(r"```python\n(.*?)```", (HERE / "readme_template.md").read_text(), flags=re.DOTALL)
    return Template(block).substitute(default=DEFAULT)


def main() -> None:
    """Write claims.md and README."""
    if "--first" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", ten_lines()], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )
        # after the table of metrics, which ends with the name of its file
        (HERE / "first_run.txt").write_text(done.stdout.split("result.json\n")[-1])
    (HERE / "claims.md").write_text(claims_text())
    README.write_text(readme())


if __name__ == "__main__":
    main()
