"""NDCG@10 on validation of SASRec with each loss against memory and time of training: results/losses_<data set>.png.

    python results/figure_losses.py

The SCE paper's figure of the Pareto front (temporal users), from runs/*_temporal_users_*.json; commands in cells.md.
"""

import json
from pathlib import Path

import pandas as pd

from recbole_hyper.report.figures import cost_figure

HERE = Path(__file__).parent
NAMES = {"ce": "CE", "sampled_ce": "CE-", "bce_plus": "BCE+", "gbce": "gBCE", "sce": "SCE", "rece": "RECE"}
TITLES = {"ml-1m": "MovieLens-1M", "amazon-beauty": "Amazon Beauty", "amazon-sports": "Amazon Sports"}


def main() -> None:
    """Draw the figure of each data set."""
    for dataset, title in TITLES.items():
        rows = []
        for loss, name in NAMES.items():
            run = json.loads((HERE / f"runs/{dataset}_temporal_users_{loss}.json").read_text())
            cost = {"peak MiB": run["peak_memory_bytes"] / 2**20, "train seconds": run["seconds"]["train"]}
            rows.append({"model": name, "NDCG@10": run["valid"]["ndcg@10"], **cost})
        figure = cost_figure(pd.DataFrame(rows), "NDCG@10", f"{title}, temporal users: SASRec with each loss")
        figure.savefig(HERE / f"losses_{dataset}.png", bbox_inches="tight", dpi=150)


if __name__ == "__main__":
    main()
