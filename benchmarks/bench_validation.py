"""What a validation of FMLPRecMemory costs beside its training, and beside a ranking by the network alone.

    make bench-validation
    .venv/bin/python benchmarks/bench_validation.py --data_path=DIR --data=ml-100k,amazon-beauty-sequences,ml-1m

For each data set one process trains an epoch on one thread and then times: a ranking by the network alone; one by the
mixture, which chooses the epoch; and what is done once, with the best weights: the fit of EASE^R where it is offered,
the fit of the ranker, and the ranking with it. ``share`` is what all of them take in a whole training relative to its
epochs; the share of a network is that of as many rankings by the network alone.
"""

from __future__ import annotations

import argparse
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
from recbole_hyper.models.data_defaults import TrainingStatistics, choose_values
from recbole_hyper.models.item_votes import EaseWeights
from recbole_hyper.runs.load import load_model, read_finished, read_run
from recbole_hyper.types import Cases

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
    epochs = int(choose_values(["epochs"], TrainingStatistics.of(split))["epochs"])

    def rank(score: Scorer, cases: Cases = cases) -> None:
        rank_cases(score, cases, n_items=split.store.n_items, k=10)

    def stages() -> list[float]:
        alone = seconds_of(lambda: rank(state_scorer(model, length, model.device)))
        mixture = seconds_of(lambda: rank(make_scorer(model, config, part="epoch"), model.epoch_cases(cases)))
        model.ranking.reader.ease = EaseWeights(model.n_items)
        chosen = seconds_of(lambda: model.choose(cases))
        return [alone, mixture, chosen + seconds_of(lambda: rank(make_scorer(model, config, part="valid")))]

    alone, mixture, once = map(min, zip(*(stages() for _ in range(repeats)), strict=True))
    epoch, validations = result["seconds"]["train"], epochs // int(config["eval_step"])
    return {
        "data": data,
        "cases": len(cases),
        "epochs": epochs,
        "validations": validations,
        "epoch s": f"{epoch:.1f}",
        "network alone s": f"{alone:.1f}",
        "mixture s": f"{mixture:.1f}",
        "once s": f"{once:.1f}",
        "a network's share": f"{validations * alone / (epochs * epoch):.1%}",
        "share": f"{(validations * mixture + once) / (epochs * epoch):.1%}",
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
    rows = [row(data, keys, given.repeats) for data in given.data.split(",")]
    print(table(rows, list(rows[0])))


if __name__ == "__main__":
    main()
