"""RECE: logits between chunks of states and items that are sorted by random projections, in several rounds."""

import math
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from torch import Tensor

from recbole_hyper.geometry import _gather
from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.options import Option
from recbole_hyper.values import NonNegativeInt, PositiveInt


@torch.no_grad()
def sort_by_direction(states: Tensor, head: Head, n_buckets: int) -> tuple[Tensor, Tensor]:
    """Return rows (n,) and items (m,), without padding, sorted by the direction of their largest projection.

    Directions are n_buckets Gaussian vectors; equal directions keep the order of the indices.
    """
    lifted = _pairs.search_states(states, head)
    directions = torch.randn(n_buckets, lifted.shape[1], device=lifted.device, dtype=lifted.dtype)
    blocks = (vectors.to(lifted.dtype) for _, vectors in _pairs.item_search_blocks(head))
    best = torch.cat([(vectors @ directions.t()).argmax(1) for vectors in blocks])
    rows = torch.argsort((lifted @ directions.t()).argmax(1), stable=True)
    items = torch.argsort(best, stable=True)
    if head.padding_idx is None:
        return rows, items
    # the place of padding is dropped without waiting for the GPU
    place = torch.arange(len(items) - 1, device=items.device)
    return rows, items[place + (place >= (items == head.padding_idx).int().argmax())]


class _Chunks:
    """Sorted indices, cut into equal chunks, as if ``order`` were padded to a multiple of n_buckets."""

    def __init__(self, order: Tensor, total: int, n_chunks: int, n_buckets: int) -> None:
        self.size = math.ceil(len(order) / n_buckets) * n_buckets // n_chunks
        self.order = order
        # (total,) the chunk of each index, far from all if missing in ``order``; small, as pairs of them are compared
        dtype = torch.int16 if n_chunks < 1 << 13 else torch.int32
        self.of = torch.full((total,), -2 * n_chunks, device=order.device, dtype=dtype)
        self.of[order] = (torch.arange(len(order), device=order.device) // self.size).to(dtype)

    def windows(self, chunks: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        """Return the indices in chunks m - reach .. m + reach for each m in ``chunks``, and which of them exist."""
        span = torch.arange((2 * reach + 1) * self.size, device=chunks.device)
        place = ((chunks - reach) * self.size).unsqueeze(1) + span
        exists = (place >= 0) & (place < len(self.order))
        return self.order[place.clamp_(0, len(self.order) - 1)], exists


class ReducedCrossEntropy(Loss):
    """RECE, as the reference code of its paper (Gusak et al. 2024) computes it.

    Each round sorts rows and items by the nearest of n_buckets random directions and cuts them into
    n_buckets / buckets_per_chunk chunks; row chunk m meets item chunks m - n_extra_chunks .. m + n_extra_chunks. The
    softmax of a row is over its target and its candidates of all rounds, each weighted by 1 / (times it occurs).
    Directions are plain Gaussian, without rotations and sign pairs, as in the code. The code fills the last chunk with
    zero vectors, which are left out here.
    """

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        n_buckets, per_chunk = options["n_buckets"], options["buckets_per_chunk"]
        if n_buckets is not None and n_buckets % per_chunk:
            raise ValueError(f"rece_buckets_per_chunk={per_chunk} must divide rece_n_buckets={n_buckets}")

    def __init__(
        self,
        *,
        n_buckets: Annotated[
            PositiveInt | None,
            Option(
                "random directions per round; ~ is sqrt(4 (1 + 2 rece_n_extra_chunks) min(items, rows)); RECE code",
                key="rece_n_buckets",
            ),
        ] = None,
        buckets_per_chunk: Annotated[
            PositiveInt,
            Option("directions per chunk, divides rece_n_buckets; RECE code", key="rece_buckets_per_chunk"),
        ] = 1,
        n_extra_chunks: Annotated[
            NonNegativeInt, Option("neighbour chunks on each side; RECE code", key="rece_n_extra_chunks")
        ] = 1,
        rounds: Annotated[PositiveInt, Option("independent sortings; RECE code", key="rece_rounds")] = 8,
    ) -> None:
        super().__init__()
        self.check(0, n_buckets=n_buckets, buckets_per_chunk=buckets_per_chunk)
        self.n_buckets, self.buckets_per_chunk = n_buckets, buckets_per_chunk
        self.n_extra_chunks, self.rounds = n_extra_chunks, rounds

    def buckets(self, n: int, n_items: int) -> int:
        """Return the number of directions for n rows and n_items items."""
        n_buckets = self.n_buckets or int(math.sqrt(4 * (1 + 2 * self.n_extra_chunks) * min(n_items, n)))
        return max(1, n_buckets // self.buckets_per_chunk) * self.buckets_per_chunk

    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean loss; ``negatives`` is not used."""
        n, n_items = len(states), head.n_items
        n_buckets = self.buckets(n, n_items)
        n_chunks = n_buckets // self.buckets_per_chunk
        rounds_x, rounds_y = [], []
        for _ in range(self.rounds):
            rows, items = sort_by_direction(states, head, n_buckets)
            rounds_x.append(_Chunks(rows, n, n_chunks, n_buckets))
            rounds_y.append(_Chunks(items, n_items, n_chunks, n_buckets))
        reach = min(self.n_extra_chunks, n_chunks - 1)  # no chunks are beyond the first and the last

        def correction(rows: Tensor, items: Tensor) -> Tensor:
            """Return the log of the number of rounds in which a row meets an item, (g, a, b); 0 if it never does."""
            times = torch.zeros(*rows.shape, items.shape[1], dtype=torch.int16, device=rows.device)
            for x, y in zip(rounds_x, rounds_y, strict=True):
                times += (reach + 1 - (x.of[rows].unsqueeze(2) - y.of[items].unsqueeze(1)).abs_()).clamp_(0, 1)
            return times.clamp_(min=1).float().log_()

        def groups() -> Iterator[_pairs.Group]:
            for x, y in zip(rounds_x, rounds_y, strict=True):
                used = torch.arange(math.ceil(n / x.size), device=targets.device)
                step = _gather.groups_at_once(x.size, (2 * reach + 1) * y.size, states.shape[1], states.device)
                for first in range(0, len(used), step):
                    rows, _ = x.windows(used[first : first + step], 0)
                    # only the very last chunk may be short
                    real = slice(0, n - first * x.size)
                    items, exists = y.windows(used[first : first + step], reach)
                    yield _pairs.Group(rows, items, targets[rows], real, exists)

        logsumexp, positive = _pairs.group_logsumexp(head, states, targets, _pairs.Again(groups), correction)
        place = [x.order + number * n for number, x in enumerate(rounds_x)]
        # each row is once in each round
        sums = logsumexp[torch.argsort(torch.cat(place))].view(self.rounds, n)
        return _pairs.softmax_loss(torch.logsumexp(sums, dim=0), positive).mean()
