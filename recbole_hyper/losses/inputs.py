"""Checks of the tensors that users pass to :mod:`recbole_hyper.functional`."""

from typing import TypedDict

import torch
from torch import Tensor

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.geometry.base import Geometry, Theta
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.negatives import uniform_negatives
from recbole_hyper.options import names_of_files, part_in_file


class HeadOptions(TypedDict, total=False):
    """Options of the head that scores states against classes.

    geometry: the name of a geometry, "euclidean" (the default), "poincare" or "cosine", or a Geometry with its options.
    curvature: c > 0 of a curved geometry, a float or a 0-d tensor (gradient flows); 1 by default. If the geometry
        learns its temperature, a tensor here is that temperature.
    padding_idx: a class that is never scored and may not be a target; None by default.
    """

    geometry: str | Geometry
    curvature: Theta
    padding_idx: int | None


def geometry_of(geometry: str | Geometry) -> Geometry:
    """Return ``geometry`` itself, or the geometry with that name."""
    if isinstance(geometry, Geometry):
        return geometry
    if (known := part_in_file("geometry", geometry)) is None:
        known = names_of_files("geometry")
        hint = did_you_mean(repr(geometry), map(repr, known), " Did you mean ", n=1)
        raise ConfigError(f"geometry: {geometry!r} is unknown; known: {', '.join(known)}.{hint} Or pass a Geometry")
    return known()


def checked_head(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    *,
    geometry: str | Geometry = "euclidean",
    curvature: Theta = 1.0,
    padding_idx: int | None = None,
) -> OutputHead:
    """Return the head of ``weight`` (m, d) and ``offset`` (m,) that scores states (n, d) with targets (n,) int64.

    ValueError for wrong shapes, dtypes or targets, no rows, an unknown geometry, a curvature that is not above 0, or a
    padding class that is out of range, the only class, or a target.
    """
    check_shapes(states, weight, offset)
    head = OutputHead(geometry_of(geometry), weight, offset=offset, theta=curvature, padding_idx=padding_idx)
    n_items = weight.shape[0]
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64, got {targets.dtype}; use targets.long()")
    if targets.shape != states.shape[:1]:
        raise ValueError(f"targets must have shape ({states.shape[0]},), one per state, got {tuple(targets.shape)}")
    if not len(targets):
        raise ValueError("states and targets are empty: the mean loss of zero rows is undefined")
    if padding_idx is not None and not 0 <= padding_idx < n_items:
        raise ValueError(f"padding_idx must be None or in 0..{n_items - 1}, got {padding_idx}")
    if padding_idx is not None and n_items < 2:
        raise ValueError("the padding class is the only class; there is nothing to score")
    _check_range("targets", targets, n_items)
    if padding_idx is not None and bool((targets == padding_idx).any()):
        raise ValueError(f"a target equals padding_idx={padding_idx}, which is never scored; drop these rows before")
    return head


def checked_negatives(
    negatives: Tensor | None, k: int, targets: Tensor, head: OutputHead, generator: torch.Generator | None
) -> Tensor:
    """Return ``negatives`` (n, k), or draw k for each row: uniformly with replacement, never the target or padding.

    ValueError for an empty tensor, or for a negative that is out of range, its row's target, or padding.
    """
    if negatives is None:
        return uniform_negatives(targets, k, head.n_items, head.padding_idx, generator)
    if negatives.dim() != 2 or len(negatives) != len(targets) or not negatives.shape[1]:
        raise ValueError(f"negatives must have shape ({len(targets)}, k) with k >= 1, got {tuple(negatives.shape)}")
    check_items(negatives, head)
    if bool((negatives == targets.unsqueeze(1)).any()):
        raise ValueError("a negative equals its own target; draw again")
    return negatives


def _check_range(name: str, values: Tensor, stop: int, what: str = "") -> None:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= stop:
        raise ValueError(f"{name} must be in 0..{stop - 1}{what}, got values from {low} to {high}")


def check_items(items: Tensor, head: OutputHead) -> None:
    """Raise ValueError for a negative that is out of range or padding."""
    _check_range("negatives", items, head.n_items)
    if head.padding_idx is not None and bool((items == head.padding_idx).any()):
        raise ValueError(f"a negative equals padding_idx={head.padding_idx}, which is never scored")


def check_rows(rows: Tensor, n: int, n_sets: int) -> None:
    """Raise ValueError unless ``rows`` (n,) are numbers of sets."""
    if rows.shape != (n,) or rows.dtype == torch.bool or rows.is_floating_point() or rows.is_complex():
        raise ValueError(f"rows must be whole numbers of shape ({n},), got {rows.dtype} of shape {tuple(rows.shape)}")
    _check_range("rows", rows, n_sets, ", the sets of negatives")


def check_shapes(states: Tensor, weight: Tensor, offset: Tensor | None) -> None:
    """Raise ValueError unless states (n, d), weight (m, d) and offset (m,) agree and are floating point."""
    if states.dim() != 2 or weight.dim() != 2 or states.shape[1] != weight.shape[1]:
        shapes = f"{tuple(states.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"states (n, d) and weight (m, d) must share d, got {shapes}")
    if offset is not None and offset.shape != weight.shape[:1]:
        raise ValueError(f"offset must have shape ({weight.shape[0]},), got {tuple(offset.shape)}")
    for name, tensor in (("states", states), ("weight", weight), ("offset", offset)):
        if tensor is not None and not tensor.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
