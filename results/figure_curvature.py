"""How far each head is ahead of the flat limit, by width, with its own settings: docs/images/curvature_tuned.png.

    python results/figure_curvature.py

From curvature_tuned.csv. The difference of the means of NDCG@10 relative to the mean of the flat limit; bars are 95 %
intervals of Welch's test over the seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from claims import welch_test  # noqa: E402

FIGURE = HERE.parent / "docs" / "images" / "curvature_tuned.png"
PANELS = {
    "amazon-beauty-sequences": "Amazon Beauty",
    "amazon-sports-sequences": "Amazon Sports",
    "ml-1m": "MovieLens-1M",
}
FLAT = "flat-limit"
# name, color, marker
HEADS = {
    "dot-product": ("dot product", "#4d4d4d", "s"),
    "learned-temperature": ("dot product, learned temperature", "#2166ac", "o"),
    "poincare-fixed": ("Poincare, c = .02", "#fdae61", "v"),
    "poincare-learned": ("Poincare, learned c", "#d7301f", "^"),
    "poincare-auto": ("Poincare, c by Gromov delta", "#7f0000", "D"),
}


def leads(rows: pd.DataFrame, head: str) -> pd.DataFrame:
    """Return the difference to the flat limit and its interval in per cent, by width."""
    found = {}
    for width, cell in rows.groupby("d"):
        own, flat = (cell[cell["head"] == name]["ndcg@10"] for name in (head, FLAT))
        *difference, _ = welch_test(own.tolist(), flat.tolist())
        found[width] = [100 * value / flat.mean() for value in difference]
    return pd.DataFrame.from_dict(found, orient="index", columns=["mean", "low", "high"])


def draw(axes: plt.Axes, rows: pd.DataFrame) -> None:
    """Draw a line for each head."""
    for number, (head, (name, color, marker)) in enumerate(HEADS.items()):
        lead = leads(rows, head)
        places = lead.index * 2 ** (0.06 * (number - 2))
        ends = [lead["mean"] - lead["low"], lead["high"] - lead["mean"]]
        axes.errorbar(
            places, lead["mean"], ends, color=color, marker=marker, ms=4.5, lw=1.3, elinewidth=0.8, label=name
        )
    axes.axhline(0, color="#999999", lw=0.8, ls="--")
    axes.set_xscale("log", base=2)
    axes.set_xticks([8, 16, 32, 64], ["8", "16", "32", "64"])
    axes.set_xlim(6.5, 80)
    axes.set_xlabel("d, width of states and items")
    axes.grid(color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw."""
    rows = pd.read_csv(HERE / "curvature_tuned.csv")
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10, 3.9), sharey=True, layout="constrained")
    for axes, (data, title) in zip(panels, PANELS.items(), strict=True):
        draw(axes, rows[rows["data"] == data])
        axes.set_title(title, fontsize=10)
    panels[0].set_ylabel("test NDCG@10, ahead of the flat limit, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(FIGURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
