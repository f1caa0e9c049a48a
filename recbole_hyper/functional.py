"""Plain functions for anyone's own training loop: logits and losses on tensors, for both geometries."""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_hyper import components
from recbole_hyper.geometry.base import Curvature, Geometry
from recbole_hyper.losses.ce import exact_cross_entropy

_REDUCTIONS = ("mean", "sum", "none")


def poincare_logits(states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature) -> Tensor:
    r"""Return hyperbolic multinomial logistic regression logits, safe in float32 far from the origin.

    .. math:: \frac{2|z|}{\sqrt c}\,\mathrm{asinh}\big(\sinh 2s\cosh b\,\langle\hat F,\hat z\rangle-\cosh 2s\sinh b\big)

    with :math:`s=\sqrt c|F|`, :math:`b=2\sqrt c\,r` and hats for unit vectors,

    which equals the gyrovector formula of Ganea et al. (2018), eq. 25, for the point exp_0(F).

    Args:
        states: (n, d) Euclidean states F.
        weight: (m, d) tangent vectors z of the items' hyperplanes.
        offset: (m,) scalar offsets r, or None for 0.
        curvature: c > 0, a float or a 0-d tensor (gradient flows).

    Returns:
        (n, m) logits; float32 where the inputs are half precision.

    Raises:
        ValueError: shapes that do not agree, or a curvature that is not above 0.
    """
    _check_shapes(states, weight, offset)
    return _geometry("poincare").logits(states, weight, offset, curvature=curvature)


def cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    geometry: str = "euclidean",
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    memory_budget: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the exact cross-entropy over m classes without ever holding the n x m logits.

    Value and gradients equal ``torch.nn.functional.cross_entropy(logits, targets, reduction=reduction)`` over the full
    logits (for euclidean ``states @ weight.T + offset``), with the padding class left out. Gradients are computed in
    the forward pass; for "mean" and "sum" a second backward through the same result raises RuntimeError.

    Args:
        states: (n, d).
        targets: (n,) int64 classes.
        weight: (m, d) one vector per class.
        offset: (m,) one number per class, or None: a bias (euclidean) or the hyperplane offset r (poincare).
        geometry: a registered geometry: "euclidean" or "poincare".
        curvature: c > 0 of a curved geometry, a float or a 0-d tensor (gradient flows).
        padding_idx: a class that is never scored and may not be a target.
        memory_budget: bytes for what grows with rows x classes and for the per-class terms; None for 256 MiB, or
            1/32 of the device's memory if that is less.
        reduction: "mean", "sum" or "none" (which computes the gradients in the backward pass).

    Returns:
        0-d loss, or (n,) losses for "none".

    Raises:
        ValueError: shapes, dtypes or targets that do not agree, an unknown geometry or reduction, a curvature that is
            not above 0, a budget under one row of logits.
    """
    head_geometry = check_inputs(states, targets, weight, offset, geometry, curvature, padding_idx)
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} is unknown; allowed: {', '.join(_REDUCTIONS)}")
    if memory_budget is not None and memory_budget <= 0:
        raise ValueError(f"memory_budget must be above 0 bytes, got {memory_budget}")
    return exact_cross_entropy(
        states,
        targets,
        weight,
        offset,
        head_geometry,
        curvature=curvature,
        padding_idx=padding_idx,
        memory_budget=memory_budget,
        reduction=reduction,
    )


def check_inputs(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: str,
    curvature: Curvature,
    padding_idx: int | None,
) -> Geometry:
    """Check the arguments that all losses share and return the geometry; the message says what is allowed."""
    _check_shapes(states, weight, offset)
    found = _geometry(geometry)
    found.check_curvature(curvature)
    n_items = weight.shape[0]
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64, got {targets.dtype}; use targets.long()")
    if targets.shape != states.shape[:1]:
        raise ValueError(f"targets must have shape ({states.shape[0]},), one per state, got {tuple(targets.shape)}")
    if not len(targets):
        raise ValueError("there is no row: the loss of zero supervised positions is undefined")
    if padding_idx is not None and not 0 <= padding_idx < n_items:
        raise ValueError(f"padding_idx must be None or in 0..{n_items - 1}, got {padding_idx}")
    if padding_idx is not None and n_items < 2:
        raise ValueError("the padding class is the only class; there is nothing to score")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= n_items:
        raise ValueError(f"targets must be in 0..{n_items - 1}, got values from {low} to {high}")
    if padding_idx is not None and bool((targets == padding_idx).any()):
        raise ValueError(f"a target equals padding_idx={padding_idx}, which is never scored; drop these rows before")
    return found


def _geometry(name: str) -> Geometry:
    return components.resolve("geometry", name)()


def _check_shapes(states: Tensor, weight: Tensor, offset: Tensor | None) -> None:
    if states.dim() != 2 or weight.dim() != 2 or states.shape[1] != weight.shape[1]:
        raise ValueError(
            f"states (n, d) and weight (m, d) must share d, got {tuple(states.shape)} and {tuple(weight.shape)}"
        )
    if offset is not None and offset.shape != weight.shape[:1]:
        raise ValueError(f"offset must have shape ({weight.shape[0]},), got {tuple(offset.shape)}")
    for name, tensor in (("states", states), ("weight", weight), ("offset", offset)):
        if tensor is not None and not tensor.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
