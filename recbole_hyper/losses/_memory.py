"""How many bytes the sampled losses take at their peak, in terms of their pieces."""

from __future__ import annotations

import torch

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.head import rows_of_a_piece, scores_all

INDEX = 8


def _itemsize(dtype: torch.dtype) -> int:
    return max(4, torch.empty((), dtype=dtype).element_size())


def _linked(geometry: Geometry | None) -> bool:
    return geometry is None or geometry.has_link


def pair_bytes(n: int, k: int, d: int, n_items: int, dtype: torch.dtype, geometry: Geometry | None) -> int:
    """Return the peak of losses over own negatives (n, k): the draws, or the logits with one piece."""
    size = _itemsize(dtype)
    cells = n * (k + 1)
    rows = min(n, rows_of_a_piece(n_items, k + 1, d))
    if scores_all(n_items, k + 1):
        piece = _all_items_piece(rows, d, n_items, size, geometry)
    else:
        piece = _pair_piece(rows, k, d, size, geometry)
    return max(3 * cells * INDEX, cells * (INDEX + 2 * size) + piece + n * d * size)


def _pair_piece(rows: int, k: int, d: int, size: int, geometry: Geometry | None) -> int:
    """Return the bytes of one piece of gathered items with its states: few candidates leave more states to a piece."""
    copies = 5 + 2.4 / (k + 1) if _linked(geometry) else 3 + 3.6 / (k + 1)
    return int(rows * (k + 1) * (d + 1) * size * copies)


def _all_items_piece(rows: int, d: int, n_items: int, size: int, geometry: Geometry | None) -> int:
    """Return the bytes of the logits of some states with all items, and of the items."""
    tile, items = rows * n_items * size, n_items * (d + 1) * size
    return int(5 * tile + 2.4 * items) if _linked(geometry) else int(1.9 * tile + 1.4 * items)


def group_bytes(n: int, k: int, d: int, dtype: torch.dtype, geometry: Geometry | None, rows: int) -> int:
    """Return the peak of losses over groups of ``rows`` rows that share k candidates."""
    size = _itemsize(dtype)
    piece = min(rows * k, _gather.LOGITS) * size * (6.5 if _linked(geometry) else 4.2)
    targets = int(min(n * (d + 1), _gather.PIECE) * size * (7.4 if _linked(geometry) else 3.2))
    return max(int(piece), targets) + 2 * n * d * size + 6 * n * INDEX


def sce_bytes(
    n: int,
    d: int,
    n_buckets: int,
    size_x: int,
    size_y: int,
    block: int,
    dtype: torch.dtype,
    geometry: Geometry | None,
) -> int:
    """Return the peak of SCE: the logits of some buckets, or the search."""
    size = _itemsize(dtype)
    together = min(n_buckets, max(1, _gather.LOGITS // (size_x * size_y)))
    logits = together * size_x * size_y * size * (4 if _linked(geometry) else 3)
    gathered = together * (size_x + size_y) * d * size
    found = n_buckets * (size_x + size_y) * INDEX
    search = n_buckets * (n + block) * size + (n + block) * d * size
    return max(logits + gathered + n * d * size, search) + found


def rece_bytes(
    n: int,
    d: int,
    n_items: int,
    buckets: int,
    together: int,
    rows: int,
    met: int,
    rounds: int,
    dtype: torch.dtype,
    geometry: Geometry | None,
) -> int:
    """Return the peak of RECE: all rounds' orders and chunks, and the logits of some chunks."""
    size = _itemsize(dtype)
    logits = together * rows * met * size * (4 if _linked(geometry) else 8)
    gathered = together * (met + rows) * d * size * (4.5 if _linked(geometry) else 3)
    orders = rounds * (n + n_items) * (INDEX + 4)
    return logits + int(gathered) + orders + n * d * size + rounds * n * (3 * INDEX + 3 * size)
