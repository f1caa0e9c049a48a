"""gSASRec of asash/gSASRec-pytorch: its model and loader, imported from a checkout.

The loss (gBCE with t = 0.75 and 256 negatives, in float64) is copied, because it is inside the peer's training script.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path

import torch
from peer import Run, padded_left
from torch import Tensor
from torch.nn.functional import softplus

NEGATIVES, CALIBRATION, STEPS = 256, 0.75, 100


def main() -> None:
    """Train in epochs of at most 100 steps, as in the peer's configuration."""
    run = Run()
    settings = run.settings
    sys.path.insert(0, settings["checkout"])
    from dataset_utils import get_train_dataloader
    from gsasrec import GSASRec

    items, length = run.n_items - 1, settings["max_length"]
    _write_training(run.train, items)
    batches = get_train_dataloader("peers", settings["batch"], length, NEGATIVES)
    model = GSASRec(
        items,
        sequence_length=length,
        embedding_dim=settings["width"],
        num_heads=settings["heads"],
        num_blocks=settings["blocks"],
        dropout_rate=settings["dropout"],
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    padding = items + 1

    def scores(histories: list[list[int]]) -> Tensor:
        model.eval()
        states = model(padded_left(histories, length, padding))[0][:, -1]
        model.train()
        return states @ model.get_output_embeddings().weight[:padding].T

    steps = min(STEPS, len(batches))
    run.begin(
        scores,
        packages=("numpy",),
        steps=steps,
        targets=round(run.last_targets() * steps / len(batches)),
        notes=f"the newest L + 1 items of each user; an epoch is at most {STEPS} steps; 256 negatives for each target",
        source=settings["source"],
    )
    model.train()
    while True:
        for sequences, negatives in islice(batches, steps):
            inputs, targets = sequences[:, :-1], sequences[:, 1:]
            states = model(inputs)[0]
            candidates = torch.cat([targets.unsqueeze(-1), negatives[:, 1:]], dim=-1)
            logits = torch.einsum("ble,blne->bln", states, model.get_output_embeddings()(candidates))
            gbce(logits, inputs != padding, items).backward()
            optimizer.step()
            optimizer.zero_grad()
            if not run.step():
                return


def gbce(logits: Tensor, counted: Tensor, items: int) -> Tensor:
    """Return gBCE (Petrov and Macdonald, 2023): binary cross-entropy with the target's log-sigmoid times beta.

    Args:
        logits: (B, L, 1 + negatives), the target first.
        counted: (B, L) positions that count.
        items: size of the catalogue.
    """
    rate = NEGATIVES / (items - 1)
    beta = rate * (CALIBRATION * (1 - 1 / rate) + 1 / rate)
    logits = logits.double()
    each = (beta * softplus(-logits[..., 0]) + softplus(logits[..., 1:]).sum(dim=-1)) / logits.shape[-1]
    return (each * counted).sum() / counted.sum()


def _write_training(train: dict[int, list[int]], items: int) -> None:
    folder = Path("datasets/peers")
    (folder / "train").mkdir(parents=True)
    lines = [" ".join(map(str, sequence)) + "\n" for sequence in train.values()]
    (folder / "train" / "input.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "dataset_stats.json").write_text(json.dumps({"num_items": items}), encoding="utf-8")


if __name__ == "__main__":
    main()
