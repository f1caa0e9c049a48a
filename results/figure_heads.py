"""NDCG@10 against the width of states and items, Poincare, Euclidean and nearly flat head: results/heads.png.

    python results/figure_heads.py

From the run files of the curves in cells.md. One seed: bars are 95 % intervals over users. Several: lines are their
means and each seed is a small dot.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
HEADS = {
    "poincare": ("Poincare head", "#b2182b", 0.97),
    "euclidean": ("Euclidean head", "#2166ac", 1.03),
    "flat": ("flat limit: dot product times 4", "#4d4d4d", 1.0),
}
PANELS = {
    "MovieLens-1M, global timepoint\nSASRec, 8 epochs": {
        "poincare": ["ml-1m_curve_HSASRecCE_*"],
        "euclidean": ["ml-1m_curve_SASRecCE_*"],
        "flat": ["ml-1m_quarter_SASRecCE_*"],
    },
    "MovieLens-1M, leave-one-out\nFMLPRecCE, 20 epochs": {
        "poincare": ["ml-1m_heads_poincare_*"],
        "euclidean": ["ml-1m_heads_euclidean_*", "ml-1m_FMLPRecCE_start_seed*"],
        "flat": ["ml-1m_heads_quarter_*"],
    },
    "Amazon Beauty, leave-one-out\nFMLPRecCE, 20 epochs": {
        "poincare": ["amazon-beauty-sequences_heads_poincare_*"],
        "euclidean": ["amazon-beauty-sequences_heads_euclidean_*", "amazon-beauty-sequences_FMLPRecCE_start*"],
        "flat": ["amazon-beauty-sequences_flat_*"],
    },
    "Amazon Sports, leave-one-out\nFMLPRecCE, 20 epochs": {
        "poincare": ["amazon-sports-sequences_heads_poincare_*"],
        "euclidean": ["amazon-sports-sequences_heads_euclidean_*", "amazon-sports-sequences_FMLPRecCE_start*"],
        "flat": ["amazon-sports-sequences_heads_quarter_*"],
    },
}


def draw(axes: plt.Axes, files: dict[str, list[str]]) -> None:
    """Draw the curve of each head."""
    widths = set()
    for head, patterns in files.items():
        name, color, shift = HEADS[head]
        runs = defaultdict(list)
        for file in (file for pattern in patterns for file in HERE.glob(f"runs/{pattern}.json")):
            run = json.loads(file.read_text())
            runs[run["config"]["hidden_size"]].append(run)
        sizes = sorted(runs)
        widths.update(sizes)
        means = [statistics.fmean(run["test"]["ndcg@10"] for run in runs[size]) for size in sizes]
        axes.plot([size * shift for size in sizes], means, color=color, lw=1.4, marker="o", ms=4, label=name)
        for size, mean in zip(sizes, means, strict=True):
            if len(runs[size]) == 1:
                ends = runs[size][0]["test_intervals"]["ndcg@10"]
                axes.errorbar(size * shift, mean, [[mean - ends[0]], [ends[1] - mean]], color=color, capsize=2)
            else:
                seeds = [run["test"]["ndcg@10"] for run in runs[size]]
                axes.plot([size * shift] * len(seeds), seeds, ".", color=color, ms=4, alpha=0.5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(widths), [str(width) for width in sorted(widths)])
    axes.set_xlabel("d, width of states and items")
    axes.grid(color="#e5e5e5")
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw."""
    figure, panels = plt.subplots(2, 2, figsize=(8.8, 7.2), layout="constrained")
    for axes, (title, files) in zip(panels.flat, PANELS.items(), strict=True):
        draw(axes, files)
        axes.set_title(title, fontsize=9)
    for axes in panels[:, 0]:
        axes.set_ylabel("NDCG@10, test")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    said = "lines: means over seeds; small dots: the seeds; bars: 95 % interval over users of a single seed"
    figure.supxlabel(said, fontsize=8)
    figure.savefig(HERE / "heads.png", dpi=150)


if __name__ == "__main__":
    main()
