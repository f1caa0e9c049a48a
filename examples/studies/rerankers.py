"""Rerankers with less evidence, and rerankers of other data sets, on validation: rerankers.csv.

    python examples/studies/rerankers.py RUN...       folders of FMLPRecMemory runs, one of each data set

Each row ranks at most 20,000 validation cases of a run, with its network and its mixture: without a reranker; with one
that is fitted again, to all evidence or to a part of it, each user by the network that was fitted to the other users;
and with the reranker of another run, which has seen none of these data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from recbole_hyper.models.evidence import Evidence
from recbole_hyper.models.memory import RANKED_CASES, drawn, folds_of
from recbole_hyper.models.rank import Ranker, sum_of_ndcg
from recbole_hyper.runs.load import load_model, read_finished, read_run

FILE = Path(__file__).parents[2] / "results" / "rerankers.csv"
# the columns of the evidence that a row is without
WITHOUT = {
    "popularity": [2],
    "cosines": [3, 4, 5],
    "votes of what comes after": [6, 7],
    "votes of what comes before": [8, 9],
    "votes of both sides": [6, 7, 8, 9],
    "votes of EASE^R": [10, 11, 12],
    "all but the two log-probabilities": list(range(2, 13)),
}


class Data(NamedTuple):
    """A data set: the evidence for its cases, their targets (n,) and the folds (n,) of their users, and its ranker."""

    name: str
    evidence: Evidence
    targets: torch.Tensor
    folds: torch.Tensor
    ranker: Ranker

    def ndcg(self, scores: torch.Tensor) -> float:
        """Return NDCG@10 for the ``scores`` (n, k) of the proposed items."""
        return float(sum_of_ndcg(self.evidence, scores, self.targets)) / len(self.targets)


@torch.no_grad()
def read(folder: str) -> Data:
    """Return the data set of a run."""
    config, data, split = read_finished(folder, read_run(folder), data_set=False)
    model, _ = load_model(config, data, split)
    cases = drawn(split.valid, RANKED_CASES)
    targets = torch.from_numpy(cases.targets.astype(np.int64))
    folds, ranker = torch.from_numpy(folds_of(cases)), model.ranking.ranker
    return Data(config["dataset"], model.eval()._read(cases), targets, folds, ranker)


def rows(data: Data, others: Sequence[Data]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data set."""
    before = data.ndcg(data.evidence.scores)

    def row(reranker: str, value: float) -> dict[str, Any]:
        found = {"data": data.name, "cases": len(data.folds), "reranker": reranker, "valid ndcg@10": value}
        return found | {"gain in per cent": round(100 * (value - before) / before, 1)}

    yield row("none", before)
    for text, columns in {"": [], **WITHOUT}.items():
        values = data.evidence.values.clone()
        values[:, :, columns] = 0
        if text and torch.equal(values, data.evidence.values):
            continue  # EASE^R was not offered
        model, evidence = Ranker(), data.evidence._replace(values=values)
        model.fit(evidence, data.targets, data.folds)
        yield row(f"without {text}" if text else "all evidence", data.ndcg(model(evidence, data.folds)))
    for other in others:
        if other is not data:
            yield row(f"of {other.name}", data.ndcg(other.ranker(data.evidence)))


def main(folders: Sequence[str]) -> pd.DataFrame:
    """Compare the rerankers of the runs in ``folders``, and write the table."""
    runs = [read(folder) for folder in folders]
    with torch.no_grad():
        table = pd.DataFrame(row for data in runs for row in rows(data, runs)).round(4)
    table.to_csv(FILE, index=False, lineterminator="\n")
    return table


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(main(sys.argv[1:]).to_string(index=False))
