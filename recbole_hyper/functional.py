"""Logits and losses as plain functions of tensors, for every geometry and any training loop.

Every loss takes ``states`` (n, d), ``targets`` (n,) int64, ``weight`` (m, d) and ``offset`` (m,) or None (a bias, or
the hyperplane offset of a Poincare head). Options of the head are ``geometry``, ``curvature`` and ``padding_idx``
(:class:`recbole_hyper.losses.inputs.HeadOptions`); the class of the loss describes its other options. ``generator``
draws all random numbers. A loss returns a 0-d mean over the rows, and raises ValueError for invalid shapes, dtypes,
targets or options.
"""

from typing import Unpack

import torch
from torch import Generator, Tensor

from recbole_hyper.curvature.gromov import gromov_delta
from recbole_hyper.geometry.base import Theta
from recbole_hyper.losses import _pairs, ce, rece, sampled_ce, sce
from recbole_hyper.losses.gbce import calibration, check_t, generalised_binary_cross_entropy
from recbole_hyper.losses.inputs import (
    HeadOptions,
    check_items,
    check_rows,
    check_shapes,
    checked_head,
    checked_negatives,
    geometry_of,
)
from recbole_hyper.losses.negatives import uniform_set

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


def poincare_logits(states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Theta) -> Tensor:
    """Return the logits (n, m) of hyperbolic multinomial logistic regression, safe in float32 far from the origin.

    See :class:`recbole_hyper.geometry.poincare.Poincare`: states are Euclidean, rows of ``weight`` the tangent vectors
    and ``offset`` the scalars of the hyperplanes; float32 where the inputs are half precision.
    """
    check_shapes(states, weight, offset)
    return geometry_of("poincare").logits(states, weight, offset, theta=curvature)


def cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    memory_budget: int | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    **head: Unpack[HeadOptions],
) -> Tensor:
    """Return the exact cross-entropy without the n x m logits in memory; ``reduction`` "none" gives (n,) losses.

    See :func:`recbole_hyper.losses.ce.exact_cross_entropy`.
    """
    checked = checked_head(states, targets, weight, offset, **head)
    return ce.exact_cross_entropy(
        states,
        targets,
        weight,
        offset,
        checked.geometry,
        theta=checked.theta,
        padding_idx=checked.padding_idx,
        memory_budget=memory_budget,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def bce_plus(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_negatives: int = 256,
    negatives: Tensor | None = None,
    generator: Generator | None = None,
    **head: Unpack[HeadOptions],
) -> Tensor:
    """Return BCE+: :func:`gbce` with t = 0."""
    tensors = (states, targets, weight, offset)
    return gbce(*tensors, n_negatives=n_negatives, t=0.0, negatives=negatives, generator=generator, **head)


def gbce(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None = None,
    *,
    n_negatives: int = 256,
    t: float = 0.75,
    negatives: Tensor | None = None,
    generator: Generator | None = None,
    **head: Unpack[HeadOptions],
) -> Tensor:
    """Return gBCE: :class:`recbole_hyper.losses.gbce.GeneralisedBinaryCrossEntropy`.

    ``negatives`` (n, k) replace the draws; none may be its row's target.
    """
    checked = checked_head(states, targets, weight, offset, **head)
    check_t(t)
    drawn = checked_negatives(negatives, n_negatives, targets, checked, generator)
    positive, negative = _pairs.target_and_negative_logits(states, targets, drawn, checked)
    beta = calibration(drawn.shape[1], checked.n_items - (checked.padding_idx is not None), t)
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
    generator: Generator | None = None,
    **head: Unpack[HeadOptions],
) -> Tensor:
    """Return CE-: :func:`recbole_hyper.losses.sampled_ce.sampled_cross_entropy`, one drawn set for all rows.

    ``negatives`` (S, k) are sets to use instead, and ``rows`` (n,) the set of each row (None if there is one set).
    """
    checked = checked_head(states, targets, weight, offset, **head)
    if negatives is None:
        negatives = uniform_set(n_negatives, checked.n_items, checked.padding_idx, targets.device, generator)[None]
    elif negatives.dim() != 2 or not negatives.numel():
        raise ValueError(f"negatives must have shape (sets, k) with k >= 1, got {tuple(negatives.shape)}")
    check_items(negatives, checked)
    if rows is None:
        if len(negatives) != 1:
            raise ValueError(f"{len(negatives)} sets of negatives need rows (n,), the set of each row")
        rows = torch.zeros_like(targets)
    check_rows(rows, len(targets), len(negatives))
    return sampled_ce.sampled_cross_entropy(states, targets, checked, negatives, rows)


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
    generator: Generator | None = None,
    return_stats: bool = False,
    **head: Unpack[HeadOptions],
) -> Tensor | tuple[Tensor, dict[str, float]]:
    """Return SCE, with its statistics if ``return_stats``: :func:`recbole_hyper.losses.sce.scalable_cross_entropy`."""
    checked = checked_head(states, targets, weight, offset, **head)
    loss, statistics = sce.scalable_cross_entropy(
        states,
        targets,
        checked,
        n_buckets=n_buckets,
        bucket_size_x=bucket_size_x,
        bucket_size_y=bucket_size_y,
        mix=mix,
        generator=generator,
    )
    return (loss, {name: float(value) for name, value in statistics.items()}) if return_stats else loss


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
    generator: Generator | None = None,
    **head: Unpack[HeadOptions],
) -> Tensor:
    """Return RECE: :func:`recbole_hyper.losses.rece.reduced_cross_entropy`."""
    checked = checked_head(states, targets, weight, offset, **head)
    return rece.reduced_cross_entropy(
        states,
        targets,
        checked,
        n_buckets=n_buckets,
        buckets_per_chunk=buckets_per_chunk,
        n_extra_chunks=n_extra_chunks,
        rounds=rounds,
        generator=generator,
    )
