"""Popularity counts every training interaction, against loops."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from recbole_hyper import run
from tests.models.fitting import fitted
from tests.reference import planted


def test_pop_counts_every_training_interaction(random_data: Path) -> None:
    net, _, split = fitted("Pop", random_data)
    counts = [0] * split.store.n_items
    for row in range(split.store.n_rows):
        for item in split.store.row(row)[: split.train_lengths[row]]:
            counts[item] += 1
    assert net.score_cases(split.test[:2]).tolist() == [counts, counts]


def test_pop_ranks_by_counts_of_the_training_part(blocks: Path, tmp_path: Path) -> None:
    rows: dict[str, list[str]] = {}
    for user, item, _ in planted.block_rows():
        rows.setdefault(user, []).append(item)
    counts = Counter(item for items in rows.values() for item in items[:-2])
    ranks = []
    for items in rows.values():
        left = {f"i{item}" for item in range(planted.ITEMS)} - set(items[:-1])
        ranks.append(sum(counts[item] >= counts[items[-1]] for item in left))
    settings = {"data_path": str(blocks), "use_gpu": False, "topk": [5, 20], "valid_metric": "NDCG@5"}
    result = run("Pop", "blocks", config_dict={**settings, "output_dir": str(tmp_path / "run")})
    for k in (5, 20):
        assert result["test"][f"hit@{k}"] == pytest.approx(np.mean(np.array(ranks) <= k), abs=1e-6)
        gains = [1 / math.log2(rank + 1) if rank <= k else 0.0 for rank in ranks]
        assert result["test"][f"ndcg@{k}"] == pytest.approx(np.mean(gains), abs=1e-6)
