"""Rerankers fitted to the validation of one data set and used on that of another: rerankers.csv.

    python results/rerankers.py RUN...       folders of FMLPRecMemory runs, one of each data set

Each row ranks the validation of a run with its network and its mixture, without a reranker, with its own (each user by
the part that was fitted to the other users, as in the run), or with that of another run, which has seen none of these
data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.runs.load import load_model, read_finished, read_run

FILE = Path(__file__).parent / "rerankers.csv"
NONE, OWN = "none", "its own, fitted to the other users"


def opened(folder: str) -> tuple[Any, Any, Any]:
    """Return model, configuration and split of a run."""
    config, data, split = read_finished(folder, read_run(folder), data_set=False)
    model, _ = load_model(config, data, split)
    return model.eval(), config, split


def rows(folder: str, others: dict[str, torch.Tensor]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run; ``others`` are the numbers of rerankers by data set."""
    model, config, split = opened(folder)
    for name, numbers in {OWN: None, NONE: torch.zeros_like(model._reranker.bits), **others}.items():
        if name == config["dataset"]:
            continue
        if numbers is not None:
            model._reranker.bits.copy_(numbers)
        score = model.validation_scorer(config) if name == OWN else model.case_scorer(config)
        ranks = rank_cases(
            score, split.valid, n_items=split.store.n_items, k=1, exclude_seen=config["exclude_seen"]
        ).ranks
        found = {f"valid {metric}": float(case_values(metric, ranks).mean()) for metric in ("ndcg@10", "hit@10")}
        yield {"data": config["dataset"], "cases": len(ranks), "reranker": name, **found}


def main(folders: Sequence[str]) -> pd.DataFrame:
    """Compare the rerankers of the runs in ``folders``, and write the table."""
    numbers = {}
    for folder in folders:
        model, config, _ = opened(folder)
        numbers[config["dataset"]] = model._reranker.bits.clone()
    table = pd.DataFrame(row for folder in folders for row in rows(folder, numbers)).round(4)
    table.to_csv(FILE, index=False, lineterminator="\n")
    return table


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(main(sys.argv[1:]).to_string(index=False))
