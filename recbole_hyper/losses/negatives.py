"""Negative sampling: uniform draws that avoid the target, the padding item and, optionally, the user's seen items.

All draws are vectorised and run on the sampler's device, with an explicit generator.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_Avoid = Callable[[], Tensor]
_ROUNDS = 8  # rounds of redrawing; remaining collisions are drawn exactly from the allowed items
_CELLS = 1 << 18  # draws that are checked at once
_TABLE_CELLS = 1 << 22  # largest bool table of users x items that replaces the binary search of each draw
_MASK_CELLS = 1 << 24  # largest mask of allowed items in an exact draw


class NegativeSampler:
    """Draws negatives for the users of a store, on the device of ``offsets`` (the CPU for numpy arrays).

    Args:
        n_items: number of items, including padding (id 0); ValueError below 3, where a target leaves no negative.
        offsets: (U + 1,) CSR offsets of the users' items; None if no item counts as seen.
        items: (nnz,) items that each user has seen in the training part, targets included.
        generator: random generator; None for torch's default one, whose state checkpoints save.
    """

    def __init__(
        self,
        n_items: int,
        offsets: npt.ArrayLike | Tensor | None = None,
        items: npt.ArrayLike | Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        _check_allowed(n_items - 2)
        self.n_items = n_items
        self.generator = generator
        self.least_unseen = 0
        self.device = offsets.device if isinstance(offsets, Tensor) else torch.device("cpu")
        self._keys = torch.empty(0, dtype=torch.int64, device=self.device)
        self._counts: Tensor | None = None  # how many users have seen each item, counted when they are needed
        if offsets is not None and items is not None:
            starts = torch.as_tensor(offsets, dtype=torch.int64, device=self.device)
            seen = torch.as_tensor(items, device=self.device).to(torch.int64)
            users = torch.repeat_interleave(starts.diff())
            # sorted keys user * n_items + item, to look up "has u seen i" by binary search
            self._keys = torch.unique(users * n_items + seen)
            if self.device.type != "cpu":
                self._rank_unseen(len(starts) - 1)

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
            ranks = _distinct(allowed, k, self.least_unseen, self.n_items, self.generator)
        seen_before = torch.searchsorted(self._unseen_below, (users * self.n_items).unsqueeze(1) + ranks, right=True)
        return seen_before.sub_(self._starts.index_select(0, users).unsqueeze(1)).add_(ranks).add_(1)

    def shared(self, k: int, uniform: float = 0.5) -> tuple[Tensor, Tensor]:
        """Return k items for all rows (k,), drawn with replacement, and the log of how often each is expected (k,).

        The share ``uniform`` is drawn uniformly, the rest by how many users have seen an item.
        """
        check_k(k)
        if self._counts is None:
            self._counts = torch.bincount(self._keys % self.n_items, minlength=self.n_items)
        every = torch.randint(1, self.n_items, (k,), generator=self.generator, device=self.device)
        drawn, share = every, 1.0
        if len(self._keys):
            places = torch.randint(len(self._keys), (k,), generator=self.generator, device=self.device)
            coin = torch.rand(k, generator=self.generator, device=self.device)
            drawn, share = torch.where(coin < uniform, every, self._keys[places] % self.n_items), uniform
        by_count = (1 - share) * self._counts[drawn] / max(1, len(self._keys))
        return drawn, (k * (by_count + share / (self.n_items - 1))).log()

    def bind(
        self,
        users: Tensor | npt.ArrayLike,
        rows: Tensor,
        targets: Tensor,
        *,
        targets_are_seen: bool = False,
        grid: tuple[Tensor, int] | None = None,
    ) -> BoundNegatives:
        """Return the negatives of a batch of S sequences, whose store rows are ``users`` (S,).

        ``rows`` (n,) is the sequence (from 0) of each supervised position, ``targets`` (n,) its item. Targets that
        ``targets_are_seen``, as those of training, spare a device the search for them. ``grid`` is the place (n,) of
        each position in (S, width), and this width.
        """
        users = torch.as_tensor(users, dtype=torch.int64, device=self.device)
        return BoundNegatives(self, users, rows.to(self.device), targets.to(self.device), targets_are_seen, grid)

    def seen(self, users: Tensor, items: Tensor) -> Tensor:
        """Return whether each user (store row) has seen each item; shapes broadcast."""
        return _member(self._keys, users * self.n_items + items)

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
    _targets_are_seen: bool = False
    #: places of the positions in (S, width), and this width; None if unknown
    grid: tuple[Tensor, int] | None = None

    def shared(self, k: int) -> tuple[Tensor, Tensor]:
        """Return k items for all positions (k,), and the log of how often each is expected (k,)."""
        return self._sampler.shared(k)

    def per_position(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> Tensor:
        """Return (n, k) items, uniform over the allowed items of each position.

        ``exclude_seen`` avoids all items that the user has seen, otherwise only the target is avoided. With
        ``replacement`` an item may repeat at a position. ValueError for k below 1, and without replacement for k above
        the number of allowed items.
        """
        if not (exclude_seen or self._rows.is_cpu) and replacement:
            return uniform_negatives(self._targets, k, self._sampler.n_items, 0, self._sampler.generator)
        positions, targets = torch.arange(len(self._rows), device=self._rows.device), self._targets.unsqueeze(1)
        return self._draw(k, self._rows, positions, lambda: targets, exclude_seen, replacement)

    def per_sequence(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> tuple[Tensor, Tensor]:
        """Return (S, k) items per sequence, which avoid all its targets, and the sequence of each position (n,)."""
        sequences = torch.arange(len(self._users), device=self._rows.device)
        return self._draw(k, sequences, self._rows, self._targets_by_sequence, exclude_seen, replacement), self._rows

    def _targets_by_sequence(self) -> Tensor:
        """Return (S, T) the targets of each sequence, padded with 0, which is never drawn."""
        n_sequences = len(self._users)
        order = torch.argsort(self._rows, stable=True)
        rows = self._rows[order]
        counts = rows.new_zeros(n_sequences).scatter_add_(0, rows, torch.ones_like(rows))
        position = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        width = int(counts.max()) if n_sequences else 0
        table = torch.zeros(n_sequences, max(width, 1), dtype=torch.int64, device=rows.device)
        table[rows, position] = self._targets[order]
        return table

    def _draw(
        self, k: int, sequences: Tensor, rows: Tensor, avoid: _Avoid, exclude_seen: bool, replacement: bool
    ) -> Tensor:
        """Draw (m, k) items for ``sequences`` (m,) of the batch; row i avoids the items in row i of ``avoid()`` (m, w).

        ``rows`` (n,) is the row that avoids each target.
        """
        check_k(k)
        if not sequences.is_cpu:
            enough = exclude_seen and self._sampler.least_unseen >= (1 if replacement else k)
            if enough and self._targets_are_seen:
                return self._sampler.unseen(self._users.index_select(0, sequences), k, replacement=replacement)
            return self._draw_on_device(k, sequences, rows, avoid, exclude_seen, replacement)
        small, avoided = len(self._users) * self._sampler.n_items <= _TABLE_CELLS, avoid()
        table = self._sampler.seen_table(self._users) if exclude_seen and small else None
        drawn = torch.empty(len(sequences), k, dtype=torch.int64)
        step = max(1, _CELLS // k)
        for first in range(0, len(sequences), step):
            part = slice(first, first + step)
            drawn[part] = self._draw_part(k, sequences[part], avoided[part], exclude_seen, replacement, table)
        return drawn

    def _draw_part(
        self, k: int, sequences: Tensor, avoid: Tensor, exclude_seen: bool, replacement: bool, table: Tensor | None
    ) -> Tensor:
        sampler = self._sampler
        n_items, generator = sampler.n_items, sampler.generator
        users = self._users[sequences]
        rows = torch.arange(len(users), device=users.device)
        single = avoid.shape[1] == 1
        avoid_keys = avoid if single else torch.unique(rows.unsqueeze(1) * n_items + avoid)

        def collides(row: Tensor, item: Tensor) -> Tensor:
            bad = item == avoid[row, 0] if single else _member(avoid_keys, row * n_items + item)
            if not exclude_seen:
                return bad
            return bad | (sampler.seen(users[row], item) if table is None else table[sequences[row], item])

        def fresh(size: tuple[int, ...]) -> Tensor:
            return torch.randint(1, n_items, size, generator=generator, device=users.device)

        drawn = fresh((len(users), k))
        row, column = torch.nonzero(collides(rows.unsqueeze(1), drawn), as_tuple=True)
        changed = rows
        for rounds_left in range(_ROUNDS, -1, -1):
            if not replacement:
                later, place = torch.nonzero(_repeated(drawn[changed]), as_tuple=True)
                row, column = _union(row, column, changed[later], place, k)
            if not len(row) or not rounds_left:
                break
            drawn[row, column] = fresh((len(row),))
            changed = torch.unique_consecutive(row)
            bad = collides(row, drawn[row, column])
            row, column = row[bad], column[bad]
        if len(row):
            self._draw_exactly(drawn, torch.unique(row), users, avoid, exclude_seen, replacement)
        return drawn

    def _draw_on_device(
        self, k: int, sequences: Tensor, rows: Tensor, avoid: _Avoid, exclude_seen: bool, replacement: bool
    ) -> Tensor:
        """Draw on a GPU: always run all rounds, so that it never waits for a result; ``avoid`` is for exact draws."""
        sampler, users = self._sampler, self._users[sequences]
        row = torch.arange(len(sequences), device=sequences.device).unsqueeze(1)
        keys = (rows * sampler.n_items + self._targets).sort().values

        def collides(drawn: Tensor) -> Tensor:
            bad = _member(keys, row * sampler.n_items + drawn)
            if exclude_seen:
                bad |= sampler.seen(users.unsqueeze(1), drawn)
            return bad if replacement else bad | _repeated(drawn)

        drawn = torch.ones(len(sequences), k, dtype=torch.int64, device=sequences.device)
        bad = torch.ones_like(drawn, dtype=torch.bool)
        for _ in range(_ROUNDS + 1):
            fresh = torch.randint(1, sampler.n_items, drawn.shape, generator=sampler.generator, device=drawn.device)
            drawn = torch.where(bad, fresh, drawn)
            bad = collides(drawn)
        bad_rows = bad.any(1).nonzero()[:, 0]  # the only wait
        if len(bad_rows):
            self._draw_exactly(drawn, bad_rows, users, avoid(), exclude_seen, replacement)
        return drawn

    def _draw_exactly(
        self, drawn: Tensor, rows: Tensor, users: Tensor, avoid: Tensor, exclude_seen: bool, replacement: bool
    ) -> None:
        """Redraw whole rows of ``drawn`` from the allowed items."""
        sampler, k = self._sampler, drawn.shape[1]
        n_items = sampler.n_items
        for part in rows.split(max(1, _MASK_CELLS // n_items)):
            unseen = torch.ones(len(part), n_items, device=part.device)
            unseen[:, 0] = 0
            allowed = unseen.scatter(1, avoid[part], 0)
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


def uniform_negatives(
    targets: Tensor, k: int, n_items: int, padding_idx: int | None = 0, generator: torch.Generator | None = None
) -> Tensor:
    """Return (n, k) items, uniform over all but the row's target and padding; ValueError for k < 1 or no other item."""
    check_k(k)
    n_allowed = n_items - (1 if padding_idx is None else 2)
    _check_allowed(n_allowed)
    drawn = torch.randint(n_allowed, (len(targets), k), generator=generator, device=targets.device)
    avoided = targets.unsqueeze(1)
    if padding_idx == 0:
        drawn += 1
    elif padding_idx is not None:
        avoided = torch.cat((avoided, torch.full_like(avoided, padding_idx)), dim=1).sort(dim=1).values
    # step over the avoided items, the smaller first: no draw has to be repeated
    for column in avoided.unbind(1):
        drawn += drawn >= column.unsqueeze(1)
    return drawn


def uniform_set(
    k: int, n_items: int, padding_idx: int | None, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Return k distinct items (k,), uniform over all but the padding item; ValueError if there are fewer."""
    check_k(k)
    n_allowed = n_items - (padding_idx is not None)
    if k > n_allowed:
        raise ValueError(f"cannot draw {k} distinct negatives from {n_allowed} items; lower n_negatives")
    drawn = torch.randperm(n_allowed, generator=generator, device=device)[:k]
    return drawn if padding_idx is None else drawn + (drawn >= padding_idx)


def _distinct(allowed: Tensor, k: int, least: int, n_items: int, generator: torch.Generator | None) -> Tensor:
    """Return (m, k) distinct numbers below ``allowed`` (m, 1), uniform; ``least`` is at most each of these.

    The first k distinct ones of more draws. Where that many draws would outgrow the catalogue, the k smallest of a
    random number for each item.
    """
    count, device = _draws_for_distinct(k, least), allowed.device
    if count > n_items:
        keys = torch.rand(len(allowed), n_items, device=device, generator=generator)
        keys.masked_fill_(torch.arange(n_items, device=device) >= allowed, 2.0)
        return keys.topk(k, dim=1, largest=False, sorted=False).indices
    draws = torch.rand(len(allowed), count, dtype=torch.float64, device=device, generator=generator)
    bits = count.bit_length()
    column = torch.arange(count, device=device)
    cells = (draws.mul_(allowed).long().bitwise_left_shift_(bits)).add_(column).sort(dim=1).values
    values, place = cells >> bits, cells & ((1 << bits) - 1)
    # a number that an earlier column drew goes behind all others
    place[:, 1:] += (values[:, 1:] == values[:, :-1]) * (1 << bits)
    return values.gather(1, place.argsort(dim=1)[:, :k])


@functools.cache
def _draws_for_distinct(k: int, least: int) -> int:
    """Return how many draws among ``least`` numbers have k distinct ones, up to a chance of 1e-12.

    The number of distinct ones is nearly normal: eight standard deviations of it must be left.
    """
    count = k
    while True:
        missing, pair = (1 - 1 / least) ** count, (1 - 2 / least) ** count if least > 2 else 0.0
        variance = least * (least - 1) * pair + least * missing - (least * missing) ** 2
        if least * (1 - missing) - 8 * math.sqrt(max(variance, 0.0)) >= k:
            return count
        if count > 64 * (k + 8):
            return 1 << 62
        count += max(1, count // 64)


def check_k(k: int) -> None:
    """Raise ValueError if ``k``, the number of negatives, is below 1."""
    if k < 1:
        raise ValueError(f"n_negatives must be at least 1, got {k}")


def _check_allowed(n_allowed: int) -> None:
    """Raise ValueError if there is no item beside a target."""
    if n_allowed < 1:
        count = max(n_allowed + 1, 0)
        raise ValueError(f"a catalogue of {count} item has no negatives; losses that sample need at least 2 items")


def _member(keys: Tensor, queries: Tensor) -> Tensor:
    """Return whether each of ``queries`` is in the sorted ``keys``."""
    if not len(keys):
        return torch.zeros_like(queries, dtype=torch.bool)
    place = torch.searchsorted(keys, queries).clamp_(max=len(keys) - 1)
    return keys[place] == queries


def _repeated(drawn: Tensor) -> Tensor:
    """Return which cells (n, k) repeat an earlier item of their row."""
    bits = (drawn.shape[1] - 1).bit_length()
    # pack item and column into one number: numpy sorts these many times faster than torch sorts with an index
    cells = drawn << bits | torch.arange(drawn.shape[1], device=drawn.device)
    cells = torch.from_numpy(np.sort(cells.numpy(), axis=1)) if cells.is_cpu else cells.sort(dim=1).values
    later = torch.zeros_like(drawn, dtype=torch.bool)
    later[:, 1:] = (cells[:, 1:] >> bits) == (cells[:, :-1] >> bits)
    return torch.zeros_like(later).scatter_(1, cells & ((1 << bits) - 1), later)


def _union(row: Tensor, column: Tensor, other_row: Tensor, other_column: Tensor, k: int) -> tuple[Tensor, Tensor]:
    cells = torch.unique(torch.cat((row * k + column, other_row * k + other_column)))
    return cells // k, cells % k
