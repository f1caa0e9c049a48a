"""The exact cross-entropy, the logits of the Poincare head and the Gromov delta as functions, for any training loop.

The other losses are modules: ``ScalableCrossEntropy(bucket_size_y=256)(states, targets, head)`` of
:mod:`recbole_hyper.losses.sce`, with a :class:`~recbole_hyper.geometry.head.OutputHead` as head.
"""

import torch
from torch import Tensor

from recbole_hyper.curvature.gromov import gromov_delta
from recbole_hyper.errors import ConfigError
from recbole_hyper.geometry.base import Geometry, Theta
from recbole_hyper.losses import ce
from recbole_hyper.options import names_of_files, part_in_file

__all__ = ["cross_entropy", "gromov_delta", "poincare_logits"]


def poincare_logits(states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Theta) -> Tensor:
    """Return the logits (n, m) of hyperbolic multinomial logistic regression, safe in float32 far from the origin.

    See :class:`recbole_hyper.geometry.poincare.Poincare`: states are Euclidean, rows of ``weight`` the tangent vectors
    and ``offset`` the scalars of the hyperplanes; float32 where the inputs are half precision.
    """
    _check_shapes(states, weight, offset)
    return _geometry_of("poincare").logits(states, weight, offset, theta=curvature)


def cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    geometry: str | Geometry = "euclidean",
    curvature: Theta = 1.0,
    padding_idx: int | None = None,
    memory_budget: int | None = None,
    label_smoothing: float = 0.0,
    row_weights: Tensor | None = None,
) -> Tensor:
    """Return the mean exact cross-entropy without the n x m logits in memory, see ``ce.exact_cross_entropy``.

    Args:
        states: (n, d). targets: (n,) int64.
        weight: (m, d). offset: (m,), a bias or the hyperplane offset of a Poincare head, or None.
        geometry: the name of a geometry, "euclidean", "poincare" or "cosine", or a Geometry with its options.
        curvature: c > 0 of a curved geometry, a float or a 0-d tensor (gradient flows). If the geometry learns its
            temperature, a tensor here is that temperature.
        padding_idx: a class that is never scored and may not be a target.
        memory_budget: bytes of the logits in memory.
        label_smoothing: in [0, 1), the share of a target that is spread over all classes but padding.
        row_weights: (n,) without gradient; with them the result is the weighted sum of the losses.

    Raises:
        ValueError: wrong shapes, dtypes or targets, no rows, an unknown geometry, a curvature that is not above 0, or a
            padding class that is out of range, the only class, or a target.
    """
    _check_shapes(states, weight, offset)
    scoring = _geometry_of(geometry)
    scoring.check_theta(curvature)
    _check_targets(targets, len(states), len(weight), padding_idx)
    return ce.exact_cross_entropy(
        states,
        targets,
        weight,
        offset,
        scoring,
        theta=curvature,
        padding_idx=padding_idx,
        memory_budget=memory_budget,
        label_smoothing=label_smoothing,
        row_weights=row_weights,
    )


def _geometry_of(geometry: str | Geometry) -> Geometry:
    """Return ``geometry`` itself, or the geometry with that name."""
    if isinstance(geometry, Geometry):
        return geometry
    if (named := part_in_file("geometry", geometry)) is None:
        known = ", ".join(names_of_files("geometry"))
        raise ConfigError(f"geometry: {geometry!r} is unknown; known: {known}. Or pass a Geometry")
    made: Geometry = named()
    return made


def _check_targets(targets: Tensor, n: int, n_items: int, padding_idx: int | None) -> None:
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64, got {targets.dtype}; use targets.long()")
    if targets.shape != (n,):
        raise ValueError(f"targets must have shape ({n},), one per state, got {tuple(targets.shape)}")
    if not n:
        raise ValueError("states and targets are empty: the mean loss of zero rows is undefined")
    if padding_idx is not None and not 0 <= padding_idx < n_items:
        raise ValueError(f"padding_idx must be None or in 0..{n_items - 1}, got {padding_idx}")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= n_items:
        raise ValueError(f"targets must be in 0..{n_items - 1}, got values from {low} to {high}")
    if padding_idx is not None and bool((targets == padding_idx).any()):
        raise ValueError(f"a target equals padding_idx={padding_idx}, which is never scored; drop these rows before")


def _check_shapes(states: Tensor, weight: Tensor, offset: Tensor | None) -> None:
    if states.dim() != 2 or weight.dim() != 2 or states.shape[1] != weight.shape[1]:
        shapes = f"{tuple(states.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"states (n, d) and weight (m, d) must share d, got {shapes}")
    if offset is not None and offset.shape != weight.shape[:1]:
        raise ValueError(f"offset must have shape ({weight.shape[0]},), got {tuple(offset.shape)}")
    for name, tensor in (("states", states), ("weight", weight), ("offset", offset)):
        if tensor is not None and not tensor.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
