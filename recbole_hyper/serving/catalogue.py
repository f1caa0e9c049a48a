"""The items of a model with a shop's columns, and plans from rules over them. Imports no torch."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.tables.ids import Ids, as_text, is_text
from recbole_hyper.data.tables.inputs import read_ids
from recbole_hyper.errors import ConfigError, did_you_mean, positive_int
from recbole_hyper.serving.query import first_of, require_all
from recbole_hyper.serving.rules import Plan, Rules

Bools = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
#: column of every catalogue: the number of training interactions of an item
INTERACTIONS = "interactions"

logger = logging.getLogger("recbole_hyper")


def column_of_items(table: pa.Table, item_column: str | None, own: Collection[str]) -> str:
    """Return ``item_column``, or the column with the run's ``own`` name or a usual one; ConfigError for none."""
    from recbole_hyper.data.tables.formats import matching_names

    names = [item_column] if item_column else matching_names("item_id", table.column_names, own)
    if not names or names[0] not in table.column_names:
        missing = repr(item_column) if item_column else "of item ids"
        raise ConfigError(f"the table of items has no column {missing}; it has {', '.join(table.column_names)}")
    return names[0]


class Catalogue:
    """Items by number, with columns for rules.

    ``item_tokens`` (n_items,) are original ids, entry 0 padding; ``counts`` (n_items,) the training interactions, the
    column ``interactions``; ``allowed`` (n_items,) True for items that the run's protocol recommends, None for all.
    ``vectors`` returns the item vectors (n_items, d) for diversity, None for a model without. ``exclude_seen`` is the
    default of a plan.
    """

    def __init__(
        self,
        item_tokens: npt.NDArray[np.str_],
        counts: Int64,
        allowed: Bools | None = None,
        vectors: Callable[[], Scores | None] = lambda: None,
        exclude_seen: bool = True,
    ) -> None:
        self.exclude_seen = exclude_seen
        self.item_tokens, self.ids, self._vectors = item_tokens, Ids(item_tokens), vectors
        self.allowed = None if allowed is None else np.array(allowed)
        self.columns: dict[str, pa.Array] = {INTERACTIONS: pa.array(np.asarray(counts, dtype=np.int64))}

    def with_columns(self, table: pa.Table, item_column: str | None = None, own: Collection[str] = ()) -> Catalogue:
        """Return a catalogue with the columns of ``table`` as well; the first row of an item counts.

        ``item_column`` and ``own`` as in :func:`column_of_items`. Items without a row have no value. ConfigError if the
        table has no ids, or no item of the model.
        """
        column = column_of_items(table, item_column, own)
        ids = as_text(table[column].combine_chunks())
        if repeated := len(ids) - ids.null_count - len(ids.drop_null().unique()):
            logger.warning("the catalogue has %d rows that repeat an item; its first row counts", repeated)
        rows = pc.index_in(pa.array(self.item_tokens[1:].tolist(), pa.string()), value_set=ids)
        if rows.null_count == len(rows):
            raise ConfigError(f"no id of the catalogue's column {column!r} is an item of the model")
        if rows.null_count:
            logger.info("%d of %d items are not in the catalogue and meet no condition", rows.null_count, len(rows))
        rows = pa.concat_arrays([pa.nulls(1, rows.type), rows])
        result = copy.copy(self)
        columns = {
            name: _plain(table[name].combine_chunks()).take(rows) for name in table.column_names if name != column
        }
        result.columns = self.columns | columns
        return result

    @property
    def n_items(self) -> int:
        """Number of item numbers, padding included."""
        return len(self.item_tokens)

    @property
    def n_recommendable(self) -> int:
        """Number of items that may be recommended."""
        return self.n_items - 1 if self.allowed is None else int(self.allowed.sum())

    @cached_property
    def vectors(self) -> Scores:
        """(n_items, d) item vectors of length 1; ConfigError for a model without item vectors."""
        vectors = self._vectors()
        if vectors is None:
            raise ConfigError("diversity: this model has no item vectors; name a column with diversity_by")
        return unit_vectors(vectors)

    def numbers(self, name: str, values: Any, unknown: str = "skip") -> Int64:
        """Return the (m,) numbers of original ids, in any iterable; 0 for unknown ids, with a warning.

        ValueError for an unknown id if ``unknown`` is "error", or if most ids are unknown: they are hardly item ids.
        """
        ids = read_ids(name, values)
        numbers = self.ids.find(ids)
        if unknown == "error":
            require_all(numbers > 0, ids, "items are not in the data")
        if missing := int((numbers == 0).sum()):
            first = first_of(ids[numbers == 0])
            text = f"{name}: {missing} of {len(ids)} ids are not items of this model (first: {first})"
            if 2 * missing > len(ids):
                raise ValueError(f"{text}; pass item ids")
            logger.warning("%s; they are skipped", text)
        return numbers

    def plan(
        self,
        k: int = 10,
        exclude_seen: bool | None = None,
        items: Any = None,
        exclude: Any = None,
        unknown: str = "skip",
        rules: Rules | Mapping[str, Any] | None = None,
        seconds: float = 60.0,
    ) -> Plan:
        """Return the plan for lists of ``k`` items; arguments and errors as in ``Recommender.recommend``.

        Other threads may plan meanwhile. TooSlowError, a ValueError, if conditions take more than ``seconds``.
        """
        if positive_int("k", k) > self.n_recommendable:
            raise ValueError(f"k={k}: between 1 and {self.n_recommendable} items can be recommended")
        exclude_seen = self.exclude_seen if exclude_seen is None else exclude_seen
        if not isinstance(exclude_seen, bool | np.bool_):
            raise ValueError(f"exclude_seen={exclude_seen!r}: True or False is needed")
        rules = Rules.of(rules)
        allowed = np.ones(self.n_items, dtype=bool) if self.allowed is None else self.allowed.copy()
        allowed[0] = False

        def keep(mask: Bools, message: str) -> None:
            np.logical_and(allowed, mask, out=allowed)
            if not allowed.any():
                raise ValueError(message)

        if items is not None:
            only = np.bincount(self.numbers("items", items, unknown), minlength=self.n_items) > 0
            keep(only, "items: none of them may be recommended")
        end = monotonic() + seconds
        if rules.where:
            keep(self._meets(rules.where, end), f"where={rules.where!r}: no item that may be recommended meets it")
        excluded: dict[str, Int64] = {}
        if isinstance(exclude, Mapping):
            excluded = self._exclusions(exclude, unknown)
        elif exclude is not None:
            never = np.bincount(self.numbers("exclude", exclude, unknown), minlength=self.n_items) > 0
            keep(~never, "exclude: no item is left to recommend")
        return Plan(
            k=int(k), exclude_seen=bool(exclude_seen), hidden=None if allowed[1:].all() else ~allowed,
            boost=self._boost(rules.boost, unknown), excluded=excluded,
            **self._limits(rules, int(k), end), **self._similarity(rules),
        )  # fmt: skip

    def _meets(self, condition: str, end: float) -> Bools:
        from recbole_hyper.data.tables.where import parse_where  # imports duckdb

        mask = np.array(parse_where(condition).mask(self.columns, end - monotonic()))
        mask[0] = False
        return mask

    def _codes(self, rule: str, name: str) -> npt.NDArray[np.int32]:
        """Return (n_items,) a code for each value of a column, -1 for no value."""
        if name not in self.columns:
            raise ConfigError(
                f"{rule}: the catalogue has no column {name!r}{did_you_mean(name, self.columns)}; columns: "
                f"{', '.join(self.columns)}"
            )
        column = self.columns[name]
        if pa.types.is_nested(column.type):
            raise ConfigError(f"{rule}: {name!r} contains lists; it needs one value per item")
        codes = pc.fill_null(column.dictionary_encode().indices, -1) if len(column) else column
        result = np.asarray(codes, dtype=np.int32)
        if pa.types.is_string(column.type):  # an empty one is no value
            result = np.where(np.asarray(pc.fill_null(pc.equal(column, ""), True)), np.int32(-1), result)
        return result

    def _limits(self, rules: Rules, k: int, end: float) -> dict[str, Any]:
        codes = [self._codes(f"at_most {name}", name) for name in rules.at_most]
        limits = list(rules.at_most.values())
        for condition, number in rules.at_least.items():
            if number > k:
                raise ValueError(f"at_least {condition!r}: {number} items do not fit into a list of {k}")
            codes.append(np.where(self._meets(condition, end), -1, 0).astype(np.int32))
            limits.append(k - number)
        if not codes:
            return {}
        return {"codes": np.stack(codes), "limits": np.minimum(limits, k).astype(np.int32)}

    def _similarity(self, rules: Rules) -> dict[str, Any]:
        if not rules.diversity:
            return {}
        by = rules.diversity_by
        compared = {"kinds": self._codes("diversity_by", by)} if by else {"vectors": self.vectors}
        return {"diversity": float(rules.diversity), **compared}

    def _boost(self, boost: Mapping[Any, float], unknown: str) -> Scores | None:
        if not boost:
            return None
        result = np.zeros(self.n_items, dtype=np.float32)
        result[self.numbers("boost", list(boost), unknown)] = list(boost.values())
        result[0] = 0.0
        return result

    def _exclusions(self, exclude: Mapping[Any, Any], unknown: str) -> dict[str, Int64]:
        lists = {str(owner): read_ids(f"exclude[{owner!r}]", items) for owner, items in exclude.items()}
        numbers = self.numbers("exclude", [item for one in lists.values() for item in one.tolist()], unknown)
        ends = np.cumsum([len(one) for one in lists.values()], dtype=np.int64)[:-1]
        return dict(zip(lists, np.split(numbers, ends), strict=False))


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary; texts have one type."""
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return column.cast(pa.string()) if is_text(column.type) else column


def unit_vectors(vectors: Scores) -> Scores:
    """Return vectors (n, d) of length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)
