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

    Rows where ``real`` (g, a), and candidates where ``valid`` (g, b), is False do not count; None: all do.
    """

    rows: Tensor
    items: Tensor
    targets: Tensor
    real: Tensor | None = None
    valid: Tensor | None = None


@torch.no_grad()
def groups_of_sets(
    rows: Tensor, sets: Tensor, items: Tensor, targets: Tensor, width: int
) -> tuple[Tensor, list[Group]]:
    """Group ``rows`` (m,) by their sets of candidates: ``sets`` (m,) says which of ``items`` (S, b) each meets.

    Sets with about as many rows are computed together, as vectors of ``width`` numbers allow.

    Returns:
        the rows (m,) in the order in which :func:`group_logsumexp` answers the groups, and the groups.
    """
    order = torch.argsort(sets, stable=True)
    counts = torch.bincount(sets, minlength=len(items))
    # sets with more rows than fit at once are cut
    most = max(1, _gather.LOGITS // items.shape[1])
    cuts = (counts + most - 1) // most
    owner = torch.repeat_interleave(cuts)
    skipped = most * (torch.arange(len(owner), device=sets.device) - (cuts.cumsum(0) - cuts)[owner])
    first, count = (counts.cumsum(0) - counts)[owner] + skipped, (counts[owner] - skipped).clamp(max=most)
    ranks = torch.argsort(count, stable=True)
    owner, first, count = owner[ranks], first[ranks], count[ranks]

    groups, start, lengths = [], 0, count.tolist()
    while start < len(lengths):
        stop = start + _gather.groups_at_once(lengths[start], items.shape[1], width)
        stop = start + _gather.groups_at_once(lengths[min(stop, len(lengths)) - 1], items.shape[1], width)
        part = slice(start, min(stop, len(lengths)))
        columns = torch.arange(lengths[part.stop - 1], device=sets.device)
        real = columns < count[part, None]
        own = rows[order[first[part, None] + torch.minimum(columns, count[part, None] - 1)]]
        groups.append(Group(own, items[owner[part]], targets[own], real))
        start = part.stop
    return torch.cat([group.rows[group.real] for group in groups]), groups


def group_logsumexp(
    head: Head,
    states: Tensor,
    targets: Tensor,
    groups: Iterable[Group],
    correction: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return logsumexp over the candidates of each real row, in the order of the groups, and the target logits (n,).

    Groups are computed one after the other, in bounded memory. ``correction`` maps rows and items of a group to
    numbers (g, a, b) that are subtracted from the logits.
    """
    geometry = head.geometry

    def compute(states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature, group: Group) -> Tensor:
        logits = geometry.logits(states, weight, offset, curvature=curvature)
        if correction is not None:
            logits = logits - correction(group.rows, group.items)
        left_out = group.items.unsqueeze(1) == group.targets.unsqueeze(2)
        if group.valid is not None:
            left_out |= ~group.valid.unsqueeze(1)
        sums = torch.logsumexp(logits.masked_fill(left_out, never(logits.dtype)), dim=2)
        return sums.reshape(-1) if group.real is None else sums[group.real]

    def group_piece(group: Group) -> _gather.Piece:
        return _gather.Piece(compute, group.rows, group.items, (group,))

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
