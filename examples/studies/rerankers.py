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
from typing import Any

import pandas as pd
import torch

from recbole_hyper.models.known_cases import KnownCases
from recbole_hyper.models.memory import RERANKED_CASES, drawn
from recbole_hyper.models.reranker import CasesOfReranker, Reranker, ndcg
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


def read(folder: str) -> tuple[str, CasesOfReranker, Reranker]:
    """Return the data set of a run, its cases, and its reranker."""
    config, data, split = read_finished(folder, read_run(folder), data_set=False)
    model, _ = load_model(config, data, split)
    model.eval()
    cases = model.cases_of_reranker(drawn(split.valid, RERANKED_CASES), KnownCases())
    return config["dataset"], cases, model._reranker


def rows(name: str, cases: CasesOfReranker, others: dict[str, Reranker]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data set; ``others`` are the rerankers of all data sets."""
    before = ndcg(cases.scores, cases.places) / len(cases.folds)

    def row(reranker: str, gain: float) -> dict[str, Any]:
        found = {"data": name, "cases": len(cases.folds), "reranker": reranker, "valid ndcg@10": before + gain}
        return found | {"gain in per cent": round(100 * gain / before, 1)}

    yield row("none", 0.0)
    for text, columns in {"": [], **WITHOUT}.items():
        evidence = cases.evidence.clone()
        evidence[:, :, columns] = 0
        if text and torch.equal(evidence, cases.evidence):
            continue  # EASE^R was not offered
        model = Reranker()
        model.fit(cases._replace(evidence=evidence))
        yield row(f"without {text}" if text else "all evidence", cases.gain(model(evidence, cases.folds)))
    for other, model in others.items():
        if other != name:
            yield row(f"of {other}", cases.gain(model(cases.evidence)))


def main(folders: Sequence[str]) -> pd.DataFrame:
    """Compare the rerankers of the runs in ``folders``, and write the table."""
    runs = [read(folder) for folder in folders]
    others = {name: model for name, _, model in runs}
    with torch.no_grad():
        table = pd.DataFrame(row for name, cases, _ in runs for row in rows(name, cases, others)).round(4)
    table.to_csv(FILE, index=False, lineterminator="\n")
    return table


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(main(sys.argv[1:]).to_string(index=False))
