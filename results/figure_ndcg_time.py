"""Draw ndcg_time.png: validation NDCG@10 on ml-100k against seconds of training, from the train.csv of three runs.

    python results/figure_ndcg_time.py

The runs: `recbole-hyper run --model=HSASRecCE --dataset=ml-100k` (make demo), the same with SASRecCE and with RecBole's
SASRec. Their train.csv are beside this file as train_ml-100k_<model>.csv.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

RUNS = {
    "HSASRecCE (Poincare head)": ("HSASRecCE", "#b2182b"),
    "SASRecCE": ("SASRecCE", "#2166ac"),
    "RecBole's SASRec, cross-entropy": ("RecBole_SASRec", "0.45"),
}


def main() -> None:
    folder = Path(__file__).parent
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for label, (name, colour) in RUNS.items():
        rows = pd.read_csv(folder / f"train_ml-100k_{name}.csv").dropna(subset="valid_ndcg@10")
        seconds = (rows["train_seconds"] + rows["valid_seconds"]).cumsum()
        axes.plot(seconds, rows["valid_ndcg@10"], marker="o", markersize=2.5, linewidth=1.3, color=colour, label=label)
    axes.set(xscale="log", xlabel="seconds of training, two CPU cores", ylabel="NDCG@10, validation", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(folder / "ndcg_time.png", dpi=140)


if __name__ == "__main__":
    main()
