"""Negative sampling: uniform draws that avoid the target, the padding item and, optionally, the user's seen items.

All draws are vectorised and run on the sampler's device, with an explicit generator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_Collides = Callable[[Tensor, Tensor], Tensor]
_ROUNDS = 8  # rounds of redrawing; what collides then is drawn from a mask of the allowed items
_CELLS = 1 << 18  # draws that are checked at once
_TABLE_CELLS = 1 << 22  # largest bool table of users x items that replaces the binary search of each draw
_MASK_CELLS = 1 << 24  # largest mask of allowed items, or random numbers for items


class NegativeSampler:
    """Draws negatives for the users of a store, on the device of ``offsets``.

    Args:
        n_items: number of items, including padding (id 0); ValueError below 3, where a target leaves no negative.
        offsets: (U + 1,) CSR offsets of the users' items.
        items: (nnz,) items that each user has seen in the training part, targets included.
        generator: random generator; None for torch's default one, whose state checkpoints save.
    """

    def __init__(
        self, n_items: int, offsets: Tensor, items: Tensor, *, generator: torch.Generator | None = None
    ) -> None:
        if n_items < 3:
            count = max(n_items - 1, 0)
            raise ValueError(f"a catalogue of {count} item has no negatives; losses that sample need at least 2 items")
        self.n_items, self.generator, self.device = n_items, generator, offsets.device
        users = torch.repeat_interleave(offsets.diff())
        # sorted keys user * n_items + item, to look up "has u seen i" by binary search
        self._keys = torch.unique(users * n_items + items)
        self._counts: Tensor | None = None  # how many users have seen each item, counted when they are needed
        if self.device.type != "cpu":
            self._rank_unseen(len(offsets) - 1)

    def _rank_unseen(self, n_users: int) -> None:
        """Prepare :meth:`unseen`: how many items each user has not seen, and where the seen ones are among these."""
        users = self._keys // self.n_items
        counts = torch.bincount(users, minlength=n_users)
        self._starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        self._n_unseen = self.n_items - 1 - counts
        self.least_unseen = int(self._n_unseen.min())
        # the number of unseen items below each seen one: its id without padding and the seen ones before it
        place = torch.arange(len(users), device=self.device) - self._starts[users]
        self._unseen_below = self._keys - 1 - place

    def unseen(self, users: Tensor, k: int, *, replacement: bool) -> Tensor:
        """Return (m, k) items that ``users`` (m,) have not seen, uniform, without a wait for the device.

        A draw is a rank among the unseen items, so none is drawn twice for having been seen. ``least_unseen`` must be
        at least k, or 1 with ``replacement``.
        """
        allowed = self._n_unseen.index_select(0, users).unsqueeze(1)
        if replacement:
            draws = torch.rand(len(users), k, dtype=torch.float64, device=self.device, generator=self.generator)
            ranks = draws.mul_(allowed).long()
        else:
            ranks = _distinct(allowed, k, self.n_items, self.generator)
        seen_before = torch.searchsorted(self._unseen_below, (users * self.n_items).unsqueeze(1) + ranks, right=True)
        return seen_before.sub_(self._starts.index_select(0, users).unsqueeze(1)).add_(ranks).add_(1)

    def shared(self, k: int, uniform: float = 0.5) -> tuple[Tensor, Tensor]:
        """Return k items for all rows (k,), drawn with replacement, and the log of how often each is expected (k,).

        The share ``uniform`` is drawn uniformly, the rest by how many users have seen an item.
        """
        if self._counts is None:
            self._counts = torch.bincount(self._keys % self.n_items, minlength=self.n_items)
        every = torch.randint(1, self.n_items, (k,), generator=self.generator, device=self.device)
        places = torch.randint(len(self._keys), (k,), generator=self.generator, device=self.device)
        coin = torch.rand(k, generator=self.generator, device=self.device)
        drawn = torch.where(coin < uniform, every, self._keys[places] % self.n_items)
        by_count = (1 - uniform) * self._counts[drawn] / len(self._keys)
        return drawn, (k * (by_count + uniform / (self.n_items - 1))).log()

    def bind(
        self, users: Tensor, rows: Tensor, targets: Tensor, *, grid: tuple[Tensor, int] | None = None
    ) -> BoundNegatives:
        """Return the negatives of a batch of S sequences, whose store rows are ``users`` (S,).

        ``rows`` (n,) is the sequence (from 0) of each supervised position, ``targets`` (n,) its item, which its user
        has seen. ``grid`` is the place (n,) of each position in (S, width), and this width.
        """
        return BoundNegatives(self, users, rows, targets, grid)

    def seen(self, users: Tensor, items: Tensor) -> Tensor:
        """Return whether each user (store row) has seen each item; shapes broadcast."""
        wanted = users * self.n_items + items
        return self._keys[torch.searchsorted(self._keys, wanted).clamp_(max=len(self._keys) - 1)] == wanted

    def seen_table(self, users: Tensor) -> Tensor:
        """Return (S, n_items) whether each of ``users`` (S,) has seen each item."""
        bounds = torch.stack((users, users + 1)) * self.n_items
        first, stop = torch.searchsorted(self._keys, bounds)
        counts = stop - first
        row = torch.repeat_interleave(counts)
        place = torch.arange(len(row), device=row.device) + (first - (counts.cumsum(0) - counts))[row]
        table = torch.zeros(len(users), self.n_items, dtype=torch.bool, device=users.device)
        table[row, self._keys[place] % self.n_items] = True
        return table


@dataclass(frozen=True)
class BoundNegatives:
    """Negatives of one batch; made by :meth:`NegativeSampler.bind`."""

    _sampler: NegativeSampler
    _users: Tensor
    _rows: Tensor
    _targets: Tensor
    #: places of the positions in (S, width), and this width; None if unknown
    grid: tuple[Tensor, int] | None = None

    def shared(self, k: int) -> tuple[Tensor, Tensor]:
        """Return k items for all positions (k,), and the log of how often each is expected (k,)."""
        return self._sampler.shared(k)

    def per_position(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> Tensor:
        """Return (n, k) items, uniform over the allowed items of each position.

        ``exclude_seen`` avoids all items that the user has seen, otherwise only the target is avoided. With
        ``replacement`` an item may repeat at a position. ValueError without replacement, for k above the number of
        allowed items.
        """
        if not (exclude_seen or self._rows.is_cpu) and replacement:
            return uniform_negatives(self._targets, k, self._sampler.n_items, 0, self._sampler.generator)
        positions = torch.arange(len(self._rows), device=self._rows.device)
        return self._draw(k, self._rows, positions, exclude_seen, replacement)

    def per_sequence(self, k: int) -> tuple[Tensor, Tensor]:
        """Return (S, k) distinct items that each user has not seen, and the sequence of each position (n,).

        ValueError for a user who has not seen fewer than k.
        """
        sequences = torch.arange(len(self._users), device=self._rows.device)
        return self._draw(k, sequences, self._rows, exclude_seen=True, replacement=False), self._rows

    def _draw(self, k: int, sequences: Tensor, rows: Tensor, exclude_seen: bool, replacement: bool) -> Tensor:
        """Draw (m, k) items for ``sequences`` (m,) of the batch; ``rows`` (n,) is the row in which a target is."""
        sampler, users = self._sampler, self._users.index_select(0, sequences)
        if not sequences.is_cpu:
            if exclude_seen and sampler.least_unseen >= (1 if replacement else k):
                return sampler.unseen(users, k, replacement=replacement)
            every = torch.arange(len(users), device=users.device)
            return self._draw_exactly(users.new_empty(len(users), k), every, users, rows, exclude_seen, replacement)
        # the largest table is that of a small catalogue; otherwise each draw is searched among all seen items
        small = exclude_seen and len(self._users) * sampler.n_items <= _TABLE_CELLS
        table = sampler.seen_table(self._users) if small else None

        def collides(row: Tensor, item: Tensor) -> Tensor:
            if not exclude_seen:
                return item == self._targets[row]
            return sampler.seen(users[row], item) if table is None else table[sequences[row], item]

        drawn = torch.empty(len(users), k, dtype=torch.int64)
        step = max(1, _CELLS // k)
        for first in range(0, len(users), step):
            own = drawn[first : first + step]
            left = self._redraw(own, first + torch.arange(len(own)), collides, replacement)
            if len(left):
                self._draw_exactly(drawn, left, users, rows, exclude_seen, replacement)
        return drawn

    def _redraw(self, drawn: Tensor, rows: Tensor, collides: _Collides, replacement: bool) -> Tensor:
        """Draw the items (m, k) of ``rows`` (m,), and those that collide again; return the rows that still collide."""
        n_items, generator, k = self._sampler.n_items, self._sampler.generator, drawn.shape[1]

        def fresh(*size: int) -> Tensor:
            return torch.randint(1, n_items, size, generator=generator)

        drawn.copy_(fresh(len(rows), k))
        row, column = torch.nonzero(collides(rows.unsqueeze(1), drawn), as_tuple=True)
        changed = torch.arange(len(rows))
        for rounds_left in range(_ROUNDS, -1, -1):
            if not replacement:
                later, place = torch.nonzero(_repeated(drawn[changed]), as_tuple=True)
                cells = torch.unique(torch.cat((row * k + column, changed[later] * k + place)))
                row, column = cells // k, cells % k
            if not len(row) or not rounds_left:
                break
            drawn[row, column] = fresh(len(row))
            changed = torch.unique_consecutive(row)
            bad = collides(rows[row], drawn[row, column])
            row, column = row[bad], column[bad]
        return rows[torch.unique(row)]

    def _draw_exactly(
        self, drawn: Tensor, chosen: Tensor, users: Tensor, rows: Tensor, exclude_seen: bool, replacement: bool
    ) -> Tensor:
        """Redraw the ``chosen`` rows of ``drawn`` from the allowed items, by a mask of these; return all rows."""
        sampler, k = self._sampler, drawn.shape[1]
        n_items = sampler.n_items
        for part in chosen.split(max(1, _MASK_CELLS // n_items)):
            place = torch.full_like(users, -1)
            place[part] = torch.arange(len(part), device=part.device)
            position = (place[rows] >= 0).nonzero()[:, 0]
            allowed = torch.ones(len(part), n_items, device=part.device)
            allowed[:, 0] = 0
            allowed[place[rows[position]], self._targets[position]] = 0
            if exclude_seen:
                narrowed = allowed.masked_fill(sampler.seen_table(users[part]), 0)
                exhausted = narrowed.sum(1) == 0
                if bool(exhausted.any()):
                    warnings.warn(
                        "a user has seen every item: its negatives are drawn from all items except the targets",
                        stacklevel=4,
                    )
                allowed = torch.where(exhausted.unsqueeze(1), allowed, narrowed)
            least = int(allowed.sum(1).min())
            if least < (1 if replacement else k):
                raise ValueError(
                    f"cannot draw {k} negatives {'with' if replacement else 'without'} replacement: a sequence leaves "
                    f"only {least} of {n_items - 1} items; lower n_negatives"
                )
            drawn[part] = torch.multinomial(allowed, k, replacement=replacement, generator=sampler.generator)
        return drawn


def uniform_negatives(
    targets: Tensor, k: int, n_items: int, padding_idx: int | None = 0, generator: torch.Generator | None = None
) -> Tensor:
    """Return (n, k) items, uniform over all but the row's target and padding."""
    n_allowed = n_items - (1 if padding_idx is None else 2)
    drawn = torch.randint(n_allowed, (len(targets), k), generator=generator, device=targets.device)
    avoided = targets.unsqueeze(1)
    if padding_idx is not None:
        avoided = torch.cat((avoided, torch.full_like(avoided, padding_idx)), dim=1).sort(dim=1).values
    # step over the avoided items, the smaller first: no draw has to be repeated
    for column in avoided.unbind(1):
        drawn += drawn >= column.unsqueeze(1)
    return drawn


def uniform_set(k: int, n_items: int, padding_idx: int | None, device: torch.device) -> Tensor:
    """Return k distinct items (k,), uniform over all but the padding item; ValueError if there are fewer."""
    n_allowed = n_items - (padding_idx is not None)
    if k > n_allowed:
        raise ValueError(f"cannot draw {k} distinct negatives from {n_allowed} items; lower n_negatives")
    drawn = torch.randperm(n_allowed, device=device)[:k]
    return drawn if padding_idx is None else drawn + (drawn >= padding_idx)


def _distinct(allowed: Tensor, k: int, n_items: int, generator: torch.Generator | None) -> Tensor:
    """Return (m, k) distinct numbers below ``allowed`` (m, 1), uniform: the places of the k least random numbers."""
    found = []
    for part in allowed.split(max(1, _MASK_CELLS // n_items)):
        numbers = torch.rand(len(part), n_items, device=part.device, generator=generator)
        numbers.masked_fill_(torch.arange(n_items, device=part.device) >= part, 2.0)
        found.append(numbers.topk(k, dim=1, largest=False, sorted=False).indices)
    return torch.cat(found)


def _repeated(drawn: Tensor) -> Tensor:
    """Return which cells (n, k) on the CPU repeat an earlier item of their row."""
    bits = (drawn.shape[1] - 1).bit_length()
    # pack item and column into one number: numpy sorts these many times faster than torch sorts with an index
    cells = torch.from_numpy(np.sort((drawn << bits | torch.arange(drawn.shape[1])).numpy(), axis=1))
    later = torch.zeros_like(drawn, dtype=torch.bool)
    later[:, 1:] = (cells[:, 1:] >> bits) == (cells[:, :-1] >> bits)
    return torch.zeros_like(later).scatter_(1, cells & ((1 << bits) - 1), later)
