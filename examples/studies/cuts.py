"""The default model beside EASE^R, PureSVD-N and SASRecCE on ml-100k and three cuts of MovieLens-1M: default settings.

    python examples/studies/cuts.py FOLDER --ml_1m=ml-1m.inter    trains what is not finished there, seed by seed
    python examples/studies/cuts.py FOLDER --ml_1m=ml-1m.inter --seeds=2020   the first seed alone
    python results/collect.py FOLDER/runs                            adds what is finished to results/runs.csv

The cuts are 1,000 users drawn at random, the 1,000 most popular items, and the newest half of the interactions. They
are written to FOLDER/data. Each run has one thread and its own process. After a kill the same command continues. Models
without a seed run once. No rule of the default model was made on the cuts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_hyper.experiment.experiment import Experiment, Run, keys_file, run_alone
from recbole_hyper.runs.claim import plan_runs, seed_folder

SEEDS = (2020, 2021, 2022)
# name in results/runs.csv: model, keys, whether its result depends on the seed
MODELS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "EASER": ("EASER", {}, False),
    "PureSVDN": ("PureSVDN", {}, False),
    "FMLPRecMemory_default": ("FMLPRecMemory", {}, True),
    "FMLPRecMemory_no_rerank": ("FMLPRecMemory", {"memory_rerank": False}, True),
    "FMLPRecMemory_no_ease": ("FMLPRecMemory", {"memory_rerank": False, "memory_ease": False}, True),
    "SASRecCE": ("SASRecCE", {}, True),
}
USER, ITEM, TIME = "user_id:token", "item_id:token", "timestamp:float"


def cuts(frame: pd.DataFrame, size: int = 1000) -> dict[str, pd.DataFrame]:
    """Return the cuts of a table of interactions by name; rows keep their order."""
    users = np.random.default_rng(0).permutation(np.sort(frame[USER].unique()))[:size]
    # items with equal counts in the order of their names
    counts = frame[ITEM].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    newest = frame[TIME].rank(method="first") > len(frame) // 2
    return {
        f"ml-1m-{size}-users": frame[frame[USER].isin(users)],
        "ml-1m-newest-half": frame[newest],
        f"ml-1m-{size}-items": frame[frame[ITEM].isin(counts.index[:size])],
    }


def write_cuts(file: Path, folder: Path) -> list[str]:
    """Write the cuts of an atomic file below ``folder`` and return their names; files that are there stay."""
    frame = pd.read_csv(file, sep="\t", dtype={USER: str, ITEM: str}, usecols=[USER, ITEM, TIME])
    names = []
    for name, part in cuts(frame).items():
        target = folder / name / f"{name}.inter"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part.to_csv(target, sep="\t", index=False, lineterminator="\n")
        names.append(name)
    return names


def plan(folder: Path, names: list[str], seeds: list[int], keys: dict[str, Any]) -> list[Run]:
    """Return all runs, the first seed of every data set first."""
    runs = []
    for seed in seeds:
        for name in ("ml-100k", *names):
            data = {} if name == "ml-100k" else {"data_path": str(folder / "data")}
            for label, (model, own, drawn) in MODELS.items():
                if drawn or seed == seeds[0]:
                    place = folder / "runs" / f"{name}_{label}"
                    settings = {"n_threads": 1, "save_data": False, "show_progress": False, **data, **own, **keys}
                    (planned,) = plan_runs(model, name, [seed], place, settings).values()
                    runs.append(Run(model, name, seed, planned, seed_folder(place, seed), f"{name}_{label}"))
    return runs


def main() -> None:
    """Train what is not finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ml_1m", type=Path, required=True, help="ml-1m.inter, as recbole-hyper prepare writes it")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--epochs", type=int, help="for a quick check")
    given = parser.parse_args()
    names = write_cuts(given.ml_1m, given.folder / "data")
    keys = {} if given.epochs is None else {"epochs": given.epochs}
    runs = plan(given.folder, names, [int(seed) for seed in given.seeds.split(",")], keys)
    _, failed = Experiment(runs).execute(lambda run: run_alone(run.model, run.dataset, keys_file(run, given.folder), 1))
    raise SystemExit("; ".join(f"{name}: {text}" for name, text in failed.items()) or 0)


if __name__ == "__main__":
    main()
