"""How many bytes the sampled losses take at their peak, in terms of their pieces."""

from __future__ import annotations

import torch

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses import _pairs

INDEX = 8


def _itemsize(dtype: torch.dtype) -> int:
    return max(4, torch.empty((), dtype=dtype).element_size())


def _linked(geometry: Geometry | None) -> bool:
    return geometry is None or geometry.has_link


def pair_bytes(n: int, k: int, d: int, dtype: torch.dtype, geometry: Geometry | None) -> int:
    """Return the peak of losses over own negatives (n, k)."""
    size = _itemsize(dtype)
    piece = min(n * (k + 1) * (d + 1), _gather.PIECE)
    return n * (k + 1) * (2 * INDEX + 4 * size) + piece * size * (5 if _linked(geometry) else 3) + 2 * n * d * size


def group_bytes(n: int, k: int, d: int, dtype: torch.dtype, geometry: Geometry | None, rows: int) -> int:
    """Return the peak of losses over groups of rows that share k candidates."""
    size = _itemsize(dtype)
    piece = min(rows * k, _pairs.LOGITS) * size * (7 if _linked(geometry) else 4) + 6 * k * d * size
    return piece + 2 * n * d * size + 6 * n * INDEX


def sce_bytes(
    n: int,
    d: int,
    n_items: int,
    n_buckets: int,
    size_x: int,
    size_y: int,
    mix: bool,
    dtype: torch.dtype,
    geometry: Geometry | None,
) -> int:
    """Return the peak of SCE."""
    return 0


def rece_bytes(
    n: int,
    d: int,
    n_items: int,
    rows: int,
    met: int,
    rounds: int,
    dtype: torch.dtype,
    geometry: Geometry | None,
) -> int:
    """Return the peak of RECE."""
    return 0
