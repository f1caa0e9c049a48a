"""Label smoothing for the exact cross-entropy: it adds a share of the target's lead over the mean logit."""

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from recbole_hyper.geometry.base import Geometry, ItemTerms, LiftedStates, Theta, as_compute
from recbole_hyper.losses import _chunks


def lead_of_targets(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: Geometry,
    theta: Theta,
    padding_idx: int | None,
) -> Tensor:
    """Return the lead (n,) of each target's logit over the mean logit of all items but ``padding_idx``.

    Without a link the mean is one product with the mean of the lifted items. With a link it takes two more products
    than the logits, and memory for the lifted items. Arguments as in ``exact_cross_entropy``.
    """
    states, weight, offset = as_compute(states, weight, offset)
    target_offset = None if offset is None else offset.index_select(0, targets).unsqueeze(1)
    rows = torch.nn.functional.embedding(targets, weight).unsqueeze(1)
    target_logits = geometry.pair_logits(states, rows, target_offset, theta=theta)[:, 0]
    weight, offset = _without(weight, padding_idx), None if offset is None else _without(offset, padding_idx)
    factored = geometry.factored(states, offset, theta)
    lifted = geometry.lift_states(states, theta=theta, offset=offset is not None, factored=factored)
    terms = geometry.lift_items(weight, offset, theta=theta, factored=factored)
    if geometry.has_link:
        sums = _sums_of_logits(geometry, lifted, terms, terms.vectors(weight))
    else:
        total = weight.sum(0) if terms.multiplier is None else terms.multiplier @ weight
        total = total if terms.extra is None else torch.cat((total, terms.extra.sum(0)))
        sums = lifted.vectors @ total
    return target_logits - sums / len(weight)


def _without(items: Tensor, padding_idx: int | None) -> Tensor:
    if padding_idx is None:
        return items
    rest = items[padding_idx + 1 :]
    return rest if padding_idx == 0 else torch.cat((items[:padding_idx], rest))


def _sums_of_logits(geometry: Geometry, lifted: LiftedStates, terms: ItemTerms, vectors: Tensor) -> Tensor:
    """Return the sum of the logits of all items (n,), tile by tile; the backward pass computes each tile again."""

    def tile(states: LiftedStates, items: ItemTerms, part: Tensor) -> Tensor:
        return geometry.combine(states, items, part).sum(-1)

    rows = [LiftedStates(*part) for part in _split(lifted, _chunks.CPU_ROWS)]
    blocks = [(ItemTerms(*part), vectors) for *part, vectors in _split((*terms, vectors), _chunks.CPU_BLOCK)]
    compute = functools.partial(checkpoint, tile, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([sum((compute(part, *block) for block in blocks[1:]), compute(part, *blocks[0])) for part in rows])


def _split(tensors: Iterable[Tensor | None], size: int) -> Iterator[tuple[Any, ...]]:
    """Cut tensors of equal length into parts of at most ``size`` rows; None stays None in every part."""
    return zip(*(itertools.repeat(None) if one is None else one.split(size) for one in tensors), strict=False)
