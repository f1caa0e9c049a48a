"""Each loss on data with many items, for equal seconds of training or equal epochs: results/large_catalogues.csv.

    python examples/studies/large_catalogues.py --data_path=DIR --output_dir=DIR --seconds=600 DATASET...
    python examples/studies/large_catalogues.py --data_path=DIR --output_dir=DIR --epochs=20 DATASET...

FMLPRecCE with its own settings and the temperature of the default, so that each rate falls to 0 at its end. Seconds
become as many epochs as the first one says fit into them. Nothing is tested: the figures are of 10,000 cases of
validation. Each row is written when it is there; rows of other data sets and of other budgets stay in the table.
"""

from __future__ import annotations

import argparse
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


def train(model: str, dataset: str, folder: Path, files: list[str], keys: dict[str, Any]) -> dict[str, Any]:
    """Train a model, or go on with the one in ``folder``; return its result."""
    fixed = {"valid_cases": 10_000, "show_progress": False, "save_data": False}
    places = {"output_dir": str(folder), "resume": folder.is_dir()}
    return run(model, dataset, config_files=files, config_dict={**fixed, **keys, **places}, test=False)


def row_of(loss: str, until: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a run in the table."""
    facts = {"dataset": result["dataset"], "items": result["n_items"], "until": until, "loss": loss}
    facts |= {
        "epochs": result["epochs"],
        "seconds": round(result["seconds"]["train"]),
        "MiB": round(result["peak_memory_bytes"] / 2**20),
    }
    names = {"ndcg@10": "NDCG@10", "hit@10": "HR@10", "itemcoverage@10": "coverage@10"}
    facts |= {shown: round(result["valid"][name], 4) for name, shown in names.items()}
    return facts | {"seed": result["seed"], "commit": result["commit"]}


def main() -> None:
    """Train every loss on every data set, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--data_path", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--config_files", nargs="*", default=[], help="such as sessions")
    parser.add_argument("--n_threads", type=int)
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--seconds", type=float, help="of training")
    budget.add_argument("--epochs", type=int, help="instead of seconds")
    options = parser.parse_args()
    until = f"{options.epochs} epochs" if options.epochs else f"{options.seconds:.0f} seconds"
    files = options.config_files
    common = {"data_path": options.data_path, "n_threads": options.n_threads}
    for dataset in options.datasets:
        table = pd.read_csv(FILE)
        table = table[(table["dataset"] != dataset) | (table["until"] != until)]
        popularity = train("Pop", dataset, options.output_dir / f"{dataset}_pop", files, common)
        rows = [row_of("none: popularity", until, popularity)]
        for loss, chosen in LOSSES.items():
            folder = options.output_dir / f"{dataset}_{'_'.join(map(str, chosen.values()))}"
            keys = {**common, **chosen, "temperature": 0.5, "eval_step": 0}
            epochs = options.epochs
            if not epochs:
                first = train(MODEL, dataset, folder.with_name(f"{folder.name}_1"), files, {**keys, "epochs": 1})
                epochs = max(1, round(options.seconds / first["seconds"]["train"]))
            result = train(
                MODEL, dataset, folder.with_name(f"{folder.name}_{epochs}"), files, {**keys, "epochs": epochs}
            )
            rows.append(row_of(loss, until, result))
            pd.concat([table, pd.DataFrame(rows)]).to_csv(FILE, index=False)


if __name__ == "__main__":
    main()
