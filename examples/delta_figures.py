"""Figures of ``examples/delta_study.py``: delta over sizes and ranks, spread and curvature (the paper's 4 to 12).

python -m examples.delta_study --dataset=ml-100k
python -m examples.delta_figures saved/delta-ml-100k
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from examples.delta_study import Estimate, Measurement, estimate_of, table_of
from recbole_hyper.curvature.disk import disk_delta_rel
from recbole_hyper.files import replaced

_GREY = "0.35"
_DELTA, _RANK = r"$\delta_{rel} = 2\delta\,/\,$diameter", "SVD rank (columns of the item vectors)"


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the figures; an error is one line and returns 1."""
    parser = argparse.ArgumentParser(description="draw what examples/delta_study.py measured")
    parser.add_argument("folder", help="output_dir of examples/delta_study.py, which gets the figures")
    folder = Path(parser.parse_args(argv).folder)
    try:
        rows = pd.read_csv(folder / "delta.csv").to_dict("records")
        content = json.loads((folder / "delta.json").read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        print(f"error: {folder} has no finished study of delta: {error}", file=sys.stderr)
        return 1
    measurements = [Measurement(**{str(key): value for key, value in row.items()}) for row in rows]
    title = f"{content['dataset']}: relative Gromov delta of item vectors"
    print(*draw_all(measurements, estimate_of(measurements, content["estimate"]["eps"]), title, folder), sep="\n")
    return 0


def draw_all(measurements: Sequence[Measurement], estimate: Estimate, title: str, folder: Path) -> list[Path]:
    """Draw every figure as PNG and SVG into ``folder``; return the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"by_sample": by_sample(measurements, title)}
    if len({measurement.rank for measurement in measurements}) > 1:
        figures["by_rank"] = by_rank(measurements, estimate, title)
        figures["spread"] = spread(measurements, estimate, title)
    written = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            written.append(folder / f"delta_{name}.{kind}")
            with replaced(written[-1]) as part:
                figure.savefig(part, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return written


def by_sample(measurements: Sequence[Measurement], title: str) -> Figure:
    """Draw the mean delta_rel against the sample size, a line per rank; the band is one sd at the largest rank."""
    ranks, sizes, table = table_of(measurements)
    largest = f", rank {ranks[-1]}" if len(ranks) > 1 else ""
    figure, axes = _start(title, f"band: 1 sd over {table.shape[2]} samples{largest}")
    colours = _lines(axes, sizes, table, [str(rank) if rank else "distances" for rank in ranks])
    mean, deviation = table[-1].mean(axis=1), table[-1].std(axis=1)
    axes.fill_between(sizes, mean - deviation, mean + deviation, color=colours[-1], alpha=0.18, lw=0)
    axes.set(xlabel="sample size (items)", xlim=(0, None))
    if len(ranks) > 1:
        axes.legend(title="SVD rank", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    return figure


def by_rank(measurements: Sequence[Measurement], estimate: Estimate, title: str) -> Figure:
    """Draw the mean delta_rel against the rank, a line per sample size; the right axis is the curvature."""
    level = f"grey: level {estimate.delta_rel:.3f}, c = {estimate.curvature:.3g} (heavy: its ranks)"
    figure, axes = _start(title, level)
    ranks, sizes, table = table_of(measurements)
    _lines(axes, ranks, table.transpose(1, 0, 2), [f"{size:,}" for size in sizes])
    axes.axhline(estimate.delta_rel, color=_GREY, lw=0.9, ls="--")
    axes.plot(estimate.plateau_ranks, [estimate.delta_rel] * len(estimate.plateau_ranks), color=_GREY, lw=2.2)
    axes.set_xscale("log", base=2)
    # labels closer than a factor of 1.6 would overlap; both ends always have one
    shown = ranks[-1:]
    for rank in ranks[-2::-1]:
        if shown[0] >= 1.6 * rank and (rank == ranks[0] or rank >= 1.6 * ranks[0]):
            shown.insert(0, rank)
    axes.set_xticks(shown, [str(rank) for rank in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(_RANK)
    disk, right, (bottom, top) = disk_delta_rel(estimate.eps), axes.twinx(), axes.get_ylim()
    right.set_ylim(bottom, top)
    right.yaxis.set_major_locator(FixedLocator([t for t in axes.get_yticks() if bottom + 0.05 * top < t <= top]))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{(disk / value) ** 2:.3g}"))
    right.set_ylabel(f"curvature c at eps = {estimate.eps:g}")
    right.spines["top"].set_visible(False)
    axes.legend(title="sample size", loc="lower left", frameon=False, fontsize=8, ncols=2)
    return figure


def spread(measurements: Sequence[Measurement], estimate: Estimate, title: str) -> Figure:
    """Draw every repeat at the largest sample by rank, with the quartiles."""
    ranks, sizes, table = table_of(measurements)
    values, places = table[:, -1], np.arange(len(ranks))
    interval = f"{estimate.delta_rel_lower:.3f} to {estimate.delta_rel_upper:.3f}"
    samples = f"{values.shape[1]} samples of {sizes[-1]:,} items each"
    figure, axes = _start(title, f"{samples}; green: interval of the estimate, {interval}")
    grey, red = {"color": _GREY}, {"color": "C3"}
    box = axes.boxplot(list(values), positions=places, widths=0.5, showfliers=False, boxprops=grey, medianprops=red)
    for line in (*box["whiskers"], *box["caps"]):
        line.set(**grey)
    shift = np.random.default_rng(0).uniform(-0.16, 0.16, values.shape)
    axes.plot((places[:, None] + shift).ravel(), values.ravel(), ".", color="C0", ms=4, alpha=0.55)
    axes.axhspan(estimate.delta_rel_lower, estimate.delta_rel_upper, color="C2", alpha=0.13, lw=0)
    axes.set_xticks(places, [str(rank) for rank in ranks])
    low, high = values.min(), values.max()
    axes.set_ylim(max(0.0, low - 0.25 * (high - low)), high + 0.25 * (high - low) + 1e-3)
    axes.set_xlabel(_RANK)
    return figure


def _start(title: str, note: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10, loc="left", pad=18)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92", lw=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylabel(_DELTA)
    axes.text(0.0, 1.015, note, transform=axes.transAxes, fontsize=8, color=_GREY, ha="left", va="bottom")
    return figure, axes


def _lines(axes: Axes, places: list[int], table: np.ndarray, labels: list[str]) -> np.ndarray:
    """Draw the means of ``table`` (lines, places, repeats) over ``places``; return the colours."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0.9, 0.05, len(labels)))
    for colour, label, values in zip(colours, labels, table, strict=True):
        axes.plot(places, values.mean(axis=1), "o-", color=colour, ms=3.5, lw=1.4, label=label)
    axes.set_ylim(0, 1.12 * float(table.mean(axis=2).max()) + 1e-3)
    return colours


if __name__ == "__main__":
    raise SystemExit(main())
