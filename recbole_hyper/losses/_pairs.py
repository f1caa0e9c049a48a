"""Logits of targets and of chosen candidates, in bounded memory, for the losses that sample."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.data.negatives import uniform_negatives
from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Curvature
from recbole_hyper.geometry.head import pair_pieces
from recbole_hyper.losses.base import Head, Negatives

#: items per block of a search
SEARCH_BLOCK = 1 << 13


def draw(
    targets: Tensor, k: int, head: Head, negatives: Negatives | None, *, exclude_seen: bool, replacement: bool
) -> Tensor:
    """Return (n, k) negatives from ``negatives``, or if it is None uniform ones without the target."""
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
    """Return a finite minus infinity, so that a row without candidates has a gradient of 0, not NaN."""
    return torch.finfo(dtype).min / 4


@dataclass(frozen=True)
class Group:
    """Rows (g, a) that share candidates (g, b); the column of a row's target (g, a) is left out.

    Only the flattened rows (g * a,) at ``chosen``, indices (k,) or a slice, and candidates with ``valid`` (g, b) count;
    None means all.
    """

    rows: Tensor
    items: Tensor
    targets: Tensor
    chosen: Tensor | slice | None = None
    valid: Tensor | None = None


@torch.no_grad()
def groups_of_sets(
    rows: Tensor, sets: Tensor, items: Tensor, targets: Tensor, width: int
) -> tuple[Tensor, list[Group]]:
    """Group ``rows`` (m,) by their candidates: row i meets the items of set ``sets[i]``, a row of ``items`` (S, b).

    Sets with similar numbers of rows are computed together, within memory for vectors of ``width`` numbers. Returns the
    rows (m,) in the order of :func:`group_logsumexp`'s result, and the groups.
    """
    order = torch.argsort(sets, stable=True)
    # planned on the host; this is the only wait for the GPU
    counts = sets.new_zeros(len(items)).scatter_add_(0, sets, torch.ones_like(sets)).cpu().numpy()
    # sets with more rows than fit at once are cut
    most = max(1, _gather.LOGITS // items.shape[1])
    cuts = -(-counts // most)
    owner = np.repeat(np.arange(len(counts)), cuts)
    skipped = most * (np.arange(len(owner)) - (cuts.cumsum() - cuts)[owner])
    first, count = (counts.cumsum() - counts)[owner] + skipped, np.minimum(counts[owner] - skipped, most)
    ranks = np.argsort(count, kind="stable")
    owner, first, count = owner[ranks], first[ranks], count[ranks]
    parts = list(_parts_of_like_size(count, items.shape[1], width))
    chosen = [(np.arange(count[part][-1]) < count[part, None]).ravel().nonzero()[0] for part in parts]
    owners, firsts, numbers = torch.from_numpy(np.stack((owner, first, count))).to(sets.device)
    places = torch.from_numpy(np.concatenate(chosen)).to(sets.device).split([len(own) for own in chosen])

    groups, groups_of_rows = [], []
    for part, place in zip(parts, places, strict=True):
        columns = torch.arange(int(count[part][-1]), device=sets.device)
        own = rows[order[firsts[part, None] + torch.minimum(columns, numbers[part, None] - 1)]]
        groups.append(Group(own, items[owners[part]], targets[own], place))
        groups_of_rows.append(own.reshape(-1)[place])
    return torch.cat(groups_of_rows), groups


def _parts_of_like_size(count: npt.NDArray[np.int64], b: int, width: int) -> Iterator[slice]:
    """Cut sets with ``count`` rows, ascending, and ``b`` candidates each into parts to compute together."""
    start = 0
    while start < len(count):
        stop = start + _gather.groups_at_once(int(count[start]), b, width)
        stop = start + _gather.groups_at_once(int(count[min(stop, len(count)) - 1]), b, width)
        yield slice(start, min(stop, len(count)))
        start = min(stop, len(count))


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

    def compute(states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature, group: Group) -> Tensor:
        logits = head.geometry.logits(states, weight, offset, curvature=curvature)
        if correction is not None:
            logits = logits - correction(group.rows, group.items)
        left_out = group.items.unsqueeze(1) == group.targets.unsqueeze(2)
        if group.valid is not None:
            left_out |= ~group.valid.unsqueeze(1)
        sums = torch.logsumexp(logits.masked_fill(left_out, never(logits.dtype)), dim=2)
        return sums.reshape(-1) if group.chosen is None else sums.reshape(-1)[group.chosen]

    class Pieces:
        """The pieces of the groups, then of the targets; each pass makes them again."""

        def __iter__(self) -> Iterator[_gather.Piece]:
            yield from (_gather.Piece(compute, group.rows, group.items, (group,)) for group in groups)
            yield from pair_pieces(head.geometry, targets.unsqueeze(1), *head.weight.shape)

    logsumexp = _gather.gathered(Pieces(), states, head.weight, head.offset, head.curvature)
    return logsumexp[: -len(targets)], logsumexp[-len(targets) :]


def search_states(states: Tensor, head: Head) -> Tensor:
    """Return the search vectors of the states, without gradient."""
    own = states.detach().to(torch.promote_types(states.dtype, torch.float32))
    return head.geometry.search_states(own, curvature=head.curvature, offset=head.offset is not None)


def item_search_blocks(head: Head) -> Iterator[tuple[int, Tensor]]:
    """Yield (first item, search vectors) of all items block by block, without gradient."""
    weight, offset, curvature = head.weight.detach(), head.offset, head.curvature
    for first in range(0, len(weight), SEARCH_BLOCK):
        part = slice(first, first + SEARCH_BLOCK)
        own = weight[part].to(torch.promote_types(weight.dtype, torch.float32))
        yield first, head.geometry.search_items(own, None if offset is None else offset[part], curvature=curvature)
