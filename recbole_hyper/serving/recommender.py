"""Recommendations, scores, states and neighbours of a trained model, for original ids. Imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.ids import Ids, as_text, text_array
from recbole_hyper.data.tables.inputs import FIELD_KEYS, Histories, column_names, read_histories, read_ids
from recbole_hyper.errors import ConfigError, positive_int
from recbole_hyper.serving.catalogue import Catalogue, column_of_items
from recbole_hyper.serving.query import Query, Scorer, best_items, plain_query, require_all
from recbole_hyper.serving.rules import Plan, Rules, select

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

logger = logging.getLogger("recbole_hyper")


class Recommender:
    """Recommends, scores and compares items by their original ids.

    Args:
        scorer: the model.
        config: configuration of its run, or the part of it that answers depend on.
        store: ids of users and items, and the history of each user.
        counts: (n_items,) training interactions.
        allowed: (n_items,) True for items that the run's protocol recommends; None means all.
        trained: numbers of the users in the training data, for models with a vector per user.
        changed: changes since the run, one sentence each; available as ``differences``.

    Attributes:
        catalogue: the items, with the columns for rules.
        popularity: (n_items,) share of the training interactions; 0 for padding.
        names: column names by field in tables that continue the run's data.
    """

    def __init__(
        self,
        scorer: Scorer,
        config: Any,
        store: SequenceStore,
        *,
        counts: Int64,
        allowed: npt.NDArray[np.bool_] | None = None,
        trained: Int64 | None = None,
        changed: Sequence[str] = (),
    ) -> None:
        self.scorer, self.config = scorer, config
        self.differences = list(changed)
        self._set_items(store, counts, allowed)
        self.names = column_names(store.columns, {field: config[key] for field, key in FIELD_KEYS.items()})
        self._users, self._warned = Ids(store.user_tokens), False
        self._trained: npt.NDArray[np.bool_] | None = None
        if scorer.learns_users:
            self._trained = np.zeros(len(store.user_tokens), dtype=bool)
            self._trained[store.users if trained is None else trained] = True

    def _set_items(self, store: SequenceStore, counts: Int64, allowed: npt.NDArray[np.bool_] | None) -> None:
        self.store, self._counts = store, counts
        self.popularity = (counts / max(1, int(counts.sum()))).astype(np.float32)
        exclude_seen = bool(self.config["exclude_seen"])
        self._own_catalogue = self.catalogue = Catalogue(
            store.item_tokens, counts, allowed, self.scorer.vectors, exclude_seen
        )
        self._may_be_read = np.arange(store.n_items) > 0 if allowed is None else np.array(allowed)
        self._may_be_read[0] = False

    def __repr__(self) -> str:
        known = f"{len(self.user_ids):,} users, {self.n_recommendable:,} items to recommend"
        return f"<{type(self).__name__} of {self.config['model']} on {self.config['dataset']}: {known}>"

    @cached_property
    def unit(self) -> str | None:
        """The unit of times in tables that continue the run's data."""
        from recbole_hyper.data.tables.times import unit_of_times

        return unit_of_times(self.store.times)

    @property
    def model(self) -> Any:
        """The trained model."""
        return self.scorer.model

    @property
    def item_ids(self) -> npt.NDArray[np.str_]:
        """(n,) original ids of all items, read-only."""
        return _read_only(self.store.item_tokens[1:])

    @property
    def user_ids(self) -> npt.NDArray[np.str_]:
        """(m,) original ids of all users, read-only."""
        return _read_only(self.store.user_tokens[1:])

    @property
    def n_recommendable(self) -> int:
        """Number of items that may be recommended."""
        return self.catalogue.n_recommendable

    def recommend(
        self,
        users: Any = None,
        histories: Any = None,
        k: int = 10,
        exclude_seen: bool | None = None,
        items: Any = None,
        exclude: Any = None,
        unknown: str = "skip",
        cold: str = "popular",
        times: Any = None,
        rules: Rules | Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Recommend items to users of the data, or after any other histories.

        Args:
            users: original user ids: any iterable, Series, column of Arrow or polars.
            histories: original item ids, oldest first: a list of lists, a mapping from user to items, or a table
                (DataFrame, Arrow, polars) with columns of user and item, and of time unless its rows are in order. Pass
                the whole history of a user who has new interactions.
            k: length of each list.
            exclude_seen: leave out the items of the history; None follows the run's evaluation.
            items: recommend only these items; None means all that the run's protocol allows.
            exclude: items to leave out, or a mapping from user (or number of the history) to such items.
            unknown: for ids that the model does not know: "skip" skips and counts items, and gives unknown users
                popular items; "error" raises.
            cold: for a history without a known item, or a user without a trained vector: "popular" recommends the items
                with the most training interactions, "error" raises.
            times: times of the items, in the form of ``histories``, for models that read times; a table has a column of
                them. Numbers are in the unit of the data, dates become Unix seconds. Without times, all items of a
                history have the same time, with a warning.
            rules: :class:`Rules` or a mapping; :meth:`use_catalogue` adds the columns that they name.

        Returns:
            A row per recommendation: user_id (or the number of the history), position from 1, item_id, score, popular
            (True if the score is a share of the training interactions). ``attrs`` counts "unknown_items",
            "unknown_users" and "popular_users". Equal scores are in item order, as in the evaluation.

        Raises:
            ValueError: both or neither of users and histories; a k above the number of items; no item left; an entry
                that is not an id; times that do not fit the histories; unknown ids or cold users with "error".
        """
        plan = self.catalogue.plan(k, exclude_seen, items, exclude, unknown, rules)
        return self.answer(self.query(users, histories, unknown, cold, times), plan)

    def use_catalogue(self, table: Any, item_column: str | None = None) -> None:
        """Use the columns of a table, such as category, price and stock, in rules.

        ``table`` (pandas, polars, Arrow, or a mapping from columns to their values) has a row per item and replaces an
        earlier one; the first row of an item counts. ``item_column`` names its column of original ids; None looks for
        the name in the run's data, then for a usual name. ConfigError if the table has no ids, or no item of the model.
        """
        self.catalogue = self._own_catalogue.with_columns(_arrow(table), item_column, self.names["item_id"])

    def add_items(self, table: Any, item_column: str | None = None) -> Recommender:
        """Add items that are not in the run's data, and return this object. Nothing is trained or written.

        ``table`` (pandas, polars or Arrow) has a row per item, with its id in ``item_column`` (see
        :meth:`use_catalogue`) and all ``selected_features`` of the run, which alone score it. Rows of known items are
        skipped; the first row of a new item counts. Call this before :meth:`use_catalogue`. ConfigError if the model
        does not score items by their features, or the table has no ids; DataError for unusable features.
        """
        table = self.unknown_items(table, item_column)
        tokens = self._tokens_of(table, item_column)
        self.scorer.add_items(tokens, table)
        store = replace(self.store, item_tokens=np.concatenate([self.store.item_tokens, tokens]))
        allowed, more = self.catalogue.allowed, (0, len(tokens))
        allowed = None if allowed is None else np.pad(allowed, more, constant_values=True)
        self._set_items(store, np.pad(self._counts, more), allowed)
        return self

    def unknown_items(self, table: Any, item_column: str | None = None) -> pa.Table:
        """Return the rows of ``table`` with items that are not in the run's data, the first row of each."""
        table = _arrow(table)
        tokens = self._tokens_of(table, item_column)
        new = np.sort(np.unique(tokens, return_index=True)[1])
        return table.take(new[(self.catalogue.ids.find(tokens[new]) == 0) & (tokens[new] != "")])

    def _tokens_of(self, table: pa.Table, item_column: str | None) -> npt.NDArray[Any]:
        column = column_of_items(table, item_column, self.names["item_id"])
        return text_array(as_text(table[column].combine_chunks()).fill_null(""))

    def query(
        self, users: Any = None, histories: Any = None, unknown: str = "skip", cold: str = "popular", times: Any = None
    ) -> Query:
        """Return the histories that :meth:`recommend` scores; raises the same ValueErrors."""
        for name, value, usual in (("unknown", unknown, "skip"), ("cold", cold, "popular")):
            if value not in (usual, "error"):
                raise ValueError(f"{name}={value!r}: {usual} or error is needed")
        if (users is None) == (histories is None):
            raise ValueError("give users or histories, one of the two")
        if histories is None and times is not None:
            raise ValueError("times belong to histories; the run's data has the times of users")
        query = self._of_users(users, unknown) if histories is None else self._of_histories(histories, unknown, times)
        if cold == "error":
            query.require_warm()
        return query

    def lists(self, query: Query, plan: Plan) -> tuple[Int32, Scores]:
        """Return the items (n, k) of each list, best first, and their scores; item 0 fills up shorter lists."""
        items, scores = np.zeros((len(query), plan.k), np.int32), np.zeros((len(query), plan.k), np.float32)
        for warm in (True, False):
            rows = np.flatnonzero(query.warm == warm)
            for start in range(0, len(rows), self.scorer.block):
                batch = rows[start : start + self.scorer.block]
                part = query[batch]
                block = self.scorer.scores(part) if warm else np.tile(self.popularity, (len(batch), 1))
                seen = part.items.astype(np.int64)
                items[batch], scores[batch] = select(block, plan, part.offsets, seen, part.names)
        return items, scores

    def answer(self, query: Query, plan: Plan) -> pd.DataFrame:
        """Return the table of :meth:`recommend`."""
        items, scores = self.lists(query, plan)
        n, k = items.shape
        columns = {
            "user_id": np.repeat(query.names, k),
            "position": np.tile(np.arange(1, k + 1), n),
            "item_id": self.store.item_tokens[items.ravel()],
            "score": scores.ravel(),
            "popular": np.repeat(~query.warm, k),
        }
        if not items.all():
            columns = {name: column[items.ravel() > 0] for name, column in columns.items()}
        frame = pd.DataFrame(columns)
        cold = int((~query.warm).sum())
        frame.attrs = {
            "unknown_items": query.unknown_items, "unknown_users": query.unknown_users, "popular_users": cold
        }  # fmt: skip
        return frame

    @cached_property
    def _data(self) -> Query:
        """All histories of the data, and an empty one at the end, for unknown users."""
        store = self.store
        owners, offsets = np.append(store.users, 0), np.append(store.offsets, store.offsets[-1])
        return Query(owners, owners, offsets, store.items, np.diff(offsets) > 0, store.times)

    @cached_property
    def _row_of(self) -> Int64:
        """(n users,) row of each user number in the store, -1 for none."""
        rows = np.full(len(self.store.user_tokens), -1, dtype=np.int64)
        rows[self.store.users] = np.arange(self.store.n_rows)
        return rows

    def _of_users(self, users: Any, unknown: str) -> Query:
        ids = read_ids("users", users)
        owners = self._users.find(ids)
        rows = np.where(owners > 0, self._row_of[owners], -1)
        if unknown == "error":
            require_all(rows >= 0, ids, "users are not in the data")
        return self._known(replace(self._data[rows], names=ids, owners=owners, unknown_users=int((rows < 0).sum())))

    def _of_histories(self, histories: Any, unknown: str, times: Any) -> Query:
        read = histories
        if not isinstance(read, Histories):
            read = read_histories(histories, self.names, times, self.unit)
        numbers = self.catalogue.ids.find(read.tokens)
        known = self._may_be_read[numbers]
        if unknown == "error":
            require_all(known, read.tokens, "items are not in the data")
        items = np.where(known, numbers, 0)[read.codes]
        if not read.named and self._trained is not None:
            raise ValueError(
                f"{self.config['model']} learned a vector per user: pass the histories as a mapping from user to "
                "items, or as a table"
            )
        owners = self._users.find(read.names) if read.named else np.zeros(len(read.names), dtype=np.int64)
        if self.scorer.reads_times and read.times is None and not self._warned:
            logger.warning(
                "%s reads times, but the histories have none: all their items get the same time; pass times=, or a "
                "table with a column %s", self.config["model"], self.config["TIME_FIELD"],
            )  # fmt: skip
            self._warned = True
        warm, missing = np.diff(read.offsets) > 0, int((items == 0).sum())
        return self._known(Query(read.names, owners, read.offsets, items, warm, read.times, missing))

    def _known(self, query: Query) -> Query:
        """Return the histories without unknown items, with ``warm`` updated."""
        known, offsets, items = self._may_be_read[query.items], query.offsets, query.items
        times = query.times if self.scorer.reads_times else None
        if not known.all():
            offsets = np.concatenate([[0], np.cumsum(known)])[offsets]
            items, times = items[known], None if times is None else times[known]
        warm = np.diff(offsets) > 0 if self._trained is None else self._trained[query.owners]
        return replace(query, offsets=offsets, items=np.asarray(items, dtype=np.int32), warm=warm, times=times)

    def score(self, histories: Any, items: Any = None, times: Any = None) -> Scores:
        """Return the scores (n, m) of ``items``, None for all; histories and times as in :meth:`recommend`.

        ValueError for an unknown item in ``items``, or a history without a known item.
        """
        query = self.query(histories=histories, cold="error", times=times)
        columns = np.arange(1, self.store.n_items) if items is None else self.catalogue.numbers("items", items, "error")
        parts = [np.empty((0, len(columns)), dtype=np.float32)]
        for start in range(0, len(query), self.scorer.block):
            parts.append(self.scorer.scores(query[start : start + self.scorer.block])[:, columns])
        return np.concatenate(parts)

    def states(self, histories: Any, times: Any = None) -> Scores:
        """Return the states (n, d) of histories, which the head compares with :meth:`item_vectors`.

        Histories and times as in :meth:`recommend`. ConfigError for a model without states; ValueError for a history
        without a known item.
        """
        return self.scorer.states(self.query(histories=histories, cold="error", times=times))

    def item_vectors(self) -> pd.DataFrame:
        """Return the vectors of all items: float32 columns 0 .. d - 1, original ids as the index.

        These are the item matrix of the head, the factors of PureSVDN, or the item embedding of a RecBole model (after
        its graph convolutions, if any). ConfigError for a model without item vectors.
        """
        vectors = self.scorer.vectors()
        if vectors is None:
            raise ConfigError(f"{self.config['model']} has no item vectors")
        return pd.DataFrame(vectors[1:], index=pd.Index(self.item_ids, name="item_id"))

    def similar_items(self, items: Any, k: int = 10) -> pd.DataFrame:
        """Return the k items most similar to each of ``items``: item_id, position from 1, similar_id, score.

        ``attrs["measure"]`` names the measure: the cosine of the item vectors, or minus their geodesic distance for a
        Poincare head. Models without item vectors (EASER, ItemKNN) use the score after a history of that item alone.
        ValueError for an unknown item, or a k above the number of other items.
        """
        ids = read_ids("items", [items] if isinstance(items, str) else items)
        measure, lists, scores = self.neighbours(self.catalogue.numbers("items", ids, "error"), k)
        frame = pd.DataFrame(
            {
                "item_id": np.repeat(ids, k),
                "position": np.tile(np.arange(1, k + 1), len(ids)),
                "similar_id": self.store.item_tokens[lists.ravel()],
                "score": scores.ravel(),
            }
        )
        frame.attrs["measure"] = measure
        return frame

    def neighbours(self, numbers: Int64, k: int) -> tuple[str, Int32, Scores]:
        """Return (name of the measure, the items (q, k) most similar to ``numbers`` (q,), their similarity)."""
        if positive_int("k", k) >= self.n_recommendable:
            raise ValueError(f"k={k}: between 1 and {self.n_recommendable - 1} neighbours can be listed")
        measure, lists, values = "", [np.empty((0, k), dtype=np.int32)], [np.empty((0, k), dtype=np.float32)]
        hidden = None if self.catalogue.allowed is None else ~self.catalogue.allowed
        size = max(1, self.scorer.block // 8)  # similarity on a ball takes 8 times the memory of scores
        for start in range(0, len(numbers), size):
            batch = numbers[start : start + size]
            if (measured := self.scorer.similarity(batch)) is not None:
                measure, scores = measured
            elif self._trained is not None:
                raise ConfigError(f"{self.config['model']} has no item vectors and scores no history")
            else:
                measure = "score after a history of the item alone"
                scores = self.scorer.scores(plain_query([[item] for item in batch.tolist()]))
            top, best = best_items(scores, k, offsets=np.arange(len(batch) + 1), excluded=batch, hidden=hidden)
            lists.append(top)
            values.append(best)
        return measure, np.concatenate(lists), np.concatenate(values)


def _arrow(table: Any) -> pa.Table:
    """Return a table of pandas, polars or Arrow, or a mapping of columns, as an Arrow table; ConfigError for others."""
    table = table.to_arrow() if hasattr(table, "to_arrow") else table
    try:
        frame = pd.DataFrame(dict(table)) if isinstance(table, Mapping) else table
        return frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"a table of {type(table).__name__} cannot be read ({error}); pass a frame of pandas or polars, an Arrow "
            "table, or a mapping from columns to lists of equal length, such as {'item_id': ['a'], 'price': [5]}"
        ) from error


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
