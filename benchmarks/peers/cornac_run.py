"""Cornac's SASRec, with its softmax over the batch and 2,048 shared negatives, counted by wrapping its batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from cornac.data import SequentialDataset
from cornac.models import SASRec
from cornac.models.sasrec import recom_sasrec
from peer import Run, padded_left
from torch import Tensor


class TimeIsUpError(Exception):
    """Ends Cornac's training loop, which has no hook."""


def main() -> None:
    """Fit Cornac's model until the time is up."""
    run = Run()
    settings = run.settings
    rows = [(user, user, item, at) for user, items in run.train.items() for at, item in enumerate(items)]
    data = SequentialDataset.build(rows, fmt="USIT", seed=settings["seed"])
    model = SASRec(
        embedding_dim=settings["width"],
        num_blocks=settings["blocks"],
        num_heads=settings["heads"],
        dropout=settings["dropout"],
        max_len=settings["max_length"],
        batch_size=settings["batch"],
        learning_rate=settings["learning_rate"],
        n_epochs=10**9,
        seed=settings["seed"],
    )
    # Cornac numbers the items itself, from 0; padding has the number after the last
    number = dict(data.iid_map)
    ours = torch.tensor(list(number))
    targets = sum(len(items) - 1 for items in run.train.values())
    batches, begun = recom_sasrec.session_seq_iter, False

    def scores(histories: list[list[int]]) -> Tensor:
        network = model.model
        network.eval()
        known = [[number[item] for item in items if item in number] for items in histories]
        states = network._encode(padded_left(known, settings["max_length"], model.pad_idx))
        found = torch.full((len(known), run.n_items), -torch.inf)
        found[:, ours] = states @ network.item_emb.weight[: len(ours)].T
        network.train()
        return found

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal begun
        if not begun:
            begin()
            begun = True
        for batch in batches(*arguments, **options):
            yield batch
            if not run.step():
                raise TimeIsUpError

    def begin() -> None:
        size = settings["batch"]
        run.begin(
            scores,
            packages=("cornac", "numpy", "scipy"),
            # a last batch of one row is left out
            steps=targets // size + (targets % size > 1),
            targets=targets,
            notes="a row for each target, as RecBole; 2,048 negatives shared by a batch, by the root of popularity",
        )

    recom_sasrec.session_seq_iter = counted
    with suppress(TimeIsUpError):
        model.fit(data)


if __name__ == "__main__":
    main()
