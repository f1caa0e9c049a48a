"""Training time of DualRec, compared with SASRecCE of the same size and with the published algorithm, head by head.

    make bench-dual        (python benchmarks/bench_dual.py --help for the options)

It trains on batches of an epoch of generated sequences: 22,363 users and 12,101 items as in Amazon Beauty, with lengths
like those of its training part (5.7 pairs per user). The variants take turns on every batch, so that a change of the
machine's speed affects all of them.
"""

from __future__ import annotations

import argparse
import copy
import platform
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recbole_hyper.encoders.base import Encoder, supervised_states
from recbole_hyper.encoders.dual import DualEncoder, DualRecEncoder
from recbole_hyper.encoders.transformer import TransformerEncoder
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.ce import CrossEntropy
from tests.reference.dualrec import NaiveAttention


def batches(users: int, items: int, longest: int, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (items, targets, lengths) of an epoch in random batches, sorted by length as the loader does."""
    generator = torch.Generator().manual_seed(seed)
    # 5-core without the last two: at least 3 interactions, so 2 pairs; a Pareto tail fits Beauty's deciles
    share = torch.rand(users, generator=generator, dtype=torch.float64)
    lengths = (2 + 2.6 * (share ** (-1 / 1.47) - 1)).long().clamp(max=longest)
    for chunk in torch.randperm(users, generator=generator).split(size):
        length = lengths[chunk].sort().values
        width = int(length.max())
        whole = torch.randint(1, items, (len(length), width + 1), generator=generator)
        real = torch.arange(width) < length[:, None]
        yield whole[:, :-1] * real, whole[:, 1:] * real, length


def head_by_head(encoder: DualEncoder) -> DualEncoder:
    """Return a copy that computes attention head by head."""
    slow = copy.deepcopy(encoder)
    for direction in (slow.past, slow.future):
        for layer in direction.layers:
            layer.attention = NaiveAttention(layer.attention)
    return slow


def pad(batch: tuple[Tensor, Tensor, Tensor], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch padded to ``width`` columns, as the published code pads every batch.

    The longest rows come first, because only rows in ascending order are split into groups with less padding.
    """
    items, targets, lengths = batch
    extra = (0, width - items.shape[1])
    return nn.functional.pad(items, extra).flip(0), nn.functional.pad(targets, extra).flip(0), lengths.flip(0)


class Variant:
    """An encoder with head, loss and optimizer; ``step`` trains on a batch and records the seconds."""

    def __init__(self, encoder: Encoder, width: int | None = None) -> None:
        self.encoder = encoder.train()
        self.head = OutputHead(Euclidean(), encoder.item_embedding.weight)
        self.loss = CrossEntropy()
        parameters = [*encoder.parameters(), encoder.item_embedding.weight]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)
        self.width = width
        self.seconds: list[float] = []
        self.encoder_seconds: list[float] = []

    def step(self, batch: tuple[Tensor, Tensor, Tensor]) -> None:
        """Train on one batch; a second pass without the loss measures the encoder alone."""
        batch = pad(batch, self.width) if self.width else batch
        start = time.perf_counter()
        self.optimizer.zero_grad()
        self._objective(batch, lambda states, answers, rows: self.loss(states, answers, self.head)).backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        self._objective(batch, lambda states, answers, rows: states.square().mean()).backward()
        self.encoder_seconds.append(time.perf_counter() - start)

    def _objective(self, batch, loss_of) -> Tensor:
        items, targets, lengths = batch
        if isinstance(self.encoder, DualEncoder):
            return self.encoder.training_loss(items, targets, lengths, loss_of)[0]
        return loss_of(*supervised_states(self.encoder, items, targets, lengths))


def main() -> None:
    """Run all variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=22_363)
    parser.add_argument("--items", type=int, default=12_102, help="rows of the item matrix, padding included")
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=24, help="number of batches to train on, of 88 (0: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    def embedding() -> nn.Embedding:
        table = nn.Embedding(arguments.items, 64, padding_idx=0)
        nn.init.normal_(table.weight, std=0.02)
        return table

    size = {"max_length": arguments.length, "n_layers": 2, "n_heads": 8, "inner_size": 64}
    dual = DualRecEncoder(embedding(), **size)
    variants = {
        "SASRecCE": Variant(TransformerEncoder(embedding(), **size, hidden_dropout_prob=0.5, attn_dropout_prob=0.5)),
        "DualRec, past only": Variant(DualRecEncoder(embedding(), **size, dual_directions="past")),
        "DualRec": Variant(dual),
        "DualRec, transfer over attention": Variant(DualRecEncoder(embedding(), **size, dual_transfer="attention")),
        "DualRec, head by head": Variant(head_by_head(dual)),
        f"same, padded to {arguments.length} (published)": Variant(head_by_head(dual), arguments.length),
    }
    count = positions = 0
    # an interrupted benchmark prints what it has measured
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for batch in batches(arguments.users, arguments.items, arguments.length, arguments.batch, seed=0):
            if count == 0:
                for variant in variants.values():  # first touch: allocations and kernels
                    variant.step(batch)
                    variant.seconds.clear()
                    variant.encoder_seconds.clear()
            for variant in variants.values():
                variant.step(batch)
            count, positions = count + 1, positions + int(batch[2].sum())
            if count == arguments.batches:
                break
    except KeyboardInterrupt:
        for variant in variants.values():  # whole rounds only
            del variant.seconds[count:], variant.encoder_seconds[count:]
        if count == 0:
            raise
    print(f"cpu {platform.processor() or platform.machine()}, {arguments.threads} threads, torch {torch.__version__}")
    print(
        f"{count} batches of {arguments.batch}, {positions} pairs, {arguments.items - 1} items, d 64, 2 layers, "
        f"8 heads, longest {arguments.length}, exact cross-entropy, float32"
    )
    print(f"{'variant':<40}{'seconds':>9}{'x SASRecCE':>12}{'encoder s':>11}{'x SASRecCE':>12}{'median batch ms':>17}")
    base = variants["SASRecCE"]
    for name, variant in variants.items():
        total, encoder = sum(variant.seconds), sum(variant.encoder_seconds)
        print(
            f"{name:<40}{total:>9.2f}{total / sum(base.seconds):>12.2f}{encoder:>11.2f}"
            f"{encoder / sum(base.encoder_seconds):>12.2f}{1000 * statistics.median(variant.seconds):>17.1f}"
        )


if __name__ == "__main__":
    main()
