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

from recbole_hyper.data.ids import Ids, as_text, text_array
from recbole_hyper.data.inputs import Histories, column_names, read_histories, read_ids
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.times import unit_of_times
from recbole_hyper.errors import ConfigError, positive_int
from recbole_hyper.serving.catalogue import Catalogue, column_of_items
from recbole_hyper.serving.query import Query, Scorer, best_items, plain_query, require_all
from recbole_hyper.serving.rules import Plan, Rules, select

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

logger = logging.getLogger("recbole_hyper")


class Recommender:
    """Answers for original ids; all that calls share is computed once.

    Args:
        scorer: the model.
        config: configuration of its run, or the part of it that answers depend on.
        store: ids of users and items, and the history of each user.
        counts: (n_items,) training interactions.
        allowed: (n_items,) True where the run's protocol allows an item; None allows all.
        trained: numbers of the users that were trained on, for models with a vector per user.
        changed: what has changed since the run, in words; ``differences``.

    Attributes:
        catalogue: the items, with the columns that rules name.
        popularity: (n_items,) share of the training interactions; 0 for padding.
        names, unit: names of columns by field, and unit of times, in tables that continue the run's data.
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
        self.names, self.unit = column_names(config, store), unit_of_times(store.times)
        self._users, self._warned = Ids(store.user_tokens), False
        self._trained: npt.NDArray[np.bool_] | None = None
        if scorer.learns_users:
            self._trained = np.zeros(len(store.user_tokens), dtype=bool)
            self._trained[store.users if trained is None else trained] = True

    def _set_items(self, store: SequenceStore, counts: Int64, allowed: npt.NDArray[np.bool_] | None) -> None:
        self.store, self._counts = store, counts
        self.popularity = (counts / max(1, int(counts.sum()))).astype(np.float32)
        exclude_seen = bool(self.config["exclude_seen"])
        self.catalogue = Catalogue(store.item_tokens, counts, allowed, self.scorer.vectors, exclude_seen)
        self._may_be_read = np.arange(store.n_items) > 0 if allowed is None else np.array(allowed)
        self._may_be_read[0] = False

    def __repr__(self) -> str:
        known = f"{len(self.user_ids):,} users, {self.n_recommendable:,} items to recommend"
        return f"<{type(self).__name__} of {self.config['model']} on {self.config['dataset']}: {known}>"

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
        """Recommend items to users of the data, after their histories in it, or after any other histories.

        Args:
            users: original user ids: any iterable, Series, column of Arrow or polars.
            histories: original item ids, oldest first: a list of lists, a mapping of user to items, or a table
                (DataFrame, Arrow, polars) with columns of user, item and, unless its rows are in order, time. For a
                user whose data have grown, give the new history.
            k: length of each list.
            exclude_seen: leave out the items of the history; None does as the run's evaluation did.
            items: the only items to recommend; None is all that the run's protocol allows.
            exclude: items to leave out, or a mapping of user (or number of the history) to such items.
            unknown: "skip" and count users and items that the model does not know, or "error".
            cold: for a history without a known item, or a user without a trained vector: "popular" gives the items
                with the most training interactions, "error" refuses.
            times: of the items of ``histories``, in the same form, for models that read times; a table has a column of
                them. Numbers are in the unit of the data, dates become Unix seconds. Without times all items count as
                chosen at one moment, with a warning.
            rules: see :class:`Rules`, also as a mapping; :meth:`use_catalogue` gives the columns that they name.

        Returns:
            A row per recommendation: user_id (or the number of the history), position from 1, item_id, score, popular
            (True where the score is a share of the training interactions). ``attrs`` counts "unknown_items",
            "unknown_users" and "popular_users". Equal scores are in item order, as in the evaluation.

        Raises:
            ValueError: neither or both of users and histories, a k above the number of items, what ``unknown`` and
                ``cold`` refuse, no item left, an entry that is no id, times that do not fit the histories.
        """
        plan = self.catalogue.plan(k, exclude_seen, items, exclude, unknown, rules)
        return self.answer(self.query(users, histories, unknown, cold, times), plan)

    def use_catalogue(self, table: Any, item_column: str | None = None) -> None:
        """Give the items columns for rules, such as category, price and stock.

        ``table`` (pandas, polars or Arrow) has a row per item and replaces an earlier one. ``item_column`` names its
        column of original ids; None takes the name in the data, or a usual one. ConfigError for a table without ids, or
        without an item of the model.
        """
        self.catalogue = self.catalogue.with_columns(_arrow(table), item_column, self.names["item_id"])

    def add_items(self, table: Any, item_column: str | None = None) -> Recommender:
        """Take in items that the run did not know, and return this object. Nothing is trained or written.

        ``table`` (pandas, polars or Arrow) has a row per item: its id in ``item_column`` (None: the name in the data,
        or a usual one) and all ``selected_features`` of the run, which alone score it. Rows of known items are skipped;
        of two rows of one new item the first counts. Call it before :meth:`use_catalogue`. ConfigError for a model that
        does not score items by their features, or no column of ids; DataError for features that cannot be used.
        """
        table = _arrow(table)
        column = column_of_items(table, item_column, self.names["item_id"])
        tokens = text_array(as_text(table[column].combine_chunks()).fill_null(""))
        new = np.sort(np.unique(tokens, return_index=True)[1])
        new = new[(self.catalogue.ids.find(tokens[new]) == 0) & (tokens[new] != "")]
        self.scorer.add_items(tokens[new], table.take(new))
        store = replace(self.store, item_tokens=np.concatenate([self.store.item_tokens, tokens[new]]))
        allowed, more = self.catalogue.allowed, (0, len(new))
        allowed = None if allowed is None else np.pad(allowed, more, constant_values=True)
        self._set_items(store, np.pad(self._counts, more), allowed)
        return self

    def query(
        self, users: Any = None, histories: Any = None, unknown: str = "skip", cold: str = "popular", times: Any = None
    ) -> Query:
        """Return the histories that :meth:`recommend` answers; raises ValueError as it does."""
        for name, value, usual in (("unknown", unknown, "skip"), ("cold", cold, "popular")):
            if value not in (usual, "error"):
                raise ValueError(f"{name}={value!r}: {usual} or error is needed")
        if (users is None) == (histories is None):
            raise ValueError("give users or histories, one of the two")
        if histories is None and times is not None:
            raise ValueError("times belong to histories; those of users are in the data of the run")
        query = self._of_users(users, unknown) if histories is None else self._of_histories(histories, unknown, times)
        if cold == "error":
            query.require_warm()
        return query

    def lists(self, query: Query, plan: Plan) -> tuple[Int32, Scores]:
        """Return the items (n, k) of each list, best first, and their scores; item 0 where a list is shorter."""
        items, scores = np.zeros((len(query), plan.k), np.int32), np.zeros((len(query), plan.k), np.float32)
        for warm in (True, False):
            rows = np.flatnonzero(query.warm == warm)
            for start in range(0, len(rows), self.scorer.block):
                some = rows[start : start + self.scorer.block]
                part = query[some]
                block = self.scorer.scores(part) if warm else np.tile(self.popularity, (len(some), 1))
                seen = part.items.astype(np.int64)
                items[some], scores[some] = select(block, plan, part.offsets, seen, part.names)
        return items, scores

    def answer(self, query: Query, plan: Plan) -> pd.DataFrame:
        """Return the table of :meth:`recommend` for a query and a plan of the catalogue."""
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
        """All histories of the data, a row each, and an empty one."""
        store = self.store
        owners, offsets = np.append(store.users, 0), np.append(store.offsets, store.offsets[-1])
        return Query(owners, owners, offsets, store.items, np.diff(offsets) > 0, store.times)

    @cached_property
    def _row_of(self) -> Int64:
        """(n users,) row of each user number in the store, -1 where there is none."""
        rows = np.full(len(self.store.user_tokens), -1, dtype=np.int64)
        rows[self.store.users] = np.arange(self.store.n_rows)
        return rows

    def _of_users(self, users: Any, unknown: str) -> Query:
        given = read_ids("users", users)
        owners = self._users.find(given)
        rows = np.where(owners > 0, self._row_of[owners], -1)
        if unknown == "error":
            require_all(rows >= 0, given, "users are not in the data")
        query = replace(self._data[rows], names=given, owners=owners, unknown_users=int((rows < 0).sum()))
        return self._known(query)

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
                f"{self.config['model']} learned a vector per user: say whose the histories are, as a mapping of user "
                "to items or a table"
            )
        owners = self._users.find(read.names) if read.named else np.zeros(len(read.names), dtype=np.int64)
        if self.scorer.reads_times and read.times is None and not self._warned:
            logger.warning(
                "%s reads times, and histories came without: all their items count as chosen at one moment; give "
                "times=, or a table with a column %s", self.config["model"], self.config["TIME_FIELD"],
            )  # fmt: skip
            self._warned = True
        warm, missing = np.diff(read.offsets) > 0, int((items == 0).sum())
        return self._known(Query(read.names, owners, read.offsets, items, warm, read.times, missing))

    def _known(self, query: Query) -> Query:
        """Return histories without unknown items, and which of them the model can answer."""
        known, offsets, items = self._may_be_read[query.items], query.offsets, query.items
        times = query.times if self.scorer.reads_times else None
        if not known.all():
            offsets = np.concatenate([[0], np.cumsum(known)])[offsets]
            items, times = items[known], None if times is None else times[known]
        warm = np.diff(offsets) > 0 if self._trained is None else self._trained[query.owners]
        return replace(query, offsets=offsets, items=np.asarray(items, dtype=np.int32), warm=warm, times=times)

    def score(self, histories: Any, items: Any = None, times: Any = None) -> Scores:
        """Return the model's scores (n, m) for ``items``, None for all; histories and times as in :meth:`recommend`.

        ValueError for an unknown item in ``items``, or a history without a known item.
        """
        query = self.query(histories=histories, cold="error", times=times)
        columns = np.arange(1, self.store.n_items) if items is None else self.catalogue.numbers("items", items, "error")
        parts = [np.empty((0, len(columns)), dtype=np.float32)]
        for start in range(0, len(query), self.scorer.block):
            parts.append(self.scorer.scores(query[start : start + self.scorer.block])[:, columns])
        return np.concatenate(parts)

    def states(self, histories: Any, times: Any = None) -> Scores:
        """Return the states (n, d) of histories, which the head scores against :meth:`item_vectors`.

        Histories and times are those of :meth:`recommend`. ConfigError for a model without states; ValueError for a
        history without a known item.
        """
        return self.scorer.states(self.query(histories=histories, cold="error", times=times))

    def item_vectors(self) -> pd.DataFrame:
        """Return the vectors of all items: float32 columns 0 .. d - 1, original ids as the index.

        They are the item matrix of the head, the factors of PureSVDN, or the item embedding of RecBole's models, after
        graph convolutions if there are any. ConfigError for a model without item vectors.
        """
        vectors = self.scorer.vectors()
        if vectors is None:
            raise ConfigError(f"{self.config['model']} has no item vectors")
        return pd.DataFrame(vectors[1:], index=pd.Index(self.item_ids, name="item_id"))

    def similar_items(self, items: Any, k: int = 10) -> pd.DataFrame:
        """Return the k items most similar to each of ``items``: item_id, position from 1, similar_id, score.

        ``attrs["measure"]`` names the measure: the cosine of the item vectors, or minus their geodesic distance for a
        Poincare head; for models without item vectors (EASER, ItemKNN) the score after a history of that item alone.
        ValueError for an unknown item, or a k above the number of other items.
        """
        given = read_ids("items", [items] if isinstance(items, str) else items)
        measure, lists, scores = self.neighbours(self.catalogue.numbers("items", given, "error"), k)
        frame = pd.DataFrame(
            {
                "item_id": np.repeat(given, k),
                "position": np.tile(np.arange(1, k + 1), len(given)),
                "similar_id": self.store.item_tokens[lists.ravel()],
                "score": scores.ravel(),
            }
        )
        frame.attrs["measure"] = measure
        return frame

    def neighbours(self, numbers: Int64, k: int) -> tuple[str, Int32, Scores]:
        """Return (what is measured, the items (q, k) most like ``numbers`` (q,), how much); raises ValueError for k."""
        if positive_int("k", k) >= self.n_recommendable:
            raise ValueError(f"k={k}: between 1 and {self.n_recommendable - 1} neighbours can be listed")
        measure, lists, values = "", [np.empty((0, k), dtype=np.int32)], [np.empty((0, k), dtype=np.float32)]
        hidden = None if self.catalogue.allowed is None else ~self.catalogue.allowed
        size = max(1, self.scorer.block // 8)  # similarity on a ball takes 8 times the memory of scores
        for start in range(0, len(numbers), size):
            some = numbers[start : start + size]
            if (similar := self.scorer.similarity(some)) is not None:
                measure, alike = similar
            elif self._trained is not None:
                raise ConfigError(f"{self.config['model']} has no item vectors and scores no history")
            else:
                measure = "score after a history of the item alone"
                alike = self.scorer.scores(plain_query([[item] for item in some.tolist()]))
            top, best = best_items(alike, k, offsets=np.arange(len(some) + 1), excluded=some, hidden=hidden)
            lists.append(top)
            values.append(best)
        return measure, np.concatenate(lists), np.concatenate(values)


def _arrow(table: Any) -> pa.Table:
    """Return a pandas, polars or Arrow table as an Arrow table."""
    table = table.to_arrow() if hasattr(table, "to_arrow") else table
    return table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
