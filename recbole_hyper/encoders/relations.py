"""What attention of today reads beside the items: how many places and how much time lie between two of them.

Shapes: B users, L length, Q asking positions (L, or 1 for the newest alone), d width.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recbole_hyper.encoders.base import TimedEncoder, newest
from recbole_hyper.encoders.dropout import Dropout

# natural logarithm of the ratio of one bucket's end to its start; the code of HSTU and FuXi-alpha
BUCKET = 0.301
# what is added to the score of a later item: SiLU makes an exact 0 of it, and of its gradient
LATER = -1e30
# gaps that are computed at one time: 1 MiB stays in the cache
_GAPS = 1 << 17


class Relations(NamedTuple):
    """Relations of asking positions i to all positions j; one table serves every layer.

    Attributes:
        places: (Q, L), or (B, 1, L), i - j, and ``max_length`` where j is later than i.
        gaps: (B, Q, L) int32, the bucket of |t_i - t_j|, and ``n_time_buckets`` + 1 where j is later.
    """

    places: Tensor
    gaps: Tensor


def time_buckets(asking: Tensor, times: Tensor, n_buckets: int, later: Tensor) -> Tensor:
    """Return (B, Q, L) int32 the bucket min(n, floor(log(max(1, |t_i - t_j|)) / 0.301)), n + 1 where ``later``.

    Args:
        asking: (B, Q) float64 times t_i. Differences are taken before anything is rounded: Unix seconds do not fit
            into float32.
        times: (B, L) float64 times t_j.
        n_buckets: the last bucket n.
        later: bool, (Q, L) or (B, 1, L).
    """

    def of_rows(rows: slice) -> Tensor:
        gaps = (asking[rows, :, None] - times[rows, None, :]).abs_().clamp_(min=1)
        buckets = gaps.log_().div_(BUCKET).clamp_(max=n_buckets).to(torch.int32)
        return buckets.masked_fill_(later if later.dim() == 2 else later[rows], n_buckets + 1)

    if torch.compiler.is_exporting() or times.device.type != "cpu":
        return of_rows(slice(None))
    found = torch.empty(*asking.shape, times.shape[1], dtype=torch.int32)
    size = max(1, _GAPS // max(1, asking.shape[1] * times.shape[1]))
    for start in range(0, len(times), size):
        rows = slice(start, start + size)
        found[rows] = of_rows(rows)
    return found


class RelativeWeights(nn.Module):
    """A learned weight for each distance in places and for each bucket of time; all heads share them.

    Args:
        max_length: distances 0 .. ``max_length`` - 1.
        n_buckets: buckets 0 .. ``n_buckets``.
        std: standard deviation that they are drawn with.
    """

    def __init__(self, max_length: int, n_buckets: int, std: float) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.empty(max_length).normal_(std=std))
        self.gap = nn.Parameter(torch.empty(n_buckets + 1).normal_(std=std))

    def of_places(self, relations: Relations, later: float) -> Tensor:
        """Return the weights (Q, L) or (B, 1, L) by distance, ``later`` where an item is later."""
        return _looked_up(self.place, relations.places, later)

    def of_gaps(self, relations: Relations, later: float) -> Tensor:
        """Return the weights (B, Q, L) by time, ``later`` where an item is later."""
        return _looked_up(self.gap, relations.gaps, later)


def _looked_up(weights: Tensor, index: Tensor, later: float) -> Tensor:
    table = torch.cat((weights, weights.new_full((1,), later)))
    # index_select, and its backward, at a fifth of the cost of table[index]
    return table.index_select(0, index.reshape(-1)).view(index.shape)


def head_width(hidden_size: int, n_heads: int, **given: int | None) -> int:
    """Return the one width that is ``given`` by its name, or what a head has of ``hidden_size`` where it is None.

    Raises:
        ValueError: no heads, heads that do not divide d, or a width below 1.
    """
    ((name, width),) = given.items()
    if n_heads < 1 or (width is None and hidden_size % n_heads):
        raise ValueError(f"n_heads={n_heads} does not divide hidden_size={hidden_size}; give {name}")
    if width is not None and width < 1:
        raise ValueError(f"{name}={width}: at least 1 is needed")
    return hidden_size // n_heads if width is None else width


class RelationalBlock(nn.Module):
    """What the blocks of a :class:`RelationalEncoder` are called with."""

    @abstractmethod
    def forward(self, memory: Tensor, relations: Relations, query: Tensor | None = None) -> Tensor:
        """Map (B, L, d) to (B, L, d), or to the ``query`` positions (B, Q, d) alone."""


class RelationalEncoder(TimedEncoder):
    """Causal blocks over item vectors and learned positions, which see the places and the time between two items.

    The input is drop(sqrt(d) e + p), as in the code of HSTU and FuXi-alpha, with positions counted from the oldest item
    of the window; a state thus depends on what comes before it alone. The published code takes the time of the *next*
    item for that of a query, which in training is the target's and which nobody knows when it recommends; here it is
    that of the query's own item.

    A subclass adds ``blocks``, modules with the call of :class:`RelationalBlock`.

    Args:
        item_embedding: shared (n_items, d) table.
        max_length: MAX_ITEM_LIST_LENGTH, the number of learned positions.
        n_time_buckets: the last bucket of time.
        dropout_prob: of the input, in [0, 1).
        layer_norm_eps: epsilon of the norm behind the blocks.

    Raises:
        ValueError: ``n_time_buckets`` below 1.
    """

    blocks: nn.ModuleList

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        max_length: int,
        n_time_buckets: int,
        dropout_prob: float,
        layer_norm_eps: float,
    ) -> None:
        super().__init__(item_embedding)
        if n_time_buckets < 1:
            raise ValueError(f"n_time_buckets={n_time_buckets}: at least 1 is needed")
        width = item_embedding.embedding_dim
        self.max_length, self.n_time_buckets, self.scale = max_length, n_time_buckets, math.sqrt(width)
        self.position_embedding = nn.Embedding(max_length, width)
        bound = 2 / self.scale
        nn.init.trunc_normal_(self.position_embedding.weight, std=1 / self.scale, a=-bound, b=bound)
        self.dropout = Dropout(dropout_prob)
        self.output_norm = nn.LayerNorm(width, eps=layer_norm_eps)

    def forward(self, items: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """Encode ``items`` (B, L) that were chosen at ``times`` (B, L) into states (B, L, d)."""
        states, relations = self._embed(items), self._relations(items, times)
        for block in self.blocks:
            states = block(states, relations)
        return self.output_norm(states)

    def last(self, items: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the states (B, d) at the newest items; the last block asks from there only (not in training)."""
        if self.training:
            return super().last(items, lengths, times)
        states = self._embed(items)
        relations = self._relations(items, times) if len(self.blocks) > 1 else None
        for block in self.blocks[:-1]:
            states = block(states, relations)
        query = newest(states, lengths).unsqueeze(1)
        states = self.blocks[-1](states, self._relations(items, times, lengths - 1), query)
        return self.output_norm(states).squeeze(1)

    def _embed(self, items: Tensor) -> Tensor:
        length = items.shape[1]
        if length > self.max_length:
            raise ValueError(f"{length} items are more than MAX_ITEM_LIST_LENGTH={self.max_length}")
        positions = self.position_embedding.weight[:length]
        return self.dropout(torch.add(positions, self.item_embedding(items), alpha=self.scale))

    def _relations(self, items: Tensor, times: Tensor | None, asking: Tensor | None = None) -> Relations:
        """Return the relations of every position, or of one position (B,) of each row."""
        if times is None:
            times = torch.zeros(items.shape, dtype=torch.float64, device=items.device)
        place = torch.arange(items.shape[1], device=items.device)
        places, asked = place[:, None] - place, times
        if asking is not None:
            places, asked = asking[:, None, None] - place, times.gather(1, asking[:, None])
        later = places < 0
        gaps = time_buckets(asked, times, self.n_time_buckets, later)
        return Relations(places.masked_fill(later, self.max_length), gaps)
