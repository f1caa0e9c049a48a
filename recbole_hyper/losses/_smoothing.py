"""Label smoothing for the exact cross-entropy: it adds a share of the target's lead over the mean logit."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms, LiftedStates, as_compute
from recbole_hyper.losses import _chunks


def lead_of_targets(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: Geometry,
    curvature: Curvature,
    padding_idx: int | None,
) -> Tensor:
    """Return (n,) how far the logit of each target is above the mean logit of all items but ``padding_idx``.

    Without a link the mean is one product with the mean of the lifted items. With a link it needs two more products
    than the logits, and memory for the lifted items. Arguments as ``exact_cross_entropy``.
    """
    states, weight, offset = as_compute(states, weight, offset)
    own = None if offset is None else offset[targets].unsqueeze(1)
    of_targets = geometry.pair_logits(states, weight[targets].unsqueeze(1), own, curvature=curvature)[:, 0]
    weight, offset = _without(weight, padding_idx), None if offset is None else _without(offset, padding_idx)
    factored = geometry.factored(states, offset, curvature)
    lifted = geometry.lift_states(states, curvature=curvature, offset=offset is not None, factored=factored)
    terms = geometry.lift_items(weight, offset, curvature=curvature, factored=factored)
    if geometry.has_link:
        scale = weight.new_ones(len(weight)) if terms.scale is None else terms.scale
        sums = _SumOfLinks.apply(lifted.vectors, terms.vectors(weight), scale, geometry, lifted, terms)
    else:
        total = weight.sum(0) if terms.multiplier is None else terms.multiplier @ weight
        total = total if terms.extra is None else torch.cat((total, terms.extra.sum(0)))
        sums = lifted.vectors @ total
    return of_targets - sums / len(weight)


def _without(items: Tensor, padding_idx: int | None) -> Tensor:
    if padding_idx is None:
        return items
    rest = items[padding_idx + 1 :]
    return rest if padding_idx == 0 else torch.cat((items[:padding_idx], rest))


class _SumOfLinks(torch.autograd.Function):
    """sum_j scale_j link(<A_i, B_j>), (n,), of lifted states A (n, w) and items B (m, w): tile by tile, twice."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        items: Tensor,
        scale: Tensor,
        geometry: Geometry,
        lifted: LiftedStates,
        terms: ItemTerms,
    ) -> Tensor:
        ctx.save_for_backward(states, items, scale)
        ctx.link = geometry.link_, lifted.exponent, terms.exponent
        sums = states.new_zeros(len(states))
        for rows, part, linked, _ in _tiles(states, items, *ctx.link):
            sums[rows] += linked @ scale[part]
        return sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, items, scale = ctx.saved_tensors
        d_states, d_items, d_scale = (torch.zeros_like(one) for one in (states, items, scale))
        for rows, part, linked, slope in _tiles(states, items, *ctx.link):
            d_scale[part] += gradient[rows] @ linked
            slope *= scale[part]
            d_states[rows] += slope @ items[part]
            d_items[part].addmm_(slope.t(), states[rows] * gradient[rows, None])
        return d_states.mul_(gradient[:, None]), d_items, d_scale, None, None, None


def _tiles(
    states: Tensor, items: Tensor, link_: Any, of_states: Tensor | None, of_items: Tensor | None
) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield rows, items, and the links of their products with their slopes, (h, w) buffers that may be changed."""
    for part in _chunks.spans(0, len(items), _chunks.CPU_BLOCK):
        for rows in _chunks.spans(0, len(states), _chunks.CPU_ROWS):
            linked = states[rows] @ items[part].t()
            slope = torch.empty_like(linked)
            exponent = None
            if of_states is not None and of_items is not None:
                exponent = of_states[rows, None] + of_items[part]
            link_(linked, slope, torch.empty_like(linked), exponent)
            yield rows, part, linked, slope
