"""NDCG@10 against the width of states and items, Poincare and Euclidean head: results/heads.png.

    python results/figure_heads.py

From the run files of the curve in cells.md (MovieLens-1M, global timepoint); bars are 95 % intervals over users.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
MODELS = {"HSASRecCE": ("Poincare head", "#b2182b", 0.97), "SASRecCE": ("Euclidean head", "#2166ac", 1.03)}


def main() -> None:
    """Draw."""
    figure, axes = plt.subplots(figsize=(5.2, 3.2))
    widths = set()
    for model, (name, color, shift) in MODELS.items():
        runs = [json.loads(file.read_text()) for file in HERE.glob(f"run_ml-1m_curve_{model}_*.json")]
        runs.sort(key=lambda run: run["config"]["hidden_size"])
        sizes = [run["config"]["hidden_size"] for run in runs]
        widths.update(sizes)
        found = [run["test"]["ndcg@10"] for run in runs]
        ends = [run["test_intervals"]["ndcg@10"] for run in runs]
        reach = [[value - low for value, (low, _) in zip(found, ends, strict=True)]]
        reach.append([high - value for value, (_, high) in zip(found, ends, strict=True)])
        places = [size * shift for size in sizes]
        axes.errorbar(places, found, yerr=reach, color=color, marker="o", ms=4, lw=1.4, capsize=2, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(widths), [str(width) for width in sorted(widths)])
    axes.set_xlabel("d, width of states and items")
    axes.set_ylabel("NDCG@10, test")
    axes.grid(color="#e5e5e5")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(HERE / "heads.png", dpi=150)


if __name__ == "__main__":
    main()
