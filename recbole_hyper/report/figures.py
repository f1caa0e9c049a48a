"""The figures of a report, as matplotlib figures, and :func:`save`, which writes them as SVG and PNG."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from recbole_hyper.evaluation.tables import Table
from recbole_hyper.files import replaced
from recbole_hyper.report.collect import Entry, Sweep
from recbole_hyper.report.differences import canonical, legend_text
from recbole_hyper.report.tables import entry_labels, pareto
from recbole_hyper.sweep.trial import FINISHED

# Okabe and Ito's colours, which colour-blind readers can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
MARKERS = "osD^vPX*"
CURVES, FEW = 6, 30  # most runs among the training curves; fewest cases of a segment that is drawn
PLAIN = "{x:,.8g}"  # tick labels
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


@mpl.rc_context(STYLE)
def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write ``name.svg`` and ``name.png``; return the path of the SVG."""
    with replaced(folder / f"{name}.svg") as part:
        figure.savefig(part, format="svg", bbox_inches="tight", metadata={"Date": None})
    with replaced(folder / f"{name}.png") as part:
        figure.savefig(part, format="png", bbox_inches="tight", dpi=150)
    return folder / f"{name}.svg"


def canvas(width: float, height: float, title: str, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, Any]:
    """Return an empty figure of this size in inches, and its axes as ``Figure.subplots`` returns them."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(legend_text(title), fontsize=11)
    return figure, figure.subplots(rows, columns, **more)


def _panels(n: int, columns: int, width: float, height: float, title: str, label: str) -> tuple[Figure, Any]:
    """Return a figure of ``n`` panels in rows of ``columns``, and their axes.

    ``width`` and ``height`` are those of one panel, ``label`` belongs to the y axis.
    """
    columns = min(columns, n)
    rows = math.ceil(n / columns)
    figure, axes = canvas(width * columns, height * rows, title, rows, columns, sharey=True, squeeze=False)
    for axis in axes.ravel()[n:]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel(label)
    return figure, axes.ravel()[:n]


@mpl.rc_context(STYLE)
def cost_figure(costs: pd.DataFrame, metric: str, title: str) -> Figure:
    """Plot validation ``metric`` against peak memory and training time, like Figure 6 of the SCE paper.

    The stepped line is a model's Pareto front.
    """
    figure, axes = canvas(10, 4.2, title, columns=2, sharey=True)
    labels = {"peak MiB": "peak memory, MiB", "train seconds": "training time, s"}
    for axis, (cost, label) in zip(axes, labels.items(), strict=True):
        for number, (model, part) in enumerate(costs.groupby("model")):
            style = _style(number)
            axis.scatter(part[cost], part[metric], s=34, alpha=0.75, label=legend_text(str(model)), **style)
            front = pareto(part, cost, metric)
            axis.step(front[cost], front[metric], where="post", color=style["color"], linewidth=1.5)
        if costs[cost].min() > 0 and costs[cost].max() / costs[cost].min() > 10:
            _plain_log(axis, costs[cost].max() / costs[cost].min())
        else:
            axis.xaxis.set_major_locator(MaxNLocator(6))
            axis.xaxis.set_major_formatter(StrMethodFormatter(PLAIN))
        axis.set_xlabel(label)
    axes[0].set_ylabel(f"validation {metric}")
    _legend(figure, axes[0])
    return figure


@mpl.rc_context(STYLE)
def parameter_figure(sweep: Sweep) -> Figure | None:
    """Plot the validation score against each key that the sweep varies; None if nothing varies.

    A point is one trial. A line joins the trials that differ only in this key, as the mean over their seeds.
    """
    done = [trial for trial in sweep.trials if trial.status == FINISHED and trial.score is not None]
    keys = [key for key in sweep.keys if len({str(trial.settings.get(key)) for trial in done}) > 1]
    if not done or not keys:
        return None
    title = f"{sweep.request.get('model')} on {sweep.request.get('dataset')}: {sweep.folder.name}"
    label = f"validation {sweep.outcome.get('valid_metric', 'score')}"
    figure, axes = _panels(len(keys), 3, 3.4, 2.9, title, label)
    for axis, key in zip(axes, keys, strict=True):
        points = []
        for trial in done:
            others = {name: value for name, value in trial.settings.items() if name not in (key, "seed")}
            points.append((trial.settings.get(key), float(trial.score or 0.0), canonical(others)))
        _score_by_value(axis, points)
        axis.set_xlabel(legend_text(key))
    return figure


def _score_by_value(axis: Any, points: list[tuple[Any, float, str]]) -> None:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value, _, _ in points)
    # lists and mappings cannot be sorted; their texts can
    points = points if numbers else [(_short(value), score, others) for value, score, others in points]
    values = sorted({value for value, _, _ in points})
    x = {value: value for value in values}
    if len(values) <= 12 or not numbers:  # equal steps: grids are rarely evenly spaced
        x = {value: index for index, value in enumerate(values)}
        axis.set_xticks(range(len(values)), [_short(value) for value in values], rotation=30 if len(values) > 6 else 0)
    elif values[0] > 0 and values[-1] / values[0] > 30:
        _plain_log(axis, values[-1] / values[0])
    axis.scatter([x[v] for v, _, _ in points], [s for _, s, _ in points], s=22, color=COLOURS[0], alpha=0.55)
    lines = pd.DataFrame(points, columns=["value", "score", "others"]).groupby(["others", "value"])["score"].mean()
    for number, (_, line) in enumerate(lines.groupby(level="others")):
        if len(line) > 1:
            color = COLOURS[1 + number % (len(COLOURS) - 1)]
            axis.plot(line.index.get_level_values("value").map(x), line, color=color, linewidth=1.0, alpha=0.8)


@mpl.rc_context(STYLE)
def segment_figure(table: Table, metric: str, title: str) -> Figure:
    """Plot each model's ``metric`` by segment with its interval, in one panel per kind of segment.

    Segments of fewer than ``FEW`` cases are left out, unless all are that small.
    """
    kinds: dict[str, list[Any]] = {}
    for row in [row for row in table.rows if row["cases"] >= FEW] or table.rows:
        kinds.setdefault(row["by"], []).append(row)
    figure, axes = _panels(len(kinds), 2, 5.4, 3.4, title, f"test {metric}")
    models = sorted({row["model"] for row in table.rows})
    for axis, (kind, rows) in zip(axes, kinds.items(), strict=True):
        labels = list(dict.fromkeys(row["segment"] for row in rows))
        for number, model in enumerate(models):
            own = [row for row in rows if row["model"] == model]
            x = [labels.index(row["segment"]) + 0.6 * ((number + 0.5) / len(models) - 0.5) for row in own]
            names = (metric, f"{metric} low", f"{metric} high")
            value, low, high = (np.array([row[name] for row in own]) for name in names)
            bounds, style = np.maximum(0, [value - low, high - value]), _style(number)
            line = {"fmt": style["marker"], "color": style["color"], "markersize": 5, "capsize": 2, "linewidth": 1.2}
            axis.errorbar(x, value, bounds, label=legend_text(model), **line)
        slanted = {"rotation": 30, "ha": "right"} if len(labels) > 3 else {}
        axis.set_xticks(range(len(labels)), labels, **slanted)
        axis.set_xlabel(kind)
    _legend(figure, axes[0])
    return figure


@mpl.rc_context(STYLE)
def series_figure(series: Mapping[str, Sequence[Mapping[str, Any]]], metric: str, title: str) -> Figure:
    """Plot ``metric`` on new data over time: a line per run, a point at the end of each evaluated period."""
    figure, axis = canvas(7.2, 3.6, title)
    for number, (name, results) in enumerate(series.items()):
        style = _style(number)
        ends = [result["protocol_counts"]["until"] for result in results]
        times: Any = pd.to_datetime(ends, unit="s") if min(ends) > 1e6 else ends
        axis.plot(times, [result["test"][metric] for result in results], label=legend_text(name), **style)
        bounds = [(result.get("test_intervals") or {}).get(metric) for result in results]
        if all(bounds):
            axis.fill_between(times, *zip(*bounds, strict=True), color=style["color"], alpha=0.15)
    axis.set(xlabel="end of the period", ylabel=f"{metric} on new data")
    figure.autofmt_xdate()
    _legend(figure, axis)
    return figure


@mpl.rc_context(STYLE)
def curve_figure(entries: list[Entry], title: str) -> Figure | None:
    """Plot training loss, validation metric and learned curvature by epoch for the first ``CURVES`` entries.

    Entries of a single epoch are left out; None if no other is left.
    """
    shown = [entry for entry in entries if len(entry.history) > 1][:CURVES]
    if not shown:
        return None
    curved = any("curvature" in row for entry in shown for row in entry.history)
    figure, (left, right, *rest) = canvas(13 if curved else 10, 3.6, title, columns=2 + curved)
    _over_epochs(left, shown, lambda entry: "train_loss")
    left.set_ylabel("training loss")
    drawn = _over_epochs(right, shown, lambda entry: f"valid_{entry.valid_metric}", marker=".")
    right.set_ylabel(f"validation {', '.join(sorted(name.removeprefix('valid_') for name in drawn))}")
    for axis in rest:
        _over_epochs(axis, shown, lambda entry: "curvature")
        axis.set_ylabel("learned curvature c")
    _legend(figure, left)
    return figure


def _over_epochs(axis: Any, entries: list[Entry], column_of: Callable[[Entry], str], **style: Any) -> set[str]:
    """Plot a column of each entry's history by epoch; return the names of the columns that have values."""
    drawn = set()
    for number, (entry, label) in enumerate(zip(entries, entry_labels(entries), strict=True)):
        column, colour = column_of(entry), COLOURS[number % len(COLOURS)]
        points = [(row["epoch"], row[column]) for row in entry.history if column in row]
        if points:
            drawn.add(column)
            axis.plot(*zip(*points, strict=True), color=colour, label=legend_text(label), **style)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("epoch")
    return drawn


def _style(number: int) -> dict[str, str]:
    """Return colour and marker of the series ``number``; the first 64 differ."""
    marker = MARKERS[(number // len(COLOURS) + number) % len(MARKERS)]
    return {"color": COLOURS[number % len(COLOURS)], "marker": marker}


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain_log(axis: Any, ratio: float) -> None:
    """Give x a log scale with a few plain numbers as ticks; ``ratio`` is the largest value over the smallest."""
    axis.set_xscale("log")
    steps = (1.0, 2.0, 5.0) if ratio < 200 else (1.0, 3.0) if ratio < 2000 else (1.0,)
    axis.xaxis.set_major_locator(LogLocator(subs=steps, numticks=9))
    axis.xaxis.set_major_formatter(StrMethodFormatter(PLAIN))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, axis: Any) -> None:
    """Put the legend of ``axis`` below the figure, where long names fit."""
    handles, labels = axis.get_legend_handles_labels()
    widest = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 13 // (widest + 6))))
    lines = max(label.count("\n") + 1 for label in labels) * math.ceil(len(labels) / columns)
    figure.set_figheight(figure.get_figheight() + 0.16 * lines)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)
