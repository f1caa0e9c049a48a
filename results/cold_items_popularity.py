"""How far popularity alone goes on cold items: a ridge regression of an item's count on its features, for everybody.

python results/cold_items_popularity.py
"""

import numpy as np
import torch

from recbole_hyper.config import Config
from recbole_hyper.data.item_features import ItemFeatures
from recbole_hyper.evaluation import statistics
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.training.build import read_data

NAMES = ["ndcg@10", "hit@10"]
SPLIT = {"CI": {"valid": 0.1, "test": 0.2, "among": "cold"}}
RIDGES = (0.1, 1.0, 10.0, 100.0)


def design(features: ItemFeatures) -> np.ndarray:
    """Return (n_items, k): a column of ones, and one for each token, 1 where an item has it."""
    parts = [np.ones((features.n_items, 1))]
    for column in features.columns:
        tokens = np.zeros((features.n_items, column.size))
        tokens[np.arange(features.n_items)[:, None], column.values] = 1
        parts.append(tokens[:, 1:])
    return np.concatenate(parts, axis=1)


def main() -> None:
    """Choose the ridge on validation, and print the test."""
    keys = {"selected_features": ["class", "release_year"], "eval_args": {"split": SPLIT}}
    data, split = read_data(Config("SASRecCE", "ml-100k", config_dict=keys))
    assert data.item_features is not None
    counts = split.store.counts(split.train_lengths)
    trained, columns = counts > 0, design(data.item_features)
    found = {}
    for ridge in RIDGES:
        own = columns[trained]
        weights = np.linalg.solve(own.T @ own + ridge * np.eye(own.shape[1]), own.T @ np.log(counts[trained]))
        scores = torch.from_numpy((columns @ weights).astype(np.float32))
        for part, cases in (("valid", split.valid), ("test", split.test)):
            ranks = rank_cases(lambda some, s=scores: s.repeat(len(some), 1), cases, n_items=len(counts), k=10)
            found[part, ridge] = ranks.ranks, cases.rows

    def ndcg(ridge: float) -> float:
        ranks = found["valid", ridge][0]
        return float(np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).mean())

    best = max(RIDGES, key=ndcg)
    ranks, rows = found["test", best]
    limits = statistics.intervals(ranks, rows, NAMES, confidence=0.95, seed=2020)
    values = {"ndcg@10": np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).mean(), "hit@10": (ranks <= 10).mean()}
    print(f"ridge {best}, {len(ranks)} cases, validation NDCG@10 {ndcg(best):.4f}")
    for name in NAMES:
        print(f"{name} {values[name]:.4f} ({limits[name][0]:.4f} to {limits[name][1]:.4f})")


if __name__ == "__main__":
    main()
