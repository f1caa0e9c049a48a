"""Rerankers with less evidence, with other numbers, and of other data sets, on validation: rerankers.csv.

    python examples/studies/rerankers.py RUN...       folders of FMLPRecMemory runs, one of each data set

Each row ranks at most 50,000 validation cases of a run, with its network and its mixture: without a reranker; with one
that is fitted again, to all evidence or to a part of it, each user by the network that was fitted to the other users;
so too with one number of the reranker changed; and with the reranker of another run, which has seen none of these data.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from recbole_hyper.models import propose, rank
from recbole_hyper.models.evidence import N_EVIDENCE, Evidence
from recbole_hyper.models.memory import RANKED_CASES, folds_of, ranker_cases
from recbole_hyper.models.rank import Ranker
from recbole_hyper.runs.load import load_model, read_finished, read_run

FILE = Path(__file__).parents[2] / "results" / "rerankers.csv"
# the columns of the evidence that a row is without
WITHOUT = {
    "popularity of late": [3],
    "popularity of both kinds": [2, 3],
    "cosines": [4, 5, 6],
    "votes of what comes after": [7, 8],
    "votes of what comes before": [9, 10],
    "votes of both sides": [7, 8, 9, 10],
    "votes of EASE^R": [11, 12, 13],
    "all but the two log-probabilities": list(range(2, 14)),
}
ITEMS, MOST_ITEMS = propose.BEST, 200  # that the reranker ranks, and at most in a row of this table


def of_width(width: int) -> dict[str, Any]:
    """Return the constants of ``rank`` with so many hidden units."""
    shapes = *rank._SHAPES[:3], (N_EVIDENCE, width), (width,), (width,)
    return {"_WIDTH": width, "_SHAPES": shapes, "_SIZES": [math.prod(shape) for shape in shapes]}


# what the networks are found to be worth: as it is, and always all
WORTHS = {"": rank._worth, ", not scaled": lambda scores, *_: scores.new_ones(())}
# constants of ``rank`` in a row of the table
NUMBERS: dict[str, dict[str, Any]] = {
    "8 hidden units": of_width(8), "32 hidden units": of_width(32),
    "440 steps": {"_STEPS": 440, "_PASSES": 5}, "1,760 steps": {"_STEPS": 1760, "_PASSES": 20},
    "rate .003": {"_RATE": 0.003}, "rate .03": {"_RATE": 0.03},
    "weight decay .0001": {"_DECAY": 1e-4}, "weight decay .01": {"_DECAY": 1e-2},
    "not scaled": {"_worth": WORTHS[", not scaled"]},
}  # fmt: skip
CASES = 20_000, 5_000, 1_000  # that the reranker is fitted to, instead of at most 50,000


class Data(NamedTuple):
    """A data set: the evidence for its cases, their targets (n,) and the folds (n,) of their users, and its ranker."""

    name: str
    more_evidence: Evidence  # for more items than the reranker ranks
    targets: torch.Tensor
    folds: torch.Tensor
    ranker: Ranker

    def of_best(self, count: int) -> Evidence:
        """Return the evidence for the ``count`` best items."""
        return Evidence(*(part[:, :count] for part in self.more_evidence))

    def ndcg(self, evidence: Evidence, scores: torch.Tensor) -> float:
        """Return NDCG@10 for the ``scores`` (n, k) of the items."""
        hits = (evidence.items == self.targets[:, None]) & (evidence.items > 0)
        ranks = 1 + (scores > scores.masked_fill(~hits, -math.inf).amax(dim=1, keepdim=True)).sum(dim=1)
        return float((hits.any(dim=1) & (ranks <= 10)).div(torch.log2(ranks + 1.0)).mean())

    def fitted(self, evidence: Evidence, cases: int = RANKED_CASES) -> float:
        """Return NDCG@10 with a reranker that is fitted to the first of the ``cases``."""
        model, first = Ranker(), slice(0, cases)
        part = Evidence(*(values[first] for values in evidence))
        model.fit(part, self.targets[first], self.folds[first])
        return self.ndcg(evidence, model(evidence, self.folds))


@torch.no_grad()
def read(folder: str) -> Data:
    """Return the data set of a run."""
    config, data, split = read_finished(folder, read_run(folder), data_set=False)
    model, _ = load_model(config, data, split)
    cases = ranker_cases(split.valid, exclude_seen=bool(config["exclude_seen"]))
    targets = torch.from_numpy(cases.targets.astype(np.int64))
    folds, ranker = torch.from_numpy(folds_of(cases)), model.ranking.ranker
    with patch.object(propose, "BEST", MOST_ITEMS):
        return Data(config["dataset"], model.eval()._read(cases)[0], targets, folds, ranker)


def rows(data: Data, others: Sequence[Data]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data set."""
    evidence = data.of_best(ITEMS)
    before = data.ndcg(evidence, evidence.scores)

    def row(reranker: str, value: float) -> dict[str, Any]:
        found = {"data": data.name, "cases": len(data.folds), "reranker": reranker, "valid ndcg@10": value}
        return found | {"gain in per cent": round(100 * (value - before) / before, 1)}

    yield row("none", before)
    for text, columns in {"": [], **WITHOUT}.items():
        values = evidence.values.clone()
        values[:, :, columns] = 0
        if text and torch.equal(values, evidence.values):
            continue  # EASE^R was not offered
        yield row(f"without {text}" if text else "all evidence", data.fitted(evidence._replace(values=values)))
    for count in (ITEMS // 2, MOST_ITEMS):
        yield row(f"{count} items", data.fitted(data.of_best(count)))
    for text, constants in NUMBERS.items():
        with patch.multiple(rank, **constants):
            yield row(text, data.fitted(evidence))
    for cases, (text, worth) in itertools.product(CASES, WORTHS.items()):
        if len(data.folds) > cases:
            with patch.object(rank, "_worth", worth):
                yield row(f"fitted to {cases:,} cases{text}", data.fitted(evidence, cases))
    for other in others:
        if other is not data:
            yield row(f"of {other.name}", data.ndcg(evidence, other.ranker(evidence)))


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
