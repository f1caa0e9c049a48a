"""Attention to one side of the query within a window, over all keys or in blocks. Scores can depend on distance.

Shapes: B users, h heads, L length, k head width. Sequences are right-padded.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.encoders.base import dropout as drop


class Heads(NamedTuple):
    """Heads of an attention layer; each has its own window."""

    query: Tensor  # (B, h, L, k), scaled
    key: Tensor  # (B, h, L, k)
    value: Tensor  # (B, h, L, k)
    # queries of the position scores (B, h, L, k) and vectors of the distances 0..L-1 (h, L, k), or None
    by_position: tuple[Tensor, Tensor] | None
    windows: Sequence[int]
    direction: str  # past or future
    lengths: Tensor  # (B,) real positions

    def take(self, chosen: list[int]) -> Self:
        """Return the ``chosen`` heads."""
        # a slice of neighbours is a view; a list would copy
        together = chosen[-1] - chosen[0] + 1 == len(chosen)
        part = slice(chosen[0], chosen[-1] + 1) if together else chosen
        query, key, value = self.query[:, part], self.key[:, part], self.value[:, part]
        position = self.by_position and (self.by_position[0][:, part], self.by_position[1][part])
        windows = [self.windows[head] for head in chosen]
        return self._replace(query=query, key=key, value=value, by_position=position, windows=windows)


def relative_shift(by_distance: Tensor, direction: str) -> Tensor:
    """Turn scores by distance (..., L, L) into scores by key position, with a pad and a view.

    Column m of ``by_distance`` has distance L-1-m for ``past``, m for ``future``. Entry (i, j) of the result is the
    score at distance |i - j| if key j is on that side of query i. Mask the other side: its entries mean nothing.
    """
    length = by_distance.shape[-1]
    # one more column shifts row i by i in the flat view
    if direction == "past":
        flat = F.pad(by_distance, (1, 0)).flatten(-2)[..., length:]
    else:
        flat = F.pad(by_distance, (0, 1)).flatten(-2)[..., : length * length]
    return flat.unflatten(-1, (length, length))


@functools.cache
def _kept_sizes(windows: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(windows, device=device)


def _sizes(windows: Sequence[int], device: torch.device) -> Tensor:
    """Return the window sizes on a device, which needs one copy in all."""
    return torch.tensor(windows) if device.type == "cpu" else _kept_sizes(tuple(windows), device)


def dense_attention(heads: Heads, dropout: float = 0.0, *, return_maps: bool = False) -> Tensor:
    """Attend with all L x L scores of each head, and mask those outside the window.

    Returns the head outputs (B, h, L, k), or with ``return_maps`` the attention weights (B, h, L, L).
    """
    query, key, value, by_position, windows, direction, lengths = heads
    length = query.shape[2]
    place = torch.arange(length, device=query.device)
    distance = place[:, None] - place if direction == "past" else place - place[:, None]
    mask = ((distance >= 0) & (distance < _sizes(windows, query.device)[:, None, None]))[None]
    if direction == "future":
        # only this direction sees padding; a padded query sees itself, because a row without keys is NaN
        real = (place < lengths[:, None])[:, None, None, :]
        mask = mask & (real | (distance == 0))
    bias = None
    if by_position is not None:
        queries, vectors = by_position
        vectors = vectors.flip(1) if direction == "past" else vectors
        bias = relative_shift(queries @ vectors.transpose(-1, -2), direction).masked_fill(~mask, -math.inf)
    # on a CPU torch's attention with dropout mostly draws the mask; an exported graph needs plain operations
    fused = not (dropout and query.device.type == "cpu") and not torch.compiler.is_exporting()
    if fused and not return_maps:
        mask = mask if bias is None else bias
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=1.0)
    scores = query @ key.transpose(-1, -2)
    weights = (scores.masked_fill(~mask, -math.inf) if bias is None else scores + bias).softmax(dim=-1)
    return weights if return_maps else drop(weights, dropout) @ value


def blocked_attention(heads: Heads, dropout: float = 0.0) -> Tensor:
    """Attend as :func:`dense_attention`, in blocks of queries that see the keys of their block and the one before.

    A block has c = max(windows) - 1 positions, the farthest that a query sees: 2c scores per query instead of L.
    """
    if heads.direction == "past":
        return _blocked_past(heads, None, dropout)
    # the same on the reversed sequence, where padding comes first
    query, key, value = heads.query.flip(2), heads.key.flip(2), heads.value.flip(2)
    position = heads.by_position and (heads.by_position[0].flip(2), heads.by_position[1])
    real = (torch.arange(query.shape[2], device=query.device) < heads.lengths[:, None]).flip(1)
    reverse = heads._replace(query=query, key=key, value=value, by_position=position)
    return _blocked_past(reverse, real, dropout).flip(2)


def _blocked_past(heads: Heads, real: Tensor | None, dropout: float) -> Tensor:
    query, key, value, by_position, windows, *_ = heads
    length = query.shape[2]
    block = max(max(windows) - 1, 1)
    count = -(-length // block)
    extra = count * block - length

    def blocks_of_queries(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, extra)).unflatten(2, (count, block))  # (B, h, blocks, c, k)

    def blocks_of_keys(x: Tensor) -> Tensor:
        # block b sees positions (b-1)c .. (b+1)c - 1, as overlapping views
        return F.pad(x, (0, 0, block, extra)).unfold(2, 2 * block, block)  # (B, h, blocks, k, 2c)

    row = torch.arange(block, device=query.device)[:, None]
    column = torch.arange(2 * block, device=query.device)
    distance = block + row - column
    window = _sizes(windows, query.device)[:, None, None, None]
    inside = (distance >= 0) & (distance < window)  # (h, 1, c, 2c)
    exists = (torch.arange(count, device=query.device)[:, None, None] > 0) | (column >= block)
    mask = (inside & exists)[None]  # (1, h, blocks, c, 2c)
    if real is not None:
        seen = F.pad(real, (block, extra)).unfold(1, 2 * block, block)[:, None, :, None, :]
        mask = mask & (seen | (distance == 0))
    if by_position is None:
        bias = torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, -math.inf)
    else:
        queries, vectors = by_position
        if vectors.shape[1] < block + 1:
            vectors = F.pad(vectors, (0, 0, 0, block + 1 - vectors.shape[1]))
        by_distance = blocks_of_queries(queries) @ vectors[:, : block + 1].flip(1).transpose(-1, -2)[:, None]
        # row r starts at column r, with distance c on the left
        flat = F.pad(by_distance, (0, block)).flatten(-2)[..., : 2 * block * block]
        bias = flat.unflatten(-1, (block, 2 * block)).masked_fill(~mask, -math.inf)
    weights = (blocks_of_queries(query) @ blocks_of_keys(key) + bias).softmax(dim=-1)
    output = drop(weights, dropout) @ blocks_of_keys(value).transpose(-1, -2)
    return output.flatten(2, 3)[:, :, :length]
