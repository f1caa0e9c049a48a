"""Lists without training, beside the models that know cold items by their text: cold_items.csv.

    python examples/studies/cold_items.py [--data_path=DIR] [DATASET...]

A data set has a column of vectors ``text`` in its .item file, as docs/features.md makes them. The cases are those of
the runs: ``{CI: {valid: 0.1, test: 0.2, among: cold}}`` draws the items. The rows:

* random order: what a model gives that cannot tell the cold items apart, computed exactly;
* popularity: the number of interactions of a cold item in the whole data set. No model may know it: it shows how much
  of the choice among cold items is popularity;
* nearest text: the cosine of an item's vector and the mean vector of the last ten items of the history.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from recbole_hyper.config import Config
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.statistics import case_values, intervals
from recbole_hyper.runs.build import read_data
from recbole_hyper.types import Prefixes

FILE = Path(__file__).parents[2] / "results" / "cold_items.csv"
METRICS = ("ndcg@10", "hit@10")
NEWEST = 10
KEYS = {
    "eval_args": {"split": {"CI": {"valid": 0.1, "test": 0.2, "among": "cold"}}},
    "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
}


def vectors_of(file: Path, tokens: list[str]) -> torch.Tensor:
    """Return the vectors (n_items, d) of the items with these tokens, by number; that of padding is 0."""
    table = pd.read_csv(file, sep="\t", dtype=str, quoting=3).set_index("item_id:token")["text:float_seq"]
    rows = [[float(value) for value in table[token].split(" ")] for token in tokens[1:]]
    return torch.tensor([[0.0] * len(rows[0]), *rows])


def rows_of(dataset: str, data_path: str | None) -> list[dict[str, object]]:
    """Return the rows of one data set."""
    config = Config("Pop", dataset, config_dict={**KEYS, **({"data_path": data_path} if data_path else {})})
    data, split = read_data(config)
    cases, n_items = split.test, data.store.n_items
    counts = torch.from_numpy(data.store.counts()).double()
    vectors = vectors_of(Path(config["data_path"]) / f"{dataset}.item", list(data.store.item_tokens))

    def popularity(part: Prefixes) -> torch.Tensor:
        return counts.expand(len(part), -1).clone()

    def nearest(part: Prefixes) -> torch.Tensor:
        offsets = part.store.offsets[part.rows]
        positions = offsets[:, None] + part.ends[:, None] - 1 - np.arange(NEWEST)
        inside = positions >= offsets[:, None]
        items = np.where(inside, part.store.items[np.maximum(positions, 0)], 0)
        history = vectors[torch.from_numpy(items).long()].sum(dim=1)
        return torch.nn.functional.normalize(history, dim=1) @ vectors.T

    assert cases.candidates is not None
    number = cases.candidates.shape[1] + 1
    chance = {metric: float(case_values(metric, np.arange(1, number + 1)).mean()) for metric in METRICS}
    rows: list[dict[str, object]] = [{"list": "random order", **chance}]
    for name, score in (("popularity in all data", popularity), ("nearest text", nearest)):
        ranks = rank_cases(score, cases, n_items=n_items, k=10).ranks
        bounds = intervals(ranks, cases.rows, METRICS)
        values = {metric: float(case_values(metric, ranks).mean()) for metric in METRICS}
        rows.append({"list": name, **values, "low": bounds["ndcg@10"][0], "high": bounds["ndcg@10"][1]})
    return [{"dataset": dataset, "cases": len(cases), "cold items": number, **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["films", "ml-1m"], metavar="DATASET")
    parser.add_argument("--data_path", help="folder above the data sets")
    options = parser.parse_args()
    table = pd.DataFrame([row for name in options.datasets for row in rows_of(name, options.data_path)]).round(6)
    table.to_csv(FILE, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
