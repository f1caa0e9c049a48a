"""Plain functions for anyone's own training loop: logits and losses on tensors, for both geometries."""

from __future__ import annotations

import torch
from torch import Tensor

from recbole_hyper import components
from recbole_hyper.curvature import gromov_delta
from recbole_hyper.data.negatives import uniform_negatives, uniform_set
from recbole_hyper.geometry.base import Curvature, Geometry
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses import _pairs
from recbole_hyper.losses.ce import exact_cross_entropy
from recbole_hyper.losses.gbce import calibration, check_t, generalised_binary_cross_entropy
from recbole_hyper.losses.rece import reduced_cross_entropy as _reduced_cross_entropy
from recbole_hyper.losses.sampled_ce import sampled_cross_entropy as _sampled_cross_entropy
from recbole_hyper.losses.sce import scalable_cross_entropy as _scalable_cross_entropy

__all__ = [
    "bce_plus",
    "cross_entropy",
    "gbce",
    "gromov_delta",
    "poincare_logits",
    "reduced_cross_entropy",
    "sampled_cross_entropy",
    "scalable_cross_entropy",
]

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
        memory_budget: bytes for what grows with rows x classes, the per-class terms and the lifts of the states (3
            numbers per row and coordinate, 6 in poincare); None for 256 MiB, or 1/32 of the device's memory if that is
            less, with the lifts on top where it would not hold them.
        reduction: "mean", "sum" or "none" (which computes the gradients in the backward pass).

    Returns:
        0-d loss, or (n,) losses for "none".

    Raises:
        ValueError: shapes, dtypes or targets that do not agree, an unknown geometry or reduction, a curvature that is
            not above 0, a budget under the lifts and one row of logits.
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


def bce_plus(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_negatives: int = 256,
    negatives: Tensor | None = None,
    geometry: str = "euclidean",
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the mean over rows of :math:`-\frac1{k+1}[\log\sigma(s_t)+\sum_j\log(1-\sigma(s_j))]` (SCE paper, BCE+).

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None.
        n_negatives: k, drawn for each row uniformly with replacement, never the target or ``padding_idx``.
        negatives: (n, k) items to use instead.
        geometry, curvature, padding_idx: as in ``cross_entropy``.
        generator: of the draws.

    Raises:
        ValueError: as ``cross_entropy``; no negatives, or a negative equal to its target or to padding.
    """
    return gbce(
        states,
        targets,
        weight,
        offset,
        n_negatives=n_negatives,
        t=0.0,
        negatives=negatives,
        geometry=geometry,
        curvature=curvature,
        padding_idx=padding_idx,
        generator=generator,
    )


def gbce(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_negatives: int = 256,
    t: float = 0.75,
    negatives: Tensor | None = None,
    geometry: str = "euclidean",
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return gBCE (gSASRec), the mean of :math:`-\frac1{k+1}[\beta\log\sigma(s_t)+\sum_j\log(1-\sigma(s_j))]`.

    beta = alpha (t (1 - 1/alpha) + 1/alpha) with alpha = k / (items - 1); t = 0 is ``bce_plus``. Other arguments and
    errors as there, and ValueError for t outside [0, 1].
    """
    head = _head(states, targets, weight, offset, geometry, curvature, padding_idx)
    check_t(t)
    drawn = _negatives(negatives, n_negatives, targets, head, generator)
    positive, negative = _pairs.target_and_negative_logits(states, targets, drawn, head)
    beta = calibration(drawn.shape[1], head.n_items - (padding_idx is not None), t)
    return generalised_binary_cross_entropy(positive, negative, beta=beta)


def sampled_cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_negatives: int = 256,
    negatives: Tensor | None = None,
    rows: Tensor | None = None,
    geometry: str = "euclidean",
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the mean of :math:`-\log\big(e^{s_t}/(e^{s_t}+\sum_{j\in N} e^{s_j})\big)` (SCE paper, CE-).

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None.
        n_negatives: distinct items of the one set N that all rows share, uniform over all but ``padding_idx``.
        negatives: (S, k) sets to use instead; a row's own target in its set is left out.
        rows: (n,) the set of each row; None with one set.
        geometry, curvature, padding_idx: as in ``cross_entropy``.
        generator: of the draws.

    Raises:
        ValueError: as ``cross_entropy``; no negatives, more than there are items, sets without ``rows``, or ``rows``
            that are not one number of a set per state.
    """
    head = _head(states, targets, weight, offset, geometry, curvature, padding_idx)
    if negatives is None:
        negatives = uniform_set(n_negatives, head.n_items, padding_idx, targets.device, generator).unsqueeze(0)
    elif negatives.dim() != 2 or not negatives.numel():
        raise ValueError(f"negatives must have shape (sets, k) with k >= 1, got {tuple(negatives.shape)}")
    _check_items(negatives, head)
    if rows is None:
        if len(negatives) != 1:
            raise ValueError(f"{len(negatives)} sets of negatives need rows (n,), the set of each row")
        rows = torch.zeros_like(targets)
    _check_rows(rows, len(targets), len(negatives))
    return _sampled_cross_entropy(states, targets, head, negatives, rows)


def scalable_cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_buckets: int,
    bucket_size_x: int,
    bucket_size_y: int,
    mix: bool = True,
    geometry: str = "euclidean",
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    generator: torch.Generator | None = None,
    return_stats: bool = False,
) -> Tensor | tuple[Tensor, dict[str, float]]:
    """Return SCE (Mezentsev et al. 2024): cross-entropy inside random buckets of rows and items.

    With one bucket of all rows and all items it equals ``cross_entropy``.

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None.
        n_buckets: n_b. bucket_size_x: b_x rows (all, where there are fewer). bucket_size_y: b_y items.
        mix: bucket directions are random mixtures of the states.
        geometry, curvature, padding_idx: as in ``cross_entropy``.
        generator: of the directions.
        return_stats: return also the statistics: selected, selected_once, positives_found (shares in [0, 1]).

    Raises:
        ValueError: as ``cross_entropy``; a size below 1; bucket_size_y above the number of items.
    """
    head = _head(states, targets, weight, offset, geometry, curvature, padding_idx)
    loss, statistics = _scalable_cross_entropy(
        states,
        targets,
        head,
        n_buckets=n_buckets,
        bucket_size_x=bucket_size_x,
        bucket_size_y=bucket_size_y,
        mix=mix,
        generator=generator,
    )
    return (loss, statistics) if return_stats else loss


def reduced_cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_buckets: int,
    buckets_per_chunk: int = 1,
    n_extra_chunks: int = 1,
    rounds: int = 8,
    geometry: str = "euclidean",
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return RECE (Gusak et al. 2024): cross-entropy between chunks that random directions sort together.

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None.
        n_buckets: random directions per round.
        buckets_per_chunk: directions that share a chunk; divides n_buckets.
        n_extra_chunks: neighbour chunks met on each side.
        rounds: independent sortings.
        geometry, curvature, padding_idx: as in ``cross_entropy``.
        generator: of the directions.

    Raises:
        ValueError: as ``cross_entropy``; impossible settings.
    """
    head = _head(states, targets, weight, offset, geometry, curvature, padding_idx)
    return _reduced_cross_entropy(
        states,
        targets,
        head,
        n_buckets=n_buckets,
        buckets_per_chunk=buckets_per_chunk,
        n_extra_chunks=n_extra_chunks,
        rounds=rounds,
        generator=generator,
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


def _head(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: str,
    curvature: Curvature,
    padding_idx: int | None,
) -> OutputHead:
    found = check_inputs(states, targets, weight, offset, geometry, curvature, padding_idx)
    return OutputHead(found, weight, offset=offset, curvature=curvature, padding_idx=padding_idx)


def _negatives(
    negatives: Tensor | None, k: int, targets: Tensor, head: OutputHead, generator: torch.Generator | None
) -> Tensor:
    if negatives is None:
        return uniform_negatives(targets, k, head.n_items, head.padding_idx, generator)
    if negatives.dim() != 2 or len(negatives) != len(targets) or not negatives.shape[1]:
        raise ValueError(f"negatives must have shape ({len(targets)}, k) with k >= 1, got {tuple(negatives.shape)}")
    _check_items(negatives, head)
    if bool((negatives == targets.unsqueeze(1)).any()):
        raise ValueError("a negative equals its own target; draw again")
    return negatives


def _check_items(items: Tensor, head: OutputHead) -> None:
    low, high = int(items.min()), int(items.max())
    if low < 0 or high >= head.n_items:
        raise ValueError(f"negatives must be in 0..{head.n_items - 1}, got values from {low} to {high}")
    if head.padding_idx is not None and bool((items == head.padding_idx).any()):
        raise ValueError(f"a negative equals padding_idx={head.padding_idx}, which is never scored")


def _check_rows(rows: Tensor, n: int, n_sets: int) -> None:
    if rows.shape != (n,) or rows.dtype == torch.bool or rows.is_floating_point() or rows.is_complex():
        raise ValueError(f"rows must be whole numbers of shape ({n},), got {rows.dtype} of shape {tuple(rows.shape)}")
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= n_sets:
        raise ValueError(f"rows must be in 0..{n_sets - 1}, the sets of negatives, got values from {low} to {high}")


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
