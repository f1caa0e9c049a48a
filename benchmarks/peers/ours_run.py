"""A model of this package, which the setting ``model`` names, in the driver's environment."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from peer import Run
from recbole.utils import init_seed
from torch import Tensor

from recbole_hyper.batches.histories import whole_histories
from recbole_hyper.config import Config
from recbole_hyper.data.reading import given_store
from recbole_hyper.data.source import Source
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.build import build
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.training.optim import build_optimizer
from recbole_hyper.training.settings import OptimizerSettings
from recbole_hyper.types import Cases, Split


def main() -> None:
    """Train by windows on every interaction of the training part."""
    run = Run()
    settings = run.settings
    keys = {
        "interactions": "given",
        "hidden_size": settings["width"],
        "n_layers": settings["blocks"],
        "n_heads": settings["heads"],
        "hidden_dropout_prob": settings["dropout"],
        "attn_dropout_prob": settings["dropout"],
        "MAX_ITEM_LIST_LENGTH": settings["max_length"],
        "train_batch_size": settings["batch"],
        "learning_rate": settings["learning_rate"],
        "seed": settings["seed"],
        "n_threads": settings["threads"],
        "gpu_id": "",
    }
    config = Config(settings["model"], "peers", config_dict=keys)
    init_seed(config["seed"], config["reproducibility"])
    rows = [(user, item, at) for user, items in run.train.items() for at, item in enumerate(items)]
    store = given_store(Source.of(config), pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"]))
    data = SequenceDataset(config, store)
    nothing = Cases.build(store, [], [])
    model, batches, _ = build(config, data, Split(store, store.lengths, nothing, nothing), store.lengths)
    optimizer = build_optimizer(model, OptimizerSettings.of(config))
    # the store numbers the items itself
    ours = np.array([0, *map(int, store.item_tokens[1:])])
    number = {token: at for at, token in enumerate(ours.tolist()) if at}

    def scores(histories: list[list[int]]) -> Tensor:
        known = [[number[item] for item in items if item in number] for items in histories]
        offsets = np.cumsum([0, *map(len, known)])
        items = np.array([item for history in known for item in history], dtype=np.int32)
        cases = whole_histories(store, offsets, items, np.zeros(len(known), dtype=np.int64))
        model.eval()
        found = torch.full((len(known), run.n_items), -torch.inf)
        found[:, ours[1:]] = make_scorer(model, config)(cases)[:, 1:]
        model.train()
        return found

    run.begin(
        scores,
        packages=("recbole", "numpy"),
        steps=len(batches),
        targets=int((store.lengths - 1).sum()),
        notes="windows cover the whole history",
        source=settings["source"],
    )
    model.train()
    while True:
        for batch in batches:
            optimizer.zero_grad()
            model.calculate_loss(batch).backward()
            optimizer.step()
            if not run.step():
                return


if __name__ == "__main__":
    main()
