"""Softmax over chosen candidates, in bounded memory, for the losses that sample."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Theta
from recbole_hyper.geometry.head import pair_pieces
from recbole_hyper.losses.base import Head

T = TypeVar("T")
#: items per block of a search
SEARCH_BLOCK = 1 << 13


def softmax_loss(candidates: Tensor, target_logits: Tensor) -> Tensor:
    """Return -log(e^t / (e^t + e^c)) (n,) from the logsumexp c of each row's candidates and its target logit t."""
    return F.softplus(candidates - target_logits)


@dataclass(frozen=True)
class Again(Generic[T]):
    """What ``make`` yields, made again in each pass: all of it at once would take several times the catalogue."""

    make: Callable[[], Iterator[T]]

    def __iter__(self) -> Iterator[T]:
        return self.make()


@dataclass(frozen=True)
class Group:
    """Rows (g, a) that share candidates (g, b); a row's target (g, a) is not one of its candidates.

    ``chosen``, indices (k,) or a slice, selects among the flattened rows (g * a,), and ``valid`` (g, b) among the
    candidates; None selects all.
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
    """Group ``rows`` (m,) by their candidates: those of row i are set ``sets[i]``, a row of ``items`` (S, b).

    Sets with similar numbers of rows are computed together, as far as vectors of ``width`` numbers fit in memory.
    Returns the rows (m,) in the order of :func:`group_logsumexp`'s result, and the groups.
    """
    order = torch.argsort(sets, stable=True)
    # planned on the host; this is the only wait for the GPU
    counts = sets.new_zeros(len(items)).scatter_add_(0, sets, torch.ones_like(sets)).cpu().numpy()
    # a set with more rows than fit at once is cut
    most = max(1, _gather.numbers_at_once(sets.device, _gather.LOGITS) // items.shape[1])
    cuts = -(-counts // most)
    owner = np.repeat(np.arange(len(counts)), cuts)
    skipped = most * (np.arange(len(owner)) - (cuts.cumsum() - cuts)[owner])
    first, count = (counts.cumsum() - counts)[owner] + skipped, np.minimum(counts[owner] - skipped, most)
    ranks = np.argsort(count, kind="stable")
    owner, first, count = owner[ranks], first[ranks], count[ranks]
    parts = list(_parts_of_similar_size(count, items.shape[1], width, sets.device))
    chosen = [(np.arange(count[part][-1]) < count[part, None]).ravel().nonzero()[0] for part in parts]
    owners, firsts, numbers = torch.from_numpy(np.stack((owner, first, count))).to(sets.device)
    places = torch.from_numpy(np.concatenate(chosen)).to(sets.device).split([len(part) for part in chosen])

    groups, ordered = [], []
    for part, place in zip(parts, places, strict=True):
        columns = torch.arange(int(count[part][-1]), device=sets.device)
        group_rows = rows[order[firsts[part, None] + torch.minimum(columns, numbers[part, None] - 1)]]
        groups.append(Group(group_rows, items[owners[part]], targets[group_rows], place))
        ordered.append(group_rows.reshape(-1)[place])
    return torch.cat(ordered), groups


def _parts_of_similar_size(count: npt.NDArray[np.int64], b: int, width: int, device: torch.device) -> Iterator[slice]:
    """Cut sets of ``count`` rows (ascending) and ``b`` candidates each into parts to compute together."""
    start = 0
    while start < len(count):
        stop = start + _gather.groups_at_once(int(count[start]), b, width, device)
        stop = start + _gather.groups_at_once(int(count[min(stop, len(count)) - 1]), b, width, device)
        yield slice(start, min(stop, len(count)))
        start = min(stop, len(count))


def group_of_grid(places: Tensor, items: Tensor, targets: Tensor, width: int) -> Group | None:
    """Return one group of all rows, of which row i is at ``places[i]`` of the grid (S, ``width``) of sets and rows.

    So nothing has to be planned, which would wait for a GPU. ``items`` (S, b) are the candidates of each set. None if
    the logits do not fit into the memory of a piece.
    """
    sets, b = items.shape
    if sets * width * b > _gather.numbers_at_once(items.device, _gather.LOGITS):
        return None
    rows = torch.zeros(sets * width, dtype=torch.int64, device=items.device)
    rows.scatter_(0, places, torch.arange(len(places), device=items.device))
    rows = rows.view(sets, width)
    return Group(rows, items, targets[rows], places)


def group_logsumexp(
    head: Head,
    states: Tensor,
    targets: Tensor,
    groups: Iterable[Group],
    correction: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the logsumexp over each chosen row's candidates, in the order of the groups, and the target logits (n,).

    Groups are computed one after the other, in bounded memory. ``correction`` maps a group's rows and items to numbers
    (g, a, b) that are subtracted from its logits.
    """

    def compute(states: Tensor, weight: Tensor, offset: Tensor | None, theta: Theta, group: Group) -> Tensor:
        logits = head.geometry.logits(states, weight, offset, theta=theta)
        if correction is not None:
            logits = logits - correction(group.rows, group.items)
        left_out = group.items.unsqueeze(1) == group.targets.unsqueeze(2)
        if group.valid is not None:
            left_out |= ~group.valid.unsqueeze(1)
        # finite, so that a row without candidates has a gradient of 0, not NaN
        sums = torch.logsumexp(logits.masked_fill(left_out, torch.finfo(logits.dtype).min / 4), dim=2)
        sums = sums.reshape(-1)
        if isinstance(group.chosen, Tensor):
            return sums.index_select(0, group.chosen)
        return sums if group.chosen is None else sums[group.chosen]

    def pieces() -> Iterator[_gather.Piece]:
        yield from (_gather.Piece(compute, group.rows, group.items, (group,)) for group in groups)
        yield from pair_pieces(head, targets.unsqueeze(1))

    few = isinstance(groups, list) and len(groups) == 1
    given = list(pieces()) if few else Again(pieces)
    logsumexp = _gather.gathered(given, states, head.weight, head.offset, head.theta)
    return logsumexp[: -len(targets)], logsumexp[-len(targets) :]


def search_states(states: Tensor, head: Head) -> Tensor:
    """Return the search vectors of the states, without gradient."""
    states = states.detach().to(torch.promote_types(states.dtype, torch.float32))
    return head.geometry.search_states(states, theta=head.theta, offset=head.offset is not None)


def item_search_blocks(head: Head) -> Iterator[tuple[int, Tensor]]:
    """Yield (first item, search vectors) of all items block by block, without gradient."""
    weight, offset, theta = head.weight.detach(), head.offset, head.theta
    for first in range(0, len(weight), SEARCH_BLOCK):
        part = slice(first, first + SEARCH_BLOCK)
        block = weight[part].to(torch.promote_types(weight.dtype, torch.float32))
        yield first, head.geometry.search_items(block, None if offset is None else offset[part], theta=theta)
