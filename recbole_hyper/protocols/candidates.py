"""Candidates to rank a target among: drawn once per user, or read from a published file."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases

_CHUNK = 1 << 22  # drawn numbers at one time
_ROUNDS = 16  # of draws, until what is left is looked up


def draw_candidates(
    store: SequenceStore, count: int, seed: int, weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """Draw ``count`` distinct items outside each user's whole sequence: one list per user, (U, count), for both parts.

    Items are drawn without replacement in proportion to ``weights`` (n_items,), such as popularity. The same seed gives
    the same lists. ValueError if a user has too few items left.
    """
    if count < 1:
        raise ValueError(f"uniN and popN need N of at least 1, got {count}")
    generator = np.random.default_rng([seed, 0xCA4D])
    allowed = weights.copy()
    allowed[0] = 0.0
    if (some := np.count_nonzero(allowed)) < count:
        raise ValueError(f"{count} candidates cannot be drawn from {some} items; use a smaller number or mode: full")
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
            left = allowed.copy()
            left[store.row(row)] = left[result[row]] = 0.0
            had, there = np.count_nonzero(result[row]), np.count_nonzero(left)
            if had + there < count:
                raise ValueError(
                    f"user {str(store.user_tokens[store.users[row]])!r} leaves {had + there} items to draw "
                    f"{count} candidates from; use a smaller number or mode: full"
                )
            result[row, had:] = generator.choice(store.n_items, count - had, replace=False, p=left / left.sum())
    return result


def _repeats(draws: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Mark the draws of a row that were drawn before in that row."""
    order = np.argsort(draws, axis=1, kind="stable")
    values = np.take_along_axis(draws, order, axis=1)
    again = np.zeros(draws.shape, dtype=bool)
    again[:, 1:] = values[:, 1:] == values[:, :-1]
    result = np.empty_like(again)
    np.put_along_axis(result, order, again, axis=1)
    return result


def read_candidates(path: Path, cases: Cases) -> npt.NDArray[np.int32]:
    """Read the format of DualRec and FMLP-Rec, a line 'user item item ...' per user: (n, k) item ids, a row per case.

    ValueError for a user without a line or with two, unknown users, lists of different lengths, repeated or unknown
    items, a target among its candidates.
    """
    store = cases.store
    item_ids = {token: index for index, token in enumerate(store.item_tokens)}
    lists: dict[str, list[str]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            user, *items = line.split()
            if user in lists:
                raise ValueError(f"{path}: line {number} is a second line for user {user!r}")
            if len(set(items)) != len(items):
                raise ValueError(f"{path}: line {number}: a candidate of user {user!r} is listed twice")
            lists[user] = items
    strangers = sorted(set(lists) - set(store.user_tokens[1:].tolist()))
    if strangers:
        raise ValueError(
            f"{path} has lines for {len(lists)} users, {len(strangers)} of whom are not among the "
            f"{len(store.user_tokens) - 1} users of the data (first: {', '.join(strangers[:3])}): "
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
        raise ValueError(f"{path}: every user needs equally many candidates, found {sorted(sizes)[:5]}")
    try:
        result = np.array([[item_ids[item] for item in lists[user]] for user in users], dtype=np.int32)
    except KeyError as error:
        raise ValueError(f"{path}: item {error.args[0]!r} is not in the data") from None
    clash = (result == cases.targets[:, None]).any(axis=1)
    if clash.any():
        raise ValueError(
            f"{path}: {int(clash.sum())} users have their target among the candidates (first: {users[clash][0]})"
        )
    return result
