"""The published cells beside ours: results/cells.yaml names the runs, their result files give every figure.

    python results/cells.py       # writes results/cells.md and results/cells.png

The command of a row is what its configuration has beside the defaults of the model and the protocol, so that a row
cannot name another command than the one that it ran.
"""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import yaml
from scipy.stats import binomtest

from recbole_hyper.config import Config
from recbole_hyper.config.binding import config_files
from recbole_hyper.config.parts import PARTS
from recbole_hyper.report.differences import canonical, read_settings
from recbole_hyper.yaml_files import read_yaml

HERE = Path(__file__).parent
# Okabe and Ito: told apart by colour-blind readers
REACHED, BELOW = "#0072B2", "#D55E00"
ROW_KEYS = {"row", "label", "runs", "published", "verdict"}
FILES = {"global timepoint": "global_timepoint", "temporal users": "temporal_users"}
SHOWN = {"ndcg@5": "NDCG@5", "hit@5": "HR@5", "ndcg@10": "NDCG@10", "hit@10": "HR@10"}
SHOWN |= {"mrr@100": "MRR", "itemcoverage@10": "COV@10"}


def command(result: dict[str, Any]) -> str:
    """Return what trains such a run: the keys that are not the defaults."""
    model, dataset, asked = result["model"], result["dataset"], result["config"]
    protocol = FILES.get(result["protocol"], "")
    default = Config(model, dataset, config_files(protocol), {"interactions": "given"})
    parts = {key: asked[key] for key in PARTS if key in asked and key in default}
    # options of a part have their defaults beside it
    usual = read_settings(
        model, Config(model, dataset, config_files(protocol), {"interactions": "given", **parts}).plain()
    )
    usual |= {key: default[key] for key in parts}
    differing = {
        key: value
        for key, value in read_settings(model, asked).items()
        if key in usual and canonical(usual[key]) != canonical(value) and key not in ("interactions", "load_col")
    }
    if "curvature_interval" in result:
        differing["curvature"] = "auto"
    measured = {key: asked[key] for key in ("seed", "metrics", "topk", "valid_metric") if asked[key] != default[key]}
    words = [f"--model={model}", f"--dataset={dataset}", *([f"--config_files={protocol}"] if protocol else [])]
    for key, value in (measured | differing).items():
        text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip().removesuffix("\n...")
        words.append(f'"--{key}={text}"' if " " in text else f"--{key}={text}")
    return "recbole-hyper run " + " ".join(words)


def interval(results: list[dict[str, Any]], metric: str) -> tuple[float, float] | None:
    """Return the interval of a test metric of a run; None where it kept none, or where there are several seeds."""
    return results[0].get("test_intervals", {}).get(metric) if len(results) == 1 else None


def figure_text(results: list[dict[str, Any]], metric: str) -> str:
    """Return the mean of a test metric, with its interval (one seed) or deviation (several)."""
    values = [result["test"][metric] for result in results if metric in result["test"]]
    if not values:
        return "-"
    text = _short(statistics.fmean(values))
    if len(values) > 1:
        return f"{text} ± {_short(statistics.stdev(values))}"
    bounds = interval(results, metric)
    return f"{text} ({_short(bounds[0])}-{_short(bounds[1])})" if bounds else text


def _short(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")


def row_text(row: dict[str, Any], metrics: list[str]) -> str:
    """Return the line of the table of a row of cells.yaml."""
    results, published = row["results"], row.get("published", {})
    first = results[0]
    epochs = f"{first['best_epoch'] + 1} of {first['epochs']}"
    minutes = statistics.fmean(result["seconds"]["train"] for result in results) / 60
    cells = [row["row"], *(figure_text(results, metric) for metric in metrics)]
    cells += [", ".join(_short(published[metric]) if metric in published else "-" for metric in metrics)]
    cells += [str(len(results)), epochs, f"{minutes:.0f}", row["verdict"], f"`{command(first)}`"]
    return "| " + " | ".join(cells) + " |"


def prefix_lines() -> list[str]:
    """Return the lines of the table of the noisy-prefix runs, from prefix_table.csv."""
    lines = []
    defaults = read_yaml(HERE.parent / "examples" / "noisy_prefix" / "settings.yaml")
    with (HERE / "prefix_table.csv").open() as file:
        runs = list(csv.DictReader(file))
    of_setting: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for run in runs:
        setting = (run["noise"], run["geometry"], *(run[key] for key in run if key in defaults and key != "seed"))
        of_setting.setdefault(setting, []).append(run)
    for seeds in sorted(
        of_setting.values(),
        key=lambda seeds: (int(seeds[0]["noise"]), seeds[0]["geometry"], -mean(seeds, "valid_accuracy")),
    ):
        run, accuracy = seeds[0], mean(seeds, "test_accuracy")
        if len(seeds) > 1:
            spread = f"± {statistics.stdev(float(one['test_accuracy']) for one in seeds):.2f}"
        else:
            bounds = binomtest(round(accuracy * 100), defaults["n_test"]).proportion_ci(method="wilson")
            spread = f"({100 * bounds.low:.2f}-{100 * bounds.high:.2f})"
        published = {"Ganea et al.": run["ganea_2018_test"], "the report": run["report_table_1"]}
        published = {name: float(value) for name, value in published.items() if value}
        share = accuracy / max(published.values())
        words = ["python -m examples.noisy_prefix"]
        for key, value in run.items():
            if (key in defaults and yaml.safe_load(value.lower()) != defaults[key]) or key == "noise":
                words.append(f"--{key}={value}")
        best = [int(one["best_epoch"]) for one in seeds]
        epochs = f"{min(best)} to {max(best)}" if min(best) < max(best) else str(best[0])
        cells = [f"PREFIX-{run['noise']}", run["geometry"]]
        cells += [f"{accuracy:.2f} {spread}", f"{mean(seeds, 'valid_accuracy'):.2f}"]
        cells += [", ".join(f"{value:.2f} ({name})" for name, value in published.items()), str(len(seeds))]
        cells += [f"{epochs} of {run['epochs']}", f"{mean(seeds, 'train_seconds') / 60:.0f}"]
        cells += ["reached" if share >= 1 else f"{100 * share:.1f} %", f"`{' '.join(words)}`"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def mean(runs: list[dict[str, str]], column: str) -> float:
    """Return the mean of a column of the runs of one setting."""
    return statistics.fmean(float(run[column]) for run in runs)


def section(title: str, about: str, head: list[str], rows: list[str]) -> list[str]:
    """Return the lines of a table with its title, and what is to be said before it."""
    head = [*head, "published", "seeds", "epochs", "minutes", "verdict", "command"]
    above = ["", f"## {title}", "", *([about.strip(), ""] if about else [])]
    return [*above, "| " + " | ".join(head) + " |", "|---" * len(head) + "|", *rows]


def points(groups: list[dict[str, Any]]) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Return (label, ours, interval or None, published) of each published cell, by table and metric.

    A cell's metric is NDCG@10, or MRR or NDCG@5 where that is what is published. Of several runs at one cell, ways of
    training the same parts, the best on validation is taken.
    """
    best: dict[tuple[Any, ...], tuple[float, tuple[str, str], tuple[Any, ...]]] = {}
    for group in groups:
        for row in group["rows"]:
            results, published = row["results"], row.get("published", {})
            metric = next((name for name in ("ndcg@10", "mrr@100", "ndcg@5") if name in published), None)
            if metric is None:
                continue
            ours, valid = (statistics.fmean(result[part][metric] for result in results) for part in ("test", "valid"))
            point = (row.get("label", row["row"]), ours, interval(results, metric), published[metric])
            cell = (group["short"], *(str(results[0]["config"].get(key)) for key in PARTS), *published.items())
            if cell not in best or valid > best[cell][0]:
                best[cell] = (valid, (group["short"], SHOWN.get(metric, metric)), point)
    panels: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for _, panel, point in best.values():
        panels.setdefault(panel, []).append(point)
    return panels


def draw(groups: list[dict[str, Any]], file: Path) -> None:
    """Draw ours over the published value, a panel for each table and metric."""
    panels = points(groups)
    columns = 2
    # panels of like length share a row
    ordered = sorted(panels.items(), key=lambda entry: -len(entry[1]))
    lines = [ordered[start : start + columns] for start in range(0, len(ordered), columns)]
    heights = [0.24 * len(line[0][1]) + 0.75 for line in lines]
    figure = plt.figure(figsize=(11, sum(heights) + 0.6), layout="constrained")
    axes = figure.subplots(len(lines), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, own in zip(lines, axes, strict=True):
        for axis in own[len(line) :]:
            axis.set_visible(False)
        for ((table, metric), cells), axis in zip(line, own, strict=False):
            for place, (_, ours, bounds, published) in enumerate(cells):
                # reached: not below the published value beyond what four digits round away
                colour = REACHED if ours >= published - 5e-5 else BELOW
                if bounds:
                    axis.plot([bound / published for bound in bounds], [place, place], color=colour, lw=1.5)
                axis.plot(ours / published, place, "o", color=colour, ms=5)
            axis.axvline(1, color="#888888", lw=1)
            axis.grid(axis="x", color="#dddddd", lw=0.6)
            axis.set_axisbelow(True)
            axis.set_yticks(range(len(cells)), [name for name, *_ in cells], fontsize=8)
            axis.set_ylim(len(cells) - 0.5, -0.5)
            axis.set_title(table, fontsize=9, loc="left")
            axis.set_xlabel(f"ours / published, test {metric}", fontsize=8)
            axis.tick_params(axis="x", labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
    handles = [
        plt.Line2D([], [], color=REACHED, marker="o", ls="", label="at or above the published value"),
        plt.Line2D([], [], color=BELOW, marker="o", ls="", label="below it"),
        plt.Line2D([], [], color="#444444", lw=1.5, label="95 % interval over users (one seed that kept it)"),
        plt.Line2D(
            [], [], color="#444444", marker="o", ls="", label="dot alone: mean of several seeds, or no interval kept"
        ),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(file, dpi=110)


def text() -> tuple[str, list[dict[str, Any]]]:
    """Return cells.md, and the groups of cells.yaml with their results."""
    content = yaml.safe_load((HERE / "cells.yaml").read_text())
    for row in (row for group in content["groups"] for row in group["rows"]):
        if unknown := row.keys() - ROW_KEYS:
            # a verdict that holds commas reads as further keys where it is not quoted
            raise SystemExit(f"cells.yaml, row {row['row']!r}: unknown keys {sorted(unknown)}; quote its verdict?")
        row["results"] = [json.loads((HERE / f"runs/{name}.json").read_text()) for name in row["runs"]]
    lines = ["# Every published cell that was reached for", "", content["about"].strip()]
    for group in content["groups"]:
        metrics = group["metrics"]
        rows = [row_text(row, metrics) for row in group["rows"]]
        lines += section(group["title"], group.get("about", ""), ["row", *(SHOWN[name] for name in metrics)], rows)
    title = "Noisy prefixes (hyperbolic neural networks report; Ganea et al., 2018)"
    lines += section(title, content["prefix"], ["task", "geometry", "test accuracy, %", "validation"], prefix_lines())
    lines += ["", "## Not reached", "", content["missing"].strip(), ""]
    return "\n".join(lines), content["groups"]


def main() -> None:
    """Write the table and the figure."""
    content, groups = text()
    (HERE / "cells.md").write_text(content)
    draw(groups, HERE / "cells.png")


if __name__ == "__main__":
    main()
