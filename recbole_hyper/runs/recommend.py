"""What a finished run recommends, in one call."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from recbole_hyper.errors import whole
from recbole_hyper.runs.load import load
from recbole_hyper.serving.histories import flag, histories, ids


def recommend(
    output_dir: str | Path,
    users: Iterable[str | int] | None = None,
    *,
    sequences: Iterable[Iterable[str | int]] | None = None,
    times: Iterable[Iterable[float]] | None = None,
    k: int = 10,
    exclude_seen: bool | None = None,
    trust_plugins: bool = False,
) -> pd.DataFrame:
    """Recommend items from a finished run, for known users (with all they did) or for any histories of item ids.

    Loads the run at every call: for many calls, or more lenient ones, keep ``load(output_dir)``.

    Args:
        output_dir: folder of the run.
        users: original user ids, any iterable; None with ``sequences``.
        sequences: histories of original item ids, oldest first, any iterable of iterables.
        times: of the items of ``sequences``, for a model that reads times; see ``Recommender.recommend``.
        trust_plugins: see :func:`recbole_hyper.load`.
        k, exclude_seen: items per user; leave out what the history holds, None as the run's evaluation did.

    Returns:
        A row per recommendation: user_id (or the index of the sequence), position from 1, item_id, score.

    Raises:
        ValueError: neither or both of users and sequences, a text where a list is needed, an unknown user or item, an
            empty history, a k that is no whole number or more than there are items.
    """
    if (users is None) == (sequences is None):
        raise ValueError("give users or sequences, one of the two")
    named = None if users is None else ids("users", users)
    given = None if sequences is None else histories("sequences", sequences)
    whole("k", k)
    if exclude_seen is not None:
        flag("exclude_seen", exclude_seen)
    found = load(output_dir, trust_plugins=trust_plugins).recommend(
        named, given, k, exclude_seen, unknown="error", cold="popular" if given is None else "error", times=times
    )
    return found.drop(columns="popular")
