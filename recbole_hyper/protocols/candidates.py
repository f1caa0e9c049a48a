"""Candidates for ranking a target: drawn once per user, or read from a published file."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases

_CHUNK = 1 << 22  # numbers to draw at a time
_ROUNDS = 16  # of draws; users who then still lack candidates are handled one by one


def draw_candidates(
    store: SequenceStore, count: int, seed: int, weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """Return ``count`` distinct items outside each user's whole sequence, (U, count), for validation and test.

    Draws are without replacement, in proportion to ``weights`` (n_items,), such as popularity. Equal seeds draw equal
    lists. ValueError if a user leaves too few items.
    """
    if count < 1:
        raise ValueError(f"mode uniN or popN: N={count} must be at least 1")
    generator = np.random.default_rng([seed, 0xCA4D])
    allowed = weights.copy()
    allowed[0] = 0.0
    if (some := np.count_nonzero(allowed)) < count:
        raise ValueError(f"{some} items are too few to draw {count} candidates; use a smaller number or mode: full")
    cumulative = np.cumsum(allowed)
    keys = np.unique(store.row_of * store.n_items + store.items)
    result = np.zeros((store.n_rows, count), dtype=np.int32)
    width = 2 * count + 8
    for start in range(0, store.n_rows, step := max(1, _CHUNK // width)):
        rows = np.arange(start, min(start + step, store.n_rows))
        for _ in range(_ROUNDS):
            draws = np.searchsorted(cumulative, generator.random((len(rows), width)) * cumulative[-1], side="right")
            draws = np.hstack([result[rows], draws])
            pairs = rows[:, None] * store.n_items + draws
            at = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
            good = (draws > 0) & (keys[at] != pairs) & ~_repeats(draws)
            rank = np.cumsum(good, axis=1)
            chosen = good & (rank <= count)
            result[rows[np.nonzero(chosen)[0]], rank[chosen] - 1] = draws[chosen]
            if not len(rows := rows[rank[:, -1] < count]):
                break
        for row in rows.tolist():  # users with most of the items: draw from the rest
            rest = allowed.copy()
            rest[store.row(row)] = rest[result[row]] = 0.0
            drawn, available = np.count_nonzero(result[row]), np.count_nonzero(rest)
            if drawn + available < count:
                raise ValueError(
                    f"user {str(store.user_tokens[store.users[row]])!r} leaves {drawn + available} items to draw "
                    f"{count} candidates from; use a smaller number or mode: full"
                )
            result[row, drawn:] = generator.choice(store.n_items, count - drawn, replace=False, p=rest / rest.sum())
    return result


def _repeats(draws: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of draws that repeat an earlier draw of their row."""
    order = np.argsort(draws, axis=1, kind="stable")
    values = np.take_along_axis(draws, order, axis=1)
    again = np.zeros(draws.shape, dtype=bool)
    again[:, 1:] = values[:, 1:] == values[:, :-1]
    result = np.empty_like(again)
    np.put_along_axis(result, order, again, axis=1)
    return result


def read_candidates(path: Path, cases: Cases) -> npt.NDArray[np.int32]:
    """Return the candidates (n, k) of the cases from a file of DualRec and FMLP-Rec: 'user item item ...' per line.

    ValueError for a user without a line or with two, unknown users, lists of different lengths, repeated or unknown
    items, or a target among its candidates.
    """
    store = cases.store
    item_ids = {token: index for index, token in enumerate(store.item_tokens)}
    lists: dict[str, list[str]] = {}
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            user, *items = line.split()
            if user in lists:
                raise ValueError(f"{path}: line {number} is a second line for user {user!r}")
            if len(set(items)) != len(items):
                raise ValueError(f"{path}: line {number}: a candidate of user {user!r} is listed twice")
            lists[user] = items
    unknown = sorted(set(lists) - set(store.user_tokens[1:].tolist()))
    if unknown:
        raise ValueError(
            f"{path} has lines for {len(lists)} users, {len(unknown)} of whom are not among the "
            f"{len(store.user_tokens) - 1} users of the data (first: {', '.join(unknown[:3])}): "
            "the file belongs to another dataset or to other filters"
        )
    users = store.user_tokens[store.users[cases.rows]]
    missing = sorted(set(users) - set(lists))
    if missing:
        raise ValueError(
            f"{path} has lines for {len(lists)} users, but {len(missing)} of the {len(set(users))} evaluated users "
            f"have none (first: {', '.join(missing[:3])})"
        )
    sizes = {len(lists[user]) for user in users}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"{path}: every user must have the same number of candidates, not {sorted(sizes)[:5]}")
    try:
        result = np.array([[item_ids[item] for item in lists[user]] for user in users], dtype=np.int32)
    except KeyError as error:
        raise ValueError(f"{path}: item {error.args[0]!r} is not in the data") from None
    wrong = (result == cases.targets[:, None]).any(axis=1)
    if wrong.any():
        raise ValueError(
            f"{path}: {int(wrong.sum())} users have their target among the candidates (first: {users[wrong][0]})"
        )
    return result
