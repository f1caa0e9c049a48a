"""The figures of a report, as matplotlib figures, and :func:`save`, which writes them as SVG and PNG."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recbole_hyper.files import replaced
from recbole_hyper.report.collect import Entry, Sweep
from recbole_hyper.report.differences import canonical, legend_text
from recbole_hyper.report.tables import entry_labels
from recbole_hyper.sweep.trial import FINISHED

# Okabe and Ito's colours, which colour-blind readers can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
CURVES = 6  # most runs among the training curves
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


def _canvas(width: float, height: float, title: str, n: int, columns: int, **more: Any) -> tuple[Figure, Any]:
    """Return a figure of ``n`` panels of this size in inches, in rows of ``columns``, and their axes."""
    columns = min(columns, n)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    figure.suptitle(legend_text(title), fontsize=11)
    axes = figure.subplots(rows, columns, squeeze=False, **more).ravel()
    for axis in axes[n:]:
        axis.set_visible(False)
    return figure, axes[:n]


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
    figure, axes = _canvas(3.4, 2.9, title, len(keys), 3, sharey=True)
    for axis, key in zip(axes, keys, strict=True):
        points = []
        for trial in done:
            others = {name: value for name, value in trial.settings.items() if name not in (key, "seed")}
            points.append((trial.settings.get(key), float(trial.score or 0.0), canonical(others)))
        _score_by_value(axis, points)
        axis.set_xlabel(legend_text(key))
    axes[0].set_ylabel(f"validation {sweep.outcome.valid_metric if sweep.outcome else 'score'}")
    return figure


def _score_by_value(axis: Any, points: list[tuple[Any, float, str]]) -> None:
    """Draw (value, score, other settings) over equal steps, because grids are rarely evenly spaced."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value, _, _ in points)
    # lists and mappings cannot be sorted; their texts can
    values = sorted({value if numbers else _short(value) for value, _, _ in points})
    x = [values.index(value if numbers else _short(value)) for value, _, _ in points]
    if len(values) <= 12:
        axis.set_xticks(range(len(values)), [_short(value) for value in values], rotation=30 if len(values) > 6 else 0)
    else:
        axis.set_xticks([0, len(values) - 1], [_short(values[0]), _short(values[-1])])
    axis.scatter(x, [score for _, score, _ in points], s=22, color=COLOURS[0], alpha=0.55)
    frame = pd.DataFrame({"x": x, "score": [p[1] for p in points], "others": [p[2] for p in points]})
    for number, (_, line) in enumerate(frame.groupby("others")):
        means = line.groupby("x")["score"].mean()
        if len(means) > 1:
            axis.plot(means, color=COLOURS[1 + number % (len(COLOURS) - 1)], linewidth=1.0, alpha=0.8)


@mpl.rc_context(STYLE)
def curve_figure(entries: list[Entry], title: str) -> Figure | None:
    """Plot training loss, validation metric and learned curvature by epoch for the first ``CURVES`` entries.

    Entries of a single epoch are left out; None if no other is left.
    """
    shown = [entry for entry in entries if len(entry.history) > 1][:CURVES]
    if not shown:
        return None
    curved = any("curvature" in row for entry in shown for row in entry.history)
    figure, (left, right, *rest) = _canvas(4.6, 3.6, title, 2 + curved, 2 + curved)
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


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _legend(figure: Figure, axis: Any) -> None:
    """Put the legend of ``axis`` below the figure, where long names fit."""
    handles, labels = axis.get_legend_handles_labels()
    lines = sum(label.count("\n") + 1 for label in labels)
    figure.set_figheight(figure.get_figheight() + 0.08 * (lines + lines % 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
