"""What a validation of FMLPRecMemory costs beside its training, and beside a ranking by the network alone.

    make bench-validation
    .venv/bin/python benchmarks/bench_validation.py --data_path=DIR --data=ml-100k,amazon-beauty-sequences,ml-1m

For each data set, with the reranker and without it, one process trains an epoch on one thread and then times, as a
validation does: the fit of the reranker and the ranking with it; and the ranking by the network alone. ``share`` is
what the validations of a whole training take more than those of the network alone, relative to the training.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import torch
from timing import seconds_of

from recbole_hyper import run
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.scorers import Scorer, state_scorer
from recbole_hyper.evaluation.tables import table
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.load import load_model, read_finished, read_run

MODEL = "FMLPRecMemory"


def row(data: str, keys: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Train an epoch on ``data`` and return the row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        result = run(MODEL, data, config_dict={**keys, "epochs": 1, "output_dir": str(place), "show_progress": False})
        config, read, split = read_finished(place, read_run(place), data_set=False)
        model, _ = load_model(config, read, split)
    model.eval()
    length, cases = int(config["MAX_ITEM_LIST_LENGTH"]), split.valid

    def rank(score: Scorer) -> None:
        rank_cases(score, cases, n_items=split.store.n_items, k=10)

    def stages() -> list[float]:
        alone = seconds_of(lambda: rank(state_scorer(model, length, model.device)))
        chosen = seconds_of(lambda: model.choose(cases))
        return [alone, chosen, seconds_of(lambda: rank(make_scorer(model, config, part="valid")))]

    alone, chosen, ranked = map(min, zip(*(stages() for _ in range(repeats)), strict=True))
    epoch = result["seconds"]["train"]
    return {
        "data": data,
        "reranker": "yes" if keys["memory_rerank"] else "no",
        "cases": len(cases),
        "epoch s": f"{epoch:.1f}",
        "network alone s": f"{alone:.1f}",
        "choices s": f"{chosen:.1f}",
        "ranking s": f"{ranked:.1f}",
        "share": f"{(chosen + ranked - alone) / (epoch * int(config['eval_step'])):.0%}",
    }


def main() -> None:
    """Measure the data sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--data_path", help="folder above the folders of the data sets; ml-100k comes with recbole")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keys = {"n_threads": 1} | ({} if given.data_path is None else {"data_path": given.data_path})
    data_sets = itertools.product(given.data.split(","), (True, False))
    rows = [row(data, keys | {"memory_rerank": rerank}, given.repeats) for data, rerank in data_sets]
    print(table(rows, list(rows[0])))


if __name__ == "__main__":
    main()
