"""A trained model that answers: recommendations, scores, states and neighbours, for original ids."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from recbole_hyper.config.parts import reads_times
from recbole_hyper.data.histories import whole_histories
from recbole_hyper.data.ids import Ids
from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.data.times import unit_of_times
from recbole_hyper.errors import ConfigError, whole
from recbole_hyper.evaluation.ranking import Scorer, rows_of_a_block, scores_of
from recbole_hyper.evaluation.scorers import learns_users
from recbole_hyper.evaluation.search import best_items
from recbole_hyper.models.contract import OwnModel, item_vectors, make_scorer, similarity
from recbole_hyper.serving.catalogue import Catalogue, column_of_items
from recbole_hyper.serving.histories import Histories, column_names, read_histories, read_ids
from recbole_hyper.serving.rules import Plan, Rules, select
from recbole_hyper.types import Cases

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

logger = logging.getLogger("recbole_hyper")


class Recommender:
    """Answers for original ids; everything is made once, so that a call costs little beyond the model itself.

    Args:
        model: a trained model of this package or of RecBole.
        config: configuration of its run.
        store: ids of users and items, and what each user did.
        counts: (n_items,) how often each item was trained on.
        catalogue: (n_items,) True where an item may be recommended, as the protocol of the run says; None for all.
        trained: user ids that were trained on; needed for models with a vector per user.
        changed: what is not as it was in the run, in words.

    Attributes:
        model, config, store: as given.
        popularity: (n_items,) share of the training interactions, by item number; 0 for padding.
        differences: what is not as it was in the run, in words.
    """

    def __init__(
        self,
        model: Any,
        config: Any,
        store: SequenceStore,
        *,
        counts: Int64,
        catalogue: npt.NDArray[np.bool_] | None = None,
        trained: Int64 | None = None,
        changed: Sequence[str] = (),
    ) -> None:
        self.model, self.config, self.store = model.eval(), config, store
        self.popularity = (counts / max(1, int(counts.sum()))).astype(np.float32)
        self.differences = list(changed)
        self.catalogue = Catalogue(store.item_tokens, counts, catalogue, self._vectors)
        self._items, self._users = self.catalogue.ids, Ids(store.user_tokens)
        # what the columns of a table are called that goes on from the run's data, and the unit of its times
        self.names = column_names(config, store)
        self.unit = unit_of_times(store.times)
        self._score = make_scorer(model, config)
        self._reads_times, self._warned = reads_times(config), False
        self._budget = int(config["ranking_memory_budget"])
        self._trained: npt.NDArray[np.bool_] | None = None
        if not isinstance(model, OwnModel) and learns_users(type(model)):
            self._trained = np.zeros(len(store.user_tokens), dtype=bool)
            self._trained[store.users if trained is None else trained] = True

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_score"}  # a function inside another

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _score=make_scorer(state["model"], state["config"]))

    def __repr__(self) -> str:
        known = f"{len(self.user_ids):,} users, {self.n_recommendable:,} items to recommend"
        return f"<{type(self).__name__} of {self.config['model']} on {self.config['dataset']}: {known}>"

    @property
    def item_ids(self) -> npt.NDArray[np.str_]:
        """(n,) original ids of all items, read-only."""
        return _read_only(self.store.item_tokens[1:])

    @property
    def user_ids(self) -> npt.NDArray[np.str_]:
        """(m,) original ids of all users, read-only."""
        return _read_only(self.store.user_tokens[1:])

    @property
    def learns_users(self) -> bool:
        """Whether the model answers for users that it was trained on, and for no history."""
        return self._trained is not None

    @property
    def n_recommendable(self) -> int:
        """Number of items that may be recommended."""
        return self.catalogue.n_recommendable

    # --- recommendations ---------------------------------------------------------------------------------------------
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
        """Recommend items to users of the data, with all that they did in it, or after any histories.

        Args:
            users: original user ids: any iterable, Series, column of Arrow or polars.
            histories: original item ids, oldest first: a list of lists, a mapping of user to items, or a table
                (DataFrame, Arrow, polars) with columns of user, item and, unless its rows are in order, time. A user
                whose data have grown is query about by the new history.
            k: items each.
            exclude_seen: leave out what the history holds; None does as the run's evaluation did.
            items: the only items that may be recommended; None is all that the run may recommend.
            exclude: items that may not be recommended, or a mapping of user (or number of the history) to such items.
            unknown: of users and items that the model does not know: "skip" and count them, or "error".
            cold: for a history without a known item (or a user not trained on, where the model has a vector per
                user): "popular" gives the items with most training interactions, "error" refuses.
            times: when the items of ``histories`` were chosen, in the same form; a table has them in its column. For
                models that read times, which take histories without them for such of a single moment, and warn once.
                Numbers are in the unit of the data, dates become Unix seconds.
            rules: what lists must keep to, see :class:`Rules`, also as a mapping: conditions on the catalogue, limits
                per category, boosts, diversity. :meth:`use_catalogue` gives the columns.

        Returns:
            A row per recommendation: user_id (or the number of the history), position from 1, item_id, score, popular
            (True: not the model's, the score is the share of training interactions). ``attrs`` counts
            "unknown_items", "unknown_users" and "popular_users". Equal scores are in item order, as the evaluation
            ranks.

        Raises:
            ValueError: neither or both of users and histories, a k above the items that may be recommended, what
                ``unknown`` and ``cold`` refuse, nothing left of ``items``, or what is no id and no history; times that
                do not belong to the histories.
        """
        plan = self.plan(k, exclude_seen, items, exclude, unknown, rules)
        return self.answer(self.query(users, histories, unknown, cold, times), plan)

    def plan(
        self,
        k: int = 10,
        exclude_seen: bool | None = None,
        items: Any = None,
        exclude: Any = None,
        unknown: str = "skip",
        rules: Rules | Mapping[str, Any] | None = None,
    ) -> Plan:
        """Return what :meth:`recommend` does with scores; raises ValueError as it does."""
        seen = bool(self.config["exclude_seen"]) if exclude_seen is None else exclude_seen
        return self.catalogue.plan(k, exclude_seen=seen, items=items, exclude=exclude, unknown=unknown, rules=rules)

    def use_catalogue(self, table: Any, item_column: str | None = None) -> None:
        """Give the items columns for rules: category, price, stock and whatever else a shop knows today.

        Args:
            table: a pandas, polars or Arrow table with a row per item; an earlier one is replaced.
            item_column: its column of original item ids; None takes the name in the data, or a usual one.

        Raises:
            ConfigError: no such column, or no row of an item of the model.
        """
        table = table.to_arrow() if hasattr(table, "to_arrow") else table
        table = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        name = item_column or column_of_items(table, self.names["item_id"])
        self.catalogue = self.catalogue.with_columns(table, name)

    def query(
        self, users: Any = None, histories: Any = None, unknown: str = "skip", cold: str = "popular", times: Any = None
    ) -> Query:
        """Read whom :meth:`recommend` answers; raises ValueError as it does."""
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

    @torch.no_grad()
    def answer(self, query: Query, plan: Plan) -> pd.DataFrame:
        """Return what :meth:`recommend` returns for what :meth:`query` and :meth:`plan` read."""
        lists = np.zeros((len(query), plan.k), dtype=np.int32)
        scores = np.zeros((len(query), plan.k), dtype=np.float32)
        size = rows_of_a_block(self.store.n_items, self._budget)
        for rows, score in ((np.flatnonzero(query.warm), self._score), (np.flatnonzero(~query.warm), self._popular)):
            for start in range(0, len(rows), size):
                some = rows[start : start + size]
                offsets, seen = query.histories(some)
                left_out = plan.left_out(query.names[some], offsets, seen.astype(np.int64))
                block = self.scores_of(query, some, score)
                lists[some], scores[some] = select(block, plan, *left_out)
        return self._frame(query, lists, scores)

    def scores_of(self, query: Query, rows: Int64, score: Scorer | None = None) -> npt.NDArray[np.float32]:
        """Return the model's scores, or others', (n, n_items) of the histories ``rows`` (n,), to be written over."""
        return _own_rows(scores_of(score or self._score, query.cases(self.store, rows), self.store.n_items))

    def _frame(self, query: Query, lists: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]) -> pd.DataFrame:
        n, k = lists.shape
        found = lists.ravel()
        columns = {
            "user_id": np.repeat(query.names, k),
            "position": np.tile(np.arange(1, k + 1), n),
            "item_id": self.store.item_tokens[found],
            "score": scores.ravel(),
            "popular": np.repeat(~query.warm, k),
        }
        if not found.all():
            columns = {name: column[found > 0] for name, column in columns.items()}
        frame = pd.DataFrame(columns)
        frame.attrs = {
            "unknown_items": query.unknown_items,
            "unknown_users": query.unknown_users,
            "popular_users": int((~query.warm).sum()),
        }
        return frame

    def _popular(self, cases: Cases) -> torch.Tensor:
        return torch.from_numpy(self.popularity).repeat(len(cases), 1)

    # --- histories ---------------------------------------------------------------------------------------------------
    @cached_property
    def _row_of(self) -> Int64:
        """(n users,) row of each user id in the store, -1 where there is none."""
        rows = np.full(len(self.store.user_tokens), -1, dtype=np.int64)
        rows[self.store.users] = np.arange(self.store.n_rows)
        return rows

    def _of_users(self, users: Any, unknown: str) -> Query:
        given = read_ids("users", users)
        owners = self._users.find(given.astype(str))
        rows = self._row_of[owners]
        rows[owners == 0] = -1
        if unknown == "error":
            _require_known("users", given, rows >= 0)
        begins = np.where(rows >= 0, self.store.offsets[rows], 0)
        lengths = np.where(rows >= 0, self.store.lengths[rows], 0) if len(rows) else np.zeros(0, dtype=np.int64)
        places = ranges(begins, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        query = Query(given, owners, offsets, self.store.items[places], unknown_users=int((rows < 0).sum()))
        return self._known(query, self.store.times[places] if self._reads_times else None)

    def _of_histories(self, histories: Any, unknown: str, times: Any = None) -> Query:
        read = histories
        if not isinstance(histories, Histories):
            read = read_histories(histories, self.names, times, self.unit)
        numbers = self._items.find(read.tokens)
        known = self._is_known(numbers)
        if unknown == "error":
            _require_known("items", read.tokens, known)
        items = np.where(known, numbers, 0)[read.codes]
        if not read.named and self._trained is not None:
            raise ValueError(
                f"{type(self.model).__name__} learned a vector per user: say whose the histories are, as a mapping of "
                "user to items or a table"
            )
        owners = self._users.find(read.names.astype(str)) if read.named else np.zeros(len(read.names), dtype=np.int64)
        query = Query(read.names, owners, read.offsets, items, unknown_items=int((items == 0).sum()))
        return self._known(query, self._times(read))

    def _times(self, read: Histories) -> Float64 | None:
        """Return the times of the items of histories, None where the model does not ask for them or nobody said."""
        if not self._reads_times:
            return None
        if read.times is None:
            if not self._warned:
                logger.warning(
                    "%s reads times, and histories came without: all their items count as chosen at one moment; give "
                    "times=, or a table with a column %s", self.config["model"], self.config["TIME_FIELD"],
                )  # fmt: skip
                self._warned = True
            return None
        return read.times

    def _is_known(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        allowed = self.catalogue.allowed
        return numbers > 0 if allowed is None else (numbers > 0) & allowed[numbers]

    def _known(self, query: Query, times: Float64 | None) -> Query:
        """Return histories without the items that the model does not know, and whether it has something to go on."""
        known, offsets, items = self._is_known(query.items), query.offsets, query.items
        if not known.all():
            offsets = np.concatenate([[0], np.cumsum(known)])[offsets]
            items, times = items[known], None if times is None else times[known]
        warm = np.diff(offsets) > 0 if self._trained is None else self._trained[query.owners]
        return replace(query, offsets=offsets, items=np.asarray(items, dtype=np.int32), warm=warm, times=times)

    # --- what the model thinks ---------------------------------------------------------------------------------------
    def score(self, histories: Any, items: Any = None, times: Any = None) -> npt.NDArray[np.float32]:
        """Return the model's scores (n, m) after ``histories`` (see :meth:`recommend`) for ``items``, None for all.

        ``times`` are those of the histories, as for :meth:`recommend`.

        Raises:
            ValueError: an unknown item in ``items``, or a history without a known item.
        """
        query = self._warm(histories, times)
        columns = np.arange(1, self.store.n_items) if items is None else self.catalogue.numbers("items", items, "error")
        parts = [np.empty((0, len(columns)), dtype=np.float32)]
        size = max(1, self._budget // (8 * self.store.n_items))
        with torch.no_grad():
            for start in range(0, len(query), size):
                cases = query.cases(self.store, np.arange(start, min(start + size, len(query))))
                parts.append(self._score(cases).float().cpu().numpy()[:, columns])
        return np.concatenate(parts)

    def states(self, histories: Any, times: Any = None) -> npt.NDArray[np.float32]:
        """Return the states (n, d) behind ``histories``, which the head scores against :meth:`item_vectors`.

        ``times`` are those of the histories, as for :meth:`recommend`.

        Raises:
            ConfigError: a model without states.
            ValueError: a history without a known item.
        """
        query = self._warm(histories, times)
        vectors = item_vectors(self.model)
        if not len(query) and isinstance(self.model, OwnModel) and vectors is not None:
            return np.empty((0, vectors.shape[1]), dtype=np.float32)
        states = None
        if isinstance(self.model, OwnModel):
            states = self.model.last_states(query.cases(self.store, np.arange(len(query))), self.config)
        if states is None:
            raise ConfigError(f"{self.config['model']} has no states: it scores histories as a whole")
        return states.float().cpu().numpy()

    def _warm(self, histories: Any, times: Any) -> Query:
        query = self._of_histories(histories, "skip", times)
        query.require_warm()
        return query

    def _vectors(self) -> npt.NDArray[np.float32] | None:
        vectors = item_vectors(self.model)
        return None if vectors is None else vectors.detach().to("cpu", torch.float32).numpy()

    def item_vectors(self) -> pd.DataFrame:
        """Return the vectors of all items: float32 columns 0 .. d - 1, original ids as the index.

        Of models of this package the item matrix of the head, of PureSVDN the factors, of RecBole's the item
        embedding, behind the graph convolutions where there are some.

        Raises:
            ConfigError: a model without item vectors.
        """
        vectors = item_vectors(self.model)
        if vectors is None:
            raise ConfigError(f"{self.config['model']} has no item vectors")
        return pd.DataFrame(vectors[1:].detach().float().cpu().numpy(), index=pd.Index(self.item_ids, name="item_id"))

    def similar_items(self, items: Any, k: int = 10) -> pd.DataFrame:
        """Return the k items most like each of ``items``.

        What is measured stands in ``attrs["measure"]``: by the geometry of the head the cosine of the item vectors
        (Euclidean) or minus their geodesic distance (Poincare); the cosine for other models with item vectors; the
        score after a history of that item alone for those without (EASER, ItemKNN).

        Returns:
            A row per neighbour: item_id, position from 1, similar_id, score; larger is more alike.

        Raises:
            ValueError: an unknown item, or a k above the other items.
        """
        k = whole("k", k)
        if k >= self.n_recommendable:
            raise ValueError(f"k={k}: between 1 and {self.n_recommendable - 1} items can be alike")
        given = read_ids("items", [items] if isinstance(items, str) else items)
        numbers = self.catalogue.numbers("items", given, "error")
        measure, lists, values = "", [np.empty((0, k), dtype=np.int32)], [np.empty((0, k), dtype=np.float32)]
        hidden = None if self.catalogue.allowed is None else ~self.catalogue.allowed
        size = max(1, self._budget // (32 * self.store.n_items))
        for start in range(0, len(numbers), size):
            some = numbers[start : start + size]
            measure, alike = self._alike(some)
            each = np.arange(len(some) + 1)
            found = best_items(alike, k, offsets=each, excluded=some, hidden=hidden)
            lists.append(found[0])
            values.append(found[1])
        frame = pd.DataFrame(
            {
                "item_id": np.repeat(given, k),
                "position": np.tile(np.arange(1, k + 1), len(given)),
                "similar_id": self.store.item_tokens[np.concatenate(lists).ravel()],
                "score": np.concatenate(values).ravel(),
            }
        )
        frame.attrs["measure"] = measure
        return frame

    @torch.no_grad()
    def _alike(self, numbers: Int64) -> tuple[str, npt.NDArray[np.float32]]:
        """Return (what is measured, likeness (q, n_items) of the items ``numbers`` (q,) to all)."""
        found = similarity(self.model, torch.from_numpy(numbers).to(self.config["device"]), self.config)
        if found is not None:
            return found[0], _own_rows(found[1])
        if self._trained is not None:
            raise ConfigError(f"{self.config['model']} has no item vectors and scores no history")
        one_each = np.arange(len(numbers) + 1)
        cases = whole_histories(self.store, one_each, numbers.astype(np.int32), np.zeros(len(numbers), dtype=np.int64))
        return "score after a history of the item alone", _own_rows(self._score(cases))


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def _own_rows(values: torch.Tensor) -> npt.NDArray[np.float32]:
    """Return rows of scores as an array that may be written over."""
    return np.array(values.detach().to("cpu", torch.float32), order="C")


@dataclass(frozen=True)
class Query:
    """Histories of numbers of items that a model knows: history ``i`` is ``items[offsets[i]:offsets[i + 1]]``.

    Attributes:
        names, owners: (n,) whose they are, and their user ids, 0 for nobody.
        warm: (n,) True where the model has something to go on.
        times: of the items, for a model that reads them; None where nobody said.
        unknown_items, unknown_users: how many were skipped.
    """

    names: npt.NDArray[Any]
    owners: Int64
    offsets: Int64
    items: npt.NDArray[np.int32]
    warm: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    times: Float64 | None = None
    unknown_items: int = 0
    unknown_users: int = 0

    def __len__(self) -> int:
        return len(self.owners)

    def __getitem__(self, part: slice) -> Query:
        start, stop, _ = part.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        inside = slice(offsets[0], offsets[-1])
        times = None if self.times is None else self.times[inside]
        begun = offsets - offsets[0]
        return Query(self.names[part], self.owners[part], begun, self.items[inside], self.warm[part], times)

    def histories(self, rows: Int64) -> tuple[Int64, npt.NDArray[np.int32]]:
        """Return offsets (n + 1,) and items of the histories of ``rows`` (n,)."""
        lengths = np.diff(self.offsets)[rows]
        return np.concatenate([[0], np.cumsum(lengths)]), self.items[ranges(self.offsets[rows], lengths)]

    def cases(self, store: SequenceStore, rows: Int64) -> Cases:
        """Return a case for each history of ``rows``."""
        offsets, items = self.histories(rows)
        times = None if self.times is None else self.times[ranges(self.offsets[rows], np.diff(offsets))]
        return whole_histories(store, offsets, items, self.owners[rows], times)

    def require_warm(self) -> None:
        """Raise ValueError, with the number and the first, where a model has nothing to go on."""
        if not self.warm.all():
            first = _first(self.names, ~self.warm)
            raise ValueError(f"{int((~self.warm).sum())} histories hold no item that the model knows (first: {first})")


def _require_known(kind: str, given: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> None:
    """Raise ValueError, with the number and the first, where not all are known."""
    if not known.all():
        raise ValueError(f"{int((~known).sum())} {kind} are not in the data (first: {_first(given, ~known)})")


def _first(values: npt.NDArray[Any], which: npt.NDArray[np.bool_]) -> str:
    """Return the first of the marked values as it is written in Python."""
    first = values[np.flatnonzero(which)[0]]
    return repr(first.item() if isinstance(first, np.generic) else first)
