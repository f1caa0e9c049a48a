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
from recbole_hyper.yaml_files import properties_folder, read_yaml

HERE = Path(__file__).parent
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
    defaults = read_yaml(properties_folder() / "prefix" / "prefix.yaml")
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
        words = ["recbole-hyper prefix"]
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


def draw(groups: list[dict[str, Any]], file: Path) -> None:
    """Draw ours over the published value, a dot for each NDCG@10 (or MRR, or NDCG@5, where that is what is published).

    Of several runs at one cell, ways of training the same parts, the best on validation is drawn.
    """
    drawn: dict[tuple[Any, ...], tuple[float, Any]] = {}
    for group in groups:
        for row in group["rows"]:
            results, published = row["results"], row.get("published", {})
            metric = next((name for name in ("ndcg@10", "mrr@100", "ndcg@5") if name in published), None)
            if metric is None:
                continue
            ours, valid = (statistics.fmean(result[part][metric] for result in results) for part in ("test", "valid"))
            bounds = interval(results, metric) or (ours, ours)
            point = (f"{group['short']}: {row.get('label', row['row'])}", ours, bounds, published[metric])
            parts = tuple(str(results[0]["config"].get(key)) for key in PARTS)
            cell = (group["short"], *parts, *published.items())
            if cell not in drawn or valid > drawn[cell][0]:
                drawn[cell] = (valid, point)
    points = [point for _, point in drawn.values()]
    points.reverse()
    figure, axes = plt.subplots(figsize=(8, 0.18 * len(points) + 0.7), layout="constrained")
    for place, (_, ours, (low, high), published) in enumerate(points):
        # reached: not below the published value beyond what four digits round away
        color = "#2166ac" if ours >= published - 5e-5 else "#b2182b"
        axes.plot([low / published, high / published], [place, place], color=color, lw=1.5)
        axes.plot(ours / published, place, "o", color=color, ms=5)
    axes.axvline(1, color="#888888", lw=1)
    axes.grid(axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(points)), [name for name, *_ in points], fontsize=7.5)
    axes.set_ylim(-0.7, len(points) - 0.3)
    axes.set_xlabel("ours / published, test NDCG@10, MRR or NDCG@5; bars: 95 % intervals", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=130)


def main() -> None:
    """Write the table and the figure."""
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
    (HERE / "cells.md").write_text("\n".join(lines))
    draw(content["groups"], HERE / "cells.png")


if __name__ == "__main__":
    main()
