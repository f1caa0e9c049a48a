"""RECE: logits between chunks of states and items that random projections sort together, over several rounds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recbole_hyper.components import component
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses import _memory, _pairs
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.losses.sce import SEARCH_BLOCK


@torch.no_grad()
def sort_by_direction(
    states: Tensor, head: Head, *, n_buckets: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return rows (n,) and items (m,), without padding, in the order of the direction with the largest projection.

    Directions are n_buckets Gaussian vectors; equal directions keep the order of the indices.
    """
    geometry = head.geometry
    own = states.detach().to(torch.promote_types(states.dtype, torch.float32))
    lifted = geometry.search_states(own, curvature=head.curvature, offset=head.offset is not None)
    directions = torch.randn(n_buckets, lifted.shape[1], generator=generator, device=own.device, dtype=lifted.dtype)
    rows = torch.argsort((lifted @ directions.t()).argmax(1), stable=True)
    best = [
        (vectors.to(lifted.dtype) @ directions.t()).argmax(1)
        for _, vectors in _pairs.item_search_blocks(geometry, head, SEARCH_BLOCK)
    ]
    items = torch.argsort(torch.cat(best), stable=True)
    return rows, items if head.padding_idx is None else items[items != head.padding_idx]


def chunk_of(order: Tensor, total: int, n_chunks: int, n_buckets: int) -> Tensor:
    """Return the chunk (total,) of each index, for ``order`` padded to a multiple of n_buckets and cut equally.

    Indices that ``order`` does not hold get a chunk far from all others.
    """
    size = math.ceil(len(order) / n_buckets) * n_buckets // n_chunks
    chunks = torch.full((total,), -(1 << 30), device=order.device, dtype=torch.int32)
    chunks[order] = (torch.arange(len(order), device=order.device) // size).int()
    return chunks


def reduced_cross_entropy(
    states: Tensor,
    targets: Tensor,
    head: Head,
    *,
    n_buckets: int,
    buckets_per_chunk: int = 1,
    n_extra_chunks: int = 1,
    rounds: int = 8,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the RECE loss, as the reference code of the RECE paper (Gusak et al. 2024) computes it.

    In each round rows and items are sorted by their nearest of n_buckets random directions and cut into
    n_buckets / buckets_per_chunk chunks; row chunk m meets item chunks m - n_extra_chunks .. m + n_extra_chunks. A
    row's candidates over all rounds, each weighted by 1 / (times it occurs there), and its target make a softmax.
    Like the code: plain Gaussian directions, no rotations, no sign pairs. Unlike it, the items that fill up the last
    chunk are left out instead of being scored as zero vectors.

    Raises:
        ValueError: a number below 1 (n_extra_chunks: below 0), or buckets_per_chunk not dividing n_buckets.
    """
    check_sizes(n_buckets, buckets_per_chunk, n_extra_chunks, rounds)
    n, n_items = len(states), head.n_items
    n_chunks = n_buckets // buckets_per_chunk
    orders = [sort_by_direction(states, head, n_buckets=n_buckets, generator=generator) for _ in range(rounds)]
    row_chunks = torch.stack([chunk_of(rows, n, n_chunks, n_buckets) for rows, _ in orders])
    item_chunks = torch.stack([chunk_of(items, n_items, n_chunks, n_buckets) for _, items in orders])

    def correction(rows: Tensor, items: Tensor) -> Tensor:
        """log of the number of rounds in which a row meets an item, (1, a, b)."""
        times = torch.zeros(1, rows.shape[1], items.shape[1], dtype=torch.float32, device=rows.device)
        for own_chunk, met_chunk in zip(row_chunks, item_chunks, strict=True):
            times += (own_chunk[rows].unsqueeze(2) - met_chunk[items].unsqueeze(1)).abs_() <= n_extra_chunks
        return times.log_()

    groups, order = [], []
    for round_, (rows, items) in enumerate(orders):
        size_x = math.ceil(len(rows) / n_buckets) * n_buckets // n_chunks
        size_y = math.ceil(len(items) / n_buckets) * n_buckets // n_chunks
        for chunk in range(math.ceil(len(rows) / size_x)):
            own = rows[chunk * size_x : (chunk + 1) * size_x]
            met = items[max(0, chunk - n_extra_chunks) * size_y : (chunk + n_extra_chunks + 1) * size_y]
            if not len(met):
                continue
            step = max(1, _pairs.LOGITS // len(met))
            for part in own.split(step):
                groups.append(_pairs.Group(part.unsqueeze(0), met.unsqueeze(0), targets[part].unsqueeze(0)))
                order.append(part + round_ * n)
    found, positive = _pairs.group_logsumexp(head, states, targets, groups, correction)
    sums = positive.new_full((rounds * n,), _pairs.never(positive.dtype))
    if order:
        sums = sums.index_put((torch.cat(order),), found)
    return _pairs.softmax_loss(torch.logsumexp(sums.view(rounds, n), dim=0), positive).mean()


def check_sizes(n_buckets: int, buckets_per_chunk: int, n_extra_chunks: int, rounds: int) -> None:
    """Raise ValueError for impossible settings."""
    for name, value, least in (
        ("n_buckets", n_buckets, 1),
        ("buckets_per_chunk", buckets_per_chunk, 1),
        ("n_extra_chunks", n_extra_chunks, 0),
        ("rounds", rounds, 1),
    ):
        if value < least:
            raise ValueError(f"rece_{name} must be at least {least}, got {value}")
    if n_buckets % buckets_per_chunk:
        raise ValueError(f"rece_buckets_per_chunk={buckets_per_chunk} must divide rece_n_buckets={n_buckets}")


@component("losses", "rece")
class ReducedCrossEntropy(Loss):
    """RECE (Gusak et al. 2024): see ``reduced_cross_entropy``.

    Args:
        n_buckets: directions per round; None for sqrt(4 (1 + 2 n_extra_chunks) min(items, rows)), the code's rule.
        buckets_per_chunk: directions that share a chunk; divides n_buckets.
        n_extra_chunks: neighbour chunks met on each side.
        rounds: independent sortings.

    Raises:
        ValueError: impossible settings.
    """

    def __init__(
        self,
        *,
        n_buckets: int | None = None,
        buckets_per_chunk: int = 1,
        n_extra_chunks: int = 1,
        rounds: int = 8,
    ) -> None:
        super().__init__()
        check_sizes(buckets_per_chunk if n_buckets is None else n_buckets, buckets_per_chunk, n_extra_chunks, rounds)
        self.n_buckets, self.buckets_per_chunk = n_buckets, buckets_per_chunk
        self.n_extra_chunks, self.rounds = n_extra_chunks, rounds

    def buckets(self, n: int, n_items: int) -> int:
        """Return the number of directions for n rows and n_items items."""
        wanted = self.n_buckets or int(math.sqrt(4 * (1 + 2 * self.n_extra_chunks) * min(n_items, n)))
        return max(1, wanted // self.buckets_per_chunk) * self.buckets_per_chunk

    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean loss; ``negatives`` is not used."""
        return reduced_cross_entropy(
            states,
            targets,
            head,
            n_buckets=self.buckets(len(states), head.n_items),
            buckets_per_chunk=self.buckets_per_chunk,
            n_extra_chunks=self.n_extra_chunks,
            rounds=self.rounds,
        )

    def memory_bytes(
        self,
        n: int,
        d: int,
        n_items: int,
        dtype: torch.dtype = torch.float32,
        *,
        geometry: Geometry | None = None,
    ) -> int:
        """Return the bytes of the orders of all rounds and of one piece of logits."""
        n_chunks = self.buckets(n, n_items) // self.buckets_per_chunk
        met = min(n_items, (1 + 2 * self.n_extra_chunks) * math.ceil(n_items / n_chunks))
        return _memory.rece_bytes(n, d, n_items, math.ceil(n / n_chunks), met, self.rounds, dtype, geometry)
