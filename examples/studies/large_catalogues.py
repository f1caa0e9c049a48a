"""Each loss on data with many items, for equal seconds of training: results/large_catalogues.csv.

    python examples/studies/large_catalogues.py --data_path=DIR --output_dir=DIR --seconds=600 DATASET...

FMLPRecCE with its own settings and the temperature of the default, trained for as many epochs as the first one says fit
into the seconds, so that each rate falls to 0 at its end. Nothing is tested: the figures are of 10,000 cases of
validation. Rows of other data sets stay in the table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper import run

FILE = Path(__file__).parents[2] / "results" / "large_catalogues.csv"
MODEL = "FMLPRecCE"
LOSSES: dict[str, dict[str, Any]] = {
    "cross-entropy over 4,096 items": {"softmax_items": 4096},
    "CE-": {"loss_type": "sampled_ce"},
    "gBCE": {"loss_type": "gbce"},
    "SCE": {"loss_type": "sce"},
    "cross-entropy over all items": {"softmax_items": None},
}


def train(model: str, dataset: str, folder: Path, keys: dict[str, Any]) -> dict[str, Any]:
    """Train a model, or go on with the one in ``folder``; return its result."""
    fixed = {"valid_cases": 10_000, "show_progress": False, "save_data": False}
    places = {"output_dir": str(folder), "resume": folder.is_dir()}
    return run(model, dataset, config_dict={**fixed, **keys, **places}, test=False)


def row_of(loss: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a run in the table."""
    facts = {"dataset": result["dataset"], "items": result["n_items"], "loss": loss, "epochs": result["epochs"]}
    facts |= {"seconds": round(result["seconds"]["train"]), "MiB": round(result["peak_memory_bytes"] / 2**20)}
    names = {"ndcg@10": "NDCG@10", "hit@10": "HR@10", "itemcoverage@10": "coverage@10"}
    facts |= {shown: round(result["valid"][name], 4) for name, shown in names.items()}
    return facts | {"seed": result["seed"], "commit": result["commit"]}


def main() -> None:
    """Train every loss on every data set, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--data_path", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600.0, help="of training")
    parser.add_argument("--n_threads", type=int)
    options = parser.parse_args()
    rows = []
    common = {"data_path": options.data_path, "n_threads": options.n_threads}
    for dataset in options.datasets:
        rows.append(row_of("none: popularity", train("Pop", dataset, options.output_dir / f"{dataset}_pop", common)))
        for number, (loss, chosen) in enumerate(LOSSES.items()):
            keys = {**common, **chosen, "temperature": 0.5, "eval_step": 0}
            first = train(MODEL, dataset, options.output_dir / f"{dataset}_{number}_first", {**keys, "epochs": 1})
            epochs = max(1, round(options.seconds / first["seconds"]["train"]))
            result = train(MODEL, dataset, options.output_dir / f"{dataset}_{number}", {**keys, "epochs": epochs})
            rows.append(row_of(loss, result))
            print(json.dumps(rows[-1]), flush=True)
    before = pd.read_csv(FILE)
    others = before[~before["dataset"].isin(options.datasets)]
    pd.concat([others, pd.DataFrame(rows)]).to_csv(FILE, index=False)


if __name__ == "__main__":
    main()
