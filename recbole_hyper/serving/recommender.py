"""A trained model that answers: recommendations, scores, states and neighbours, for original ids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from recbole_hyper.config_parts import reads_times
from recbole_hyper.data.histories import whole_histories
from recbole_hyper.data.ids import Ids
from recbole_hyper.data.prepare.values import guessed_time_format, to_seconds
from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.errors import ConfigError, whole
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.scorers import learns_users
from recbole_hyper.models.contract import OwnModel, item_vectors, make_scorer, similarity
from recbole_hyper.serving.histories import Histories, flag, read_histories, read_ids, seconds
from recbole_hyper.types import Cases

# histories that are made into cases at one time
_CHUNK = 8192
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
        trained: user ids that were trained on; asked for models with a vector per user.
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
        self._catalogue = None if catalogue is None else np.asarray(catalogue)
        self._items, self._users = Ids(store.item_tokens), Ids(store.user_tokens)
        self._fields = (config["USER_ID_FIELD"], config["ITEM_ID_FIELD"], config["TIME_FIELD"])
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
        """(n,) original ids of all items."""
        return self.store.item_tokens[1:]

    @property
    def user_ids(self) -> npt.NDArray[np.str_]:
        """(m,) original ids of all users."""
        return self.store.user_tokens[1:]

    @property
    def n_recommendable(self) -> int:
        """Number of items that may be recommended."""
        return self.store.n_items - 1 if self._catalogue is None else int(self._catalogue.sum())

    # --- recommendations ---------------------------------------------------------------------------------------------
    def recommend(
        self,
        users: Any = None,
        histories: Any = None,
        k: int = 10,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        unknown: str = "skip",
        cold: str = "popular",
        times: Any = None,
    ) -> pd.DataFrame:
        """Recommend items to users of the data, with all that they did in it, or after any histories.

        Args:
            users: original user ids: any iterable, Series, column of Arrow or polars.
            histories: original item ids, oldest first: a list of lists, a mapping of user to items, or a table
                (DataFrame, Arrow, polars) with columns of user, item and, unless its rows are in order, time. A user
                whose data have grown is asked about by the new history.
            k: items each.
            exclude_seen: leave out what the history holds.
            items: the only items that may be recommended; None is all that the run may recommend.
            exclude: items that may not be recommended.
            unknown: of users and items that the model does not know: "skip" and count them, or "error".
            cold: for a history without a known item (or a user not trained on, where the model has a vector per
                user): "popular" gives the items with most training interactions, "error" refuses.
            times: when the items of ``histories`` were chosen, in the same form; a table has them in its column. For
                models that read times, which take histories without them for such of a single moment, and warn once.
                Numbers are in the unit of the data, dates become Unix seconds.

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
        self._check_k(k)
        asked = self.ask(users, histories, unknown, cold, times)
        return self.answer(asked, k, exclude_seen, self.allowed(items, exclude, unknown))

    def ask(
        self, users: Any = None, histories: Any = None, unknown: str = "skip", cold: str = "popular", times: Any = None
    ) -> Asked:
        """Read what :meth:`recommend` is asked for; raises ValueError as it does."""
        for name, value, usual in (("unknown", unknown, "skip"), ("cold", cold, "popular")):
            if value not in (usual, "error"):
                raise ValueError(f"{name}={value!r}: {usual} or error is needed")
        if (users is None) == (histories is None):
            raise ValueError("give users or histories, one of the two")
        if histories is None and times is not None:
            raise ValueError("times belong to histories; those of users are in the data of the run")
        asked = self._of_users(users, unknown) if histories is None else self._of_histories(histories, unknown, times)
        if cold == "error":
            asked.require_warm()
        return asked

    @torch.no_grad()
    def answer(
        self, asked: Asked, k: int = 10, exclude_seen: bool = True, allowed: npt.NDArray[np.bool_] | None = None
    ) -> pd.DataFrame:
        """Return what :meth:`recommend` returns for what was read by :meth:`ask` and :meth:`allowed`."""
        k, exclude_seen = self._check_k(k), flag("exclude_seen", exclude_seen)
        allowed = self._catalogue if allowed is None else allowed
        lists = np.zeros((len(asked), k), dtype=np.int32)
        scores = np.zeros((len(asked), k), dtype=np.float32)
        for rows, score in ((np.flatnonzero(asked.warm), self._score), (np.flatnonzero(~asked.warm), self._popular)):
            for start in range(0, len(rows), _CHUNK):
                some = rows[start : start + _CHUNK]
                found = rank_cases(
                    score, asked.cases(self.store, some), n_items=self.store.n_items, k=k, exclude_seen=exclude_seen,
                    catalogue=allowed, memory_budget=self._budget,
                )  # fmt: skip
                lists[some], scores[some] = found.top_items, found.top_scores
        return self._frame(asked, lists, scores)

    def _check_k(self, k: Any) -> int:
        if whole("k", k) > self.n_recommendable:
            raise ValueError(f"k={k}: between 1 and {self.n_recommendable} items can be recommended")
        return int(k)

    def _frame(self, asked: Asked, lists: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]) -> pd.DataFrame:
        n, k = lists.shape
        found = lists.ravel()
        columns = {
            "user_id": np.repeat(asked.names, k),
            "position": np.tile(np.arange(1, k + 1), n),
            "item_id": self.store.item_tokens[found],
            "score": scores.ravel(),
            "popular": np.repeat(~asked.warm, k),
        }
        if not found.all():
            columns = {name: column[found > 0] for name, column in columns.items()}
        frame = pd.DataFrame(columns)
        frame.attrs = {
            "unknown_items": asked.unknown_items,
            "unknown_users": asked.unknown_users,
            "popular_users": int((~asked.warm).sum()),
        }
        return frame

    def _popular(self, cases: Cases) -> torch.Tensor:
        return torch.from_numpy(self.popularity).repeat(len(cases), 1)

    def allowed(self, items: Any = None, exclude: Any = None, unknown: str = "skip") -> npt.NDArray[np.bool_] | None:
        """Return (n_items,) True where an item may be recommended, None for all; raises as :meth:`recommend`."""
        if items is None and exclude is None:
            return self._catalogue
        allowed = np.ones(self.store.n_items, dtype=bool) if self._catalogue is None else self._catalogue.copy()
        allowed[0] = False
        if items is not None:
            only = np.zeros_like(allowed)
            only[self._numbers("items", items, unknown)] = True
            allowed &= only
            if not allowed.any():
                raise ValueError("items: none of them is an item that may be recommended")
        if exclude is not None:
            allowed[self._numbers("exclude", exclude, unknown)] = False
        return allowed

    def _numbers(self, name: str, values: Any, unknown: str) -> Int64:
        given = read_ids(name, values)
        numbers = self._items.find(given.astype(str))
        if unknown == "error":
            _require_known("items", given, numbers > 0)
        return numbers[numbers > 0]

    # --- histories ---------------------------------------------------------------------------------------------------
    @cached_property
    def _row_of(self) -> Int64:
        """(n users,) row of each user id in the store, -1 where there is none."""
        rows = np.full(len(self.store.user_tokens), -1, dtype=np.int64)
        rows[self.store.users] = np.arange(self.store.n_rows)
        return rows

    def _of_users(self, users: Any, unknown: str) -> Asked:
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
        asked = Asked(given, owners, offsets, self.store.items[places], unknown_users=int((rows < 0).sum()))
        return self._known(asked, self.store.times[places] if self._reads_times else None)

    def _of_histories(self, histories: Any, unknown: str, times: Any = None) -> Asked:
        read = read_histories(histories, self._fields, times)
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
        asked = Asked(read.names, owners, read.offsets, items, unknown_items=int((items == 0).sum()))
        return self._known(asked, self._times(read))

    def _times(self, read: Histories) -> Float64 | None:
        """Return the times of the items of histories, None where the model does not ask for them or nobody said."""
        if not self._reads_times:
            return None
        if read.times is None:
            if not self._warned:
                logger.warning(
                    "%s reads times, and histories came without: all their items count as chosen at one moment; give "
                    "times=, or a table with a column %s", self.config["model"], self._fields[2],
                )  # fmt: skip
                self._warned = True
            return None
        found = seconds(read.times)
        if self.config["interactions"] != "given":
            return found
        column = pa.array(found)  # the run's own were taken from a frame in this way
        return to_seconds(column, guessed_time_format(column) or "unix")[0]

    def _is_known(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return numbers > 0 if self._catalogue is None else (numbers > 0) & self._catalogue[numbers]

    def _known(self, asked: Asked, times: Float64 | None) -> Asked:
        """Return histories without the items that the model does not know, and whether it has something to go on."""
        known, offsets, items = self._is_known(asked.items), asked.offsets, asked.items
        if not known.all():
            offsets = np.concatenate([[0], np.cumsum(known)])[offsets]
            items, times = items[known], None if times is None else times[known]
        warm = np.diff(offsets) > 0 if self._trained is None else self._trained[asked.owners]
        return replace(asked, offsets=offsets, items=np.asarray(items, dtype=np.int32), warm=warm, times=times)

    # --- what the model thinks ---------------------------------------------------------------------------------------
    def score(self, histories: Any, items: Any = None, times: Any = None) -> npt.NDArray[np.float32]:
        """Return the model's scores (n, m) after ``histories`` (see :meth:`recommend`) for ``items``, None for all.

        ``times`` are those of the histories, as for :meth:`recommend`.

        Raises:
            ValueError: an unknown item in ``items``, or a history without a known item.
        """
        asked = self._warm(histories, times)
        columns = np.arange(1, self.store.n_items) if items is None else self._numbers("items", items, "error")
        parts = [np.empty((0, len(columns)), dtype=np.float32)]
        size = max(1, self._budget // (8 * self.store.n_items))
        with torch.no_grad():
            for start in range(0, len(asked), size):
                cases = asked.cases(self.store, np.arange(start, min(start + size, len(asked))))
                parts.append(self._score(cases).float().cpu().numpy()[:, columns])
        return np.concatenate(parts)

    def states(self, histories: Any, times: Any = None) -> npt.NDArray[np.float32]:
        """Return the states (n, d) behind ``histories``, which the head scores against :meth:`item_vectors`.

        ``times`` are those of the histories, as for :meth:`recommend`.

        Raises:
            ConfigError: a model without states.
            ValueError: a history without a known item.
        """
        asked = self._warm(histories, times)
        found = None
        if isinstance(self.model, OwnModel):
            found = self.model.last_states(asked.cases(self.store, np.arange(len(asked))), self.config)
        if found is None:
            raise ConfigError(f"{self.config['model']} has no states: it scores histories as a whole")
        return found.float().cpu().numpy()

    def _warm(self, histories: Any, times: Any) -> Asked:
        asked = self._of_histories(histories, "skip", times)
        asked.require_warm()
        return asked

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
        numbers = self._numbers("items", given, "error")
        measure, lists, values = "", [np.empty((0, k), dtype=np.int64)], [np.empty((0, k), dtype=np.float32)]
        size = max(1, self._budget // (32 * self.store.n_items))
        for start in range(0, len(numbers), size):
            some = numbers[start : start + size]
            measure, alike = self._alike(some)
            alike[:, 0] = -torch.inf
            alike[torch.arange(len(some)), torch.from_numpy(some)] = -torch.inf
            if self._catalogue is not None:
                alike[:, torch.from_numpy(~self._catalogue)] = -torch.inf
            best = alike.sort(dim=1, descending=True, stable=True)  # equal ones in item order
            lists.append(best.indices[:, :k].numpy())
            values.append(best.values[:, :k].float().numpy())
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
    def _alike(self, numbers: Int64) -> tuple[str, torch.Tensor]:
        found = similarity(self.model, torch.from_numpy(numbers).to(self.config["device"]), self.config)
        if found is not None:
            return found[0], found[1].cpu().clone()
        if self._trained is not None:
            raise ConfigError(f"{self.config['model']} has no item vectors and scores no history")
        one_each = np.arange(len(numbers) + 1)
        cases = whole_histories(self.store, one_each, numbers.astype(np.int32), np.zeros(len(numbers), dtype=np.int64))
        return "score after a history of the item alone", self._score(cases).float().cpu().clone()


@dataclass(frozen=True)
class Asked:
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

    def __getitem__(self, part: slice) -> Asked:
        start, stop, _ = part.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        inside = slice(offsets[0], offsets[-1])
        times = None if self.times is None else self.times[inside]
        begun = offsets - offsets[0]
        return Asked(self.names[part], self.owners[part], begun, self.items[inside], self.warm[part], times)

    def cases(self, store: SequenceStore, rows: Int64) -> Cases:
        """Return a case for each history of ``rows``."""
        lengths = np.diff(self.offsets)[rows]
        places = ranges(self.offsets[rows], lengths)
        times = None if self.times is None else self.times[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return whole_histories(store, offsets, self.items[places], self.owners[rows], times)

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
