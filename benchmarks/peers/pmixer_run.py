"""SASRec of pmixer/SASRec.pytorch: its model and sampler, imported from a checkout, in a copy of main.py's loop.

main.py itself cannot be imported. The sampler uses one worker, because three are not reproducible.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from peer import Run, padded_left
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as binary_loss


def main() -> None:
    """Train by binary cross-entropy with one negative for each target."""
    run = Run()
    settings = run.settings
    checkout = Path(settings["checkout"])
    # newer versions have the code in python/, older ones at the top
    sys.path.insert(0, str(checkout / "python" if (checkout / "python").is_dir() else checkout))
    from model import SASRec
    from utils import WarpSampler

    np.random.seed(settings["seed"])  # noqa: NPY002  its sampler draws from the global generator
    users, items = max(run.train), run.n_items - 1
    batch, length = settings["batch"], settings["max_length"]
    sampler = WarpSampler(run.train, users, items, batch_size=batch, maxlen=length, n_workers=1)
    options = Namespace(
        device="cpu",
        norm_first=False,
        hidden_units=settings["width"],
        num_blocks=settings["blocks"],
        num_heads=settings["heads"],
        dropout_rate=settings["dropout"],
        maxlen=length,
    )
    model = SASRec(users, items, options)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.xavier_normal_(weights.data)
    model.pos_emb.weight.data[0] = 0
    model.item_emb.weight.data[0] = 0
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.98))

    def scores(histories: list[list[int]]) -> Tensor:
        model.eval()
        states = model.log2feats(padded_left(histories, length).numpy())[:, -1]
        model.train()
        return states @ model.item_emb.weight.T

    run.begin(
        scores,
        packages=("numpy",),
        steps=(len(run.train) - 1) // batch + 1,
        targets=run.last_targets(),
        notes="the newest L + 1 items of each user; the sampler's process keeps working while the clock is stopped",
        source=settings["source"],
    )
    try:
        model.train()
        while True:
            owners, inputs, targets, negatives = (np.array(part) for part in sampler.next_batch())
            chosen, others = model(owners, inputs, targets, negatives)
            optimizer.zero_grad()
            where = np.where(targets != 0)
            loss = binary_loss(chosen[where], torch.ones(len(where[0])))
            loss += binary_loss(others[where], torch.zeros(len(where[0])))
            loss.backward()
            optimizer.step()
            if not run.step():
                return
    finally:
        sampler.close()


if __name__ == "__main__":
    main()
