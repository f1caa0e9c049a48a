"""Rank a part of a split: validation during training, and the test afterwards."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch

from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.scorers import Scorer
from recbole_hyper.training.processes import gathered, world
from recbole_hyper.training.settings import RankSettings
from recbole_hyper.types import Cases, Ranks, Split


@dataclass(frozen=True)
class Evaluation:
    """A part of a split to rank, "valid" or "test", with the training counts for the metrics."""

    name: str
    cases: Cases
    split: Split
    item_counts: Counter
    user_counts: Counter
    item_tokens: scipy.sparse.csr_matrix | None = None  # (n_items, T) for IntraListDiversity

    def __len__(self) -> int:
        return len(self.cases)


@torch.no_grad()
def rank(score: Scorer, settings: RankSettings, evaluation: Evaluation, show_progress: bool = False) -> Ranks:
    """Rank the cases of ``evaluation``; each of several processes ranks a share and returns the ranks of all."""
    process, processes = world()
    if processes == 1:
        return _ranked(score, settings, evaluation, show_progress)
    bounds = np.linspace(0, len(evaluation), processes + 1).astype(int)
    part = dataclasses.replace(evaluation, cases=evaluation.cases[bounds[process] : bounds[process + 1]])
    parts = [one for one in gathered(_ranked(score, settings, part, show_progress) if len(part) else None) if one]
    names = ("ranks", "n_candidates", "top_items")
    joined: Any = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    tied = np.average([one.tied for one in parts], weights=[len(one.ranks) for one in parts])
    return Ranks(**joined, tied=float(tied))


def _ranked(score: Scorer, settings: RankSettings, evaluation: Evaluation, show_progress: bool) -> Ranks:
    return rank_cases(
        score,
        evaluation.cases,
        n_items=evaluation.split.store.n_items,
        k=max(settings.topk),
        exclude_seen=settings.exclude_seen,
        catalogue=evaluation.split.candidates(evaluation.name),
        memory_budget=settings.ranking_memory_budget,
        progress=f"Rank {evaluation.name}" if show_progress else None,
    )


def metrics(settings: RankSettings, evaluation: Evaluation, ranks: Ranks) -> dict[str, float]:
    """Return the configured metrics of ``ranks`` by name, such as "ndcg@10"."""
    catalogue = evaluation.split.candidates(evaluation.name)
    return compute_metrics(
        ranks,
        settings.metrics,
        settings.topk,
        settings.metric_decimal_place,
        n_items=evaluation.split.store.n_items - 1 if catalogue is None else int(catalogue.sum()),
        n_users=evaluation.split.store.n_rows,
        item_counts=evaluation.item_counts,
        user_counts=evaluation.user_counts,
        tail_ratio=settings.tail_ratio,
        cases=evaluation.cases,
        item_tokens=evaluation.item_tokens,
    )
