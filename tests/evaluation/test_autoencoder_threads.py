"""Two threads that rank with one autoencoder of RecBole each score their own histories."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from recbole_hyper.data.loader import whole_histories
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.scorers import FOLD_IN


class Slow(nn.Module):
    """Reads a history, waits until the other thread has set its own, and scores by it."""

    USER_ID = "user_id"
    device = torch.device("cpu")

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.weight, self.barrier = nn.Parameter(torch.ones(4)), SimpleNamespace(wait=barrier.wait)

    def full_sort_predict(self, interaction: Any) -> torch.Tensor:
        self.barrier.wait(10)
        return self.get_rating_matrix(interaction["user_id"]) * self.weight


def test_histories_stay_apart() -> None:
    store = SequenceStore(
        np.array([0, 1]), np.array([1], dtype=np.int32), np.zeros(1), np.array([1]),
        np.array(["[PAD]", "u"]), np.array(["[PAD]", "a", "b", "c"]),
    )  # fmt: skip
    score = FOLD_IN["MultiVAE"](Slow(threading.Barrier(2)))
    found: dict[int, torch.Tensor] = {}

    def ask(item: int) -> None:
        items = np.array([item], dtype=np.int32)
        found[item] = score(whole_histories(store, np.array([0, 1]), items, np.zeros(1, dtype=np.int64)))

    threads = [threading.Thread(target=ask, args=(item,)) for item in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[1].tolist() == [[0.0, 1.0, 0.0, 0.0]]
    assert found[3].tolist() == [[0.0, 0.0, 0.0, 1.0]]
