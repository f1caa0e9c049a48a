"""The figures of a report, each a matplotlib figure that is written as SVG and PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recbole_hyper.files import replaced
from recbole_hyper.report.collect import Entry, Sweep, model_name, pareto, short
from recbole_hyper.sweep.trial import FINISHED

# Okabe and Ito's colours, which colour-blind readers can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
MARKERS = "osD^vPX*"
CURVES = 6
STYLE: Any = {
    "figure.dpi": 100,
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "recbole-hyper",
}


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write ``name.svg`` and ``name.png`` and return the path of the SVG."""
    with mpl.rc_context(STYLE):
        with replaced(folder / f"{name}.svg") as part:
            figure.savefig(part, format="svg", bbox_inches="tight", metadata={"Date": None})
        with replaced(folder / f"{name}.png") as part:
            figure.savefig(part, format="png", bbox_inches="tight", dpi=150)
    return folder / f"{name}.svg"


def cost_figure(costs: pd.DataFrame, metric: str, title: str) -> Figure:
    """Draw validation ``metric`` against peak memory and against training time, with the front of each model.

    A point is one finished trial or run; the stepped line joins the points of a model that no other of its points
    beats. As Figure 6 of the SCE paper.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        models = sorted(costs["model"].unique())
        for axis, cost, label in zip(
            axes, ("peak MiB", "train seconds"), ("peak memory, MiB", "training time, s"), strict=True
        ):
            for number, model in enumerate(models):
                part = costs[costs["model"] == model]
                colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
                axis.scatter(part[cost], part[metric], s=28, color=colour, marker=marker, alpha=0.55, label=model)
                front = pareto(part, cost, metric)
                axis.step(front[cost], front[metric], where="post", color=colour, linewidth=1.5)
            if costs[cost].min() > 0 and costs[cost].max() / costs[cost].min() > 3:
                axis.set_xscale("log")
            axis.set_xlabel(label)
        axes[0].set_ylabel(f"validation {metric}")
        axes[0].legend(fontsize=9)
        figure.suptitle(title, fontsize=11)
    return figure


def parameter_figure(sweep: Sweep, trials: list[Entry]) -> Figure | None:
    """Draw the validation score against every key that the sweep varies; None where nothing varies.

    A point is one trial; the line joins the best of each value.
    """
    done = [trial for trial in trials if trial.status == FINISHED and trial.score is not None]
    keys = [key for key in sweep.keys if len({str(trial.settings.get(key)) for trial in done}) > 1]
    if not done or not keys:
        return None
    bigger = bool(sweep.outcome.get("valid_metric_bigger", True))
    with mpl.rc_context(STYLE):
        columns = min(3, len(keys))
        lines = math.ceil(len(keys) / columns)
        figure = Figure(figsize=(3.4 * columns, 2.9 * lines), layout="constrained")
        axes = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for axis, key in zip(axes, keys, strict=False):
            _score_by_value(axis, [(trial.settings.get(key), float(trial.score or 0.0)) for trial in done], bigger)
            axis.set_xlabel(key)
        for axis in axes[len(keys) :]:
            axis.set_visible(False)
        for axis in axes[::columns]:
            axis.set_ylabel(f"validation {sweep.outcome.get('valid_metric', 'score')}")
        figure.suptitle(f"{sweep.asked.get('model')} on {sweep.asked.get('dataset')}: {sweep.folder.name}", fontsize=11)
    return figure


def _score_by_value(axis: Any, points: list[tuple[Any, float]], bigger: bool) -> None:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value, _ in points)
    values = sorted({value for value, _ in points}) if numbers else sorted({value for value, _ in points}, key=str)
    place = {value: value if numbers else index for index, value in enumerate(values)}
    # few values on a line of equal steps: grids are rarely evenly spaced
    if len(values) <= 12:
        place = {value: index for index, value in enumerate(values)}
        axis.set_xticks(range(len(values)), [short(value) for value in values], rotation=30 if len(values) > 6 else 0)
    elif numbers and values[0] > 0 and values[-1] / values[0] > 30:
        axis.set_xscale("log")
    axis.scatter([place[v] for v, _ in points], [s for _, s in points], s=22, color=COLOURS[0], alpha=0.55)
    if len(values) <= 12:
        best = [(max if bigger else min)(s for v, s in points if v == value) for value in values]
        axis.plot([place[value] for value in values], best, color=COLOURS[1], linewidth=1.5)


def size_figure(sizes: pd.DataFrame, value: str, title: str) -> Figure:
    """Draw the best validation value of each model against the embedding size; the optimum is ringed."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 3.8), layout="constrained")
        axis = figure.subplots()
        for number, (model, part) in enumerate(sizes.groupby("model", sort=True)):
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            part = part.sort_values("hidden_size")
            axis.plot(part["hidden_size"], part[value], color=colour, marker=marker, label=model)
            top = part[part["optimum"]].iloc[0]
            axis.scatter(
                [top["hidden_size"]], [top[value]], s=170, facecolors="none", edgecolors=colour, linewidths=1.5
            )
        axis.set_xscale("log", base=2)
        ticks = sorted(sizes["hidden_size"].unique())
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.set_xlabel("embedding size")
        axis.set_ylabel(value)
        axis.legend(fontsize=9)
        figure.suptitle(title, fontsize=11)
    return figure


def curve_figure(entries: list[Entry], title: str) -> Figure | None:
    """Draw training loss and validation metric by epoch for at most ``CURVES`` entries; None without any epoch."""
    shown = [entry for entry in entries if len(entry.history) > 1][:CURVES]
    if not shown:
        return None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        names = set()
        for number, entry in enumerate(shown):
            colour = COLOURS[number % len(COLOURS)]
            label = _label(entry)
            epochs = [row["epoch"] for row in entry.history]
            left.plot(epochs, [row.get("train_loss", math.nan) for row in entry.history], color=colour, label=label)
            metric = f"valid_{str(entry.config.get('valid_metric', '')).lower()}"
            points = [(row["epoch"], row[metric]) for row in entry.history if metric in row]
            if points:
                names.add(metric.removeprefix("valid_"))
                right.plot(*zip(*points, strict=True), color=colour, marker=".", label=label)
        for axis in (left, right):
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.set_xlabel("epoch")
        left.set_ylabel("training loss")
        right.set_xlabel("epoch")
        right.set_ylabel(f"validation {', '.join(sorted(names))}")
        left.legend(fontsize=8)
        figure.suptitle(title, fontsize=11)
    return figure


def curvature_figure(entries: list[Entry]) -> Figure | None:
    """Draw the learned curvature by epoch; None where no run learned one."""
    shown = [entry for entry in entries if any("curvature" in row for row in entry.history)][:CURVES]
    if not shown:
        return None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 3.6), layout="constrained")
        axis = figure.subplots()
        for number, entry in enumerate(shown):
            points = [(row["epoch"], row["curvature"]) for row in entry.history if "curvature" in row]
            axis.plot(*zip(*points, strict=True), color=COLOURS[number % len(COLOURS)], label=_label(entry))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("epoch")
        axis.set_ylabel("learned curvature c")
        axis.legend(fontsize=8)
    return figure


def _label(entry: Entry) -> str:
    settings = ", ".join(short(value) for value in entry.settings.values())
    seed = f" seed {entry.result.get('seed')}" if entry.kind != "trial" else ""
    return f"{model_name(entry)} {settings}{seed}"[:60]
