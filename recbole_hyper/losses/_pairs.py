"""Logits of targets and of chosen candidates, in bounded memory, for the losses that sample."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.data.negatives import uniform_negatives
from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Curvature, Geometry
from recbole_hyper.geometry.head import pair_pieces
from recbole_hyper.losses.base import Head, Negatives


def draw(
    targets: Tensor, k: int, head: Head, negatives: Negatives | None, *, exclude_seen: bool, replacement: bool
) -> Tensor:
    """Return (n, k) negatives from ``negatives``, or uniform ones that avoid the target where it is None."""
    if negatives is None:
        return uniform_negatives(targets, k, head.n_items, head.padding_idx)
    return negatives.per_position(k, exclude_seen=exclude_seen, replacement=replacement)


def target_and_negative_logits(states: Tensor, targets: Tensor, negatives: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    """Return the logits (n,) of the targets and (n, k) of the negatives (n, k)."""
    logits = head.pair_logits(states, torch.cat((targets.unsqueeze(1), negatives), dim=1))
    return logits[:, 0], logits[:, 1:]


def softmax_loss(candidates: Tensor, target_logits: Tensor) -> Tensor:
    """Return -log(e^t / (e^t + e^c)) (n,) for the logsumexp c of a row's candidates and its target logit t."""
    return F.softplus(candidates - target_logits)


def never(dtype: torch.dtype) -> float:
    """Return what stands for minus infinity: finite, so that a row without candidates has a gradient of 0, not NaN."""
    return torch.finfo(dtype).min / 4


@dataclass(frozen=True)
class Group:
    """Rows (g, a) that share candidates (g, b), with their targets (g, a), whose own column is left out.

    Candidates where ``valid`` (g, b) is False do not count; None: all do.
    """

    rows: Tensor
    items: Tensor
    targets: Tensor
    valid: Tensor | None = None


def group_logsumexp(
    head: Head,
    states: Tensor,
    targets: Tensor,
    groups: Iterable[Group],
    correction: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return logsumexp over the candidates of each row, concatenated over the groups, and the target logits (n,).

    Groups are computed one after the other, in bounded memory. ``correction`` maps rows and items of a group to
    numbers (g, a, b) that are subtracted from the logits.
    """
    geometry = head.geometry

    def compute(
        states: Tensor,
        weight: Tensor,
        offset: Tensor | None,
        curvature: Curvature,
        rows: Tensor,
        items: Tensor,
        targets: Tensor,
        *valid: Tensor,
    ) -> Tensor:
        logits = geometry.logits(states, weight, offset, curvature=curvature)
        if correction is not None:
            logits = logits - correction(rows, items)
        left_out = items.unsqueeze(1) == targets.unsqueeze(2)
        for mask in valid:
            left_out |= ~mask.unsqueeze(1)
        return torch.logsumexp(logits.masked_fill(left_out, never(logits.dtype)), dim=2).reshape(-1)

    def group_piece(group: Group) -> _gather.Piece:
        valid = () if group.valid is None else (group.valid,)
        return _gather.Piece(compute, group.rows, group.items, (group.rows, group.items, group.targets, *valid))

    class Pieces:
        """The groups' pieces, then those of the targets, made anew in each pass."""

        def __iter__(self) -> Iterator[_gather.Piece]:
            yield from map(group_piece, groups)
            yield from pair_pieces(geometry, targets.unsqueeze(1), *head.weight.shape)

    found = _gather.gathered(Pieces(), states, head.weight, head.offset, head.curvature)
    return found[: -len(targets)], found[-len(targets) :]


def item_search_blocks(geometry: Geometry, head: Head, block: int) -> Iterator[tuple[int, Tensor]]:
    """Yield (first item, search vectors) of all items block by block, without gradient."""
    weight, offset, curvature = head.weight.detach(), head.offset, head.curvature
    for first in range(0, len(weight), block):
        part = slice(first, min(first + block, len(weight)))
        own = weight[part].to(torch.promote_types(weight.dtype, torch.float32))
        yield first, geometry.search_items(own, None if offset is None else offset[part], curvature=curvature)
