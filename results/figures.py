"""Draw the figures of README and docs/curvature.md: python results/figures.py [NAME...]."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from claims import DEFAULT, TABLE, of_default, published, welch_test, without_reranker  # noqa: E402
from table import mean  # noqa: E402

BLUE = "#0072B2"
DATA = "Amazon: reviews to 2014, 5-core; MovieLens-1M: 2003; leave-one-out"
# name, color, marker
TUNED = {
    "dot-product": ("dot product", "#4d4d4d", "s"),
    "learned-temperature": ("dot product, learned temperature", "#2166ac", "o"),
    "poincare-fixed": ("Poincare, c = .02", "#fdae61", "v"),
    "poincare-learned": ("Poincare, learned c", "#d7301f", "^"),
    "poincare-auto": ("Poincare, c by Gromov delta", "#7f0000", "D"),
}


def first() -> Figure:
    """Draw README's figure: one panel for each data set, a row for each published model, ours on top."""
    figure, panels = plt.subplots(1, len(TABLE), figsize=(9, 2.95), layout="constrained")
    for axes, (dataset, title) in zip(panels, TABLE.items(), strict=True):
        own = (of_default(dataset), without_reranker(dataset))
        others = published(dataset)[:5]
        names = [f"{DEFAULT} (ours) *", "without reranker"]
        names += [row["model"].replace("with sampled softmax", "(sampled)") for row in others]
        for place, group in enumerate(own):
            axes.plot([run["test ndcg@10"] for run in group], [place] * len(group), "|", color=BLUE, ms=9)
            axes.plot(mean(group, "ndcg@10"), place, "o", color=BLUE, ms=6)
        axes.plot([row["ndcg@10"] for row in others], range(2, len(names)), "o", color="#777777", ms=6)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.get_yticklabels()[0].set_fontweight("bold")
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("test NDCG@10", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(axis="x", color="#dddddd", lw=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.margins(x=0.08)
        axes.spines[["top", "right"]].set_visible(False)
    text = "blue: three seeds and their mean; grey: published, most one seed; *: fits a reranker to validation targets"
    figure.supxlabel(f"{text}\n{DATA}; no axis begins at 0", fontsize=8)
    return figure


def curvature() -> Figure:
    """Draw how far each head is ahead of the flat limit, with its own settings and 95 % intervals of Welch's test."""
    rows = pd.read_csv(HERE / "curvature_tuned.csv")
    figure, panels = plt.subplots(1, len(TABLE), figsize=(10, 4.05), sharey=True, layout="constrained")
    for axes, (data, title) in zip(panels, TABLE.items(), strict=True):
        cell = rows[rows["data"] == data].pivot(index=["d", "seed"], columns="head", values="ndcg@10")
        for number, (head, (name, color, marker)) in enumerate(TUNED.items()):
            lead = []
            for width, own in cell.groupby("d"):
                *found, _ = welch_test(own[head].tolist(), own["flat-limit"].tolist())
                lead.append([width] + [100 * value / own["flat-limit"].mean() for value in found])
            widths, means, low, high = (list(column) for column in zip(*lead, strict=True))
            ends = [[m - a for m, a in zip(means, low, strict=True)], [b - m for m, b in zip(means, high, strict=True)]]
            places = [width * 2 ** (0.06 * (number - 2)) for width in widths]
            axes.errorbar(places, means, ends, color=color, marker=marker, ms=4.5, lw=1.3, elinewidth=0.8, label=name)
        axes.axhline(0, color="#999999", lw=0.8, ls="--")
        axes.set_xscale("log", base=2)
        axes.set_xticks([8, 16, 32, 64], ["8", "16", "32", "64"])
        axes.set_xlabel("d, width of states and items")
        axes.set_title(title, fontsize=10)
        axes.grid(color="#eeeeee")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(6.5, 80)
    panels[0].set_ylabel("test NDCG@10, ahead of the flat limit, %")
    figure.supxlabel(DATA, fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "results/first.png": first,
    "docs/images/curvature_tuned.png": curvature,
}

if __name__ == "__main__":
    for place in sys.argv[1:] or FIGURES:
        FIGURES[place]().savefig(HERE.parent / place, dpi=110, metadata={"Software": None})
