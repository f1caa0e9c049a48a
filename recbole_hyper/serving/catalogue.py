"""The items of a model as a shop knows them: ids, columns, and which may be recommended under which rules.

Imports no torch, so that a process that serves needs none.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.columns import fitting
from recbole_hyper.data.ids import Ids
from recbole_hyper.data.where import parse_where
from recbole_hyper.errors import ConfigError, did_you_mean, whole
from recbole_hyper.serving.histories import flag, read_ids
from recbole_hyper.serving.rules import Plan, Rules

Bools = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
#: column that every catalogue has: how often the model was trained on an item
INTERACTIONS = "interactions"

logger = logging.getLogger("recbole_hyper")


def column_of_items(table: pa.Table, own: Collection[str]) -> str:
    """Return the column of item ids: of one of the run's ``own`` names, or a usual one; ConfigError for none."""
    names = fitting("item_id", table.column_names, own)
    if not names:
        raise ConfigError(f"the catalogue has no column of item ids; it has {', '.join(table.column_names)}")
    return names[0]


class Catalogue:
    """Items by number, and the plans of rules over them.

    Args:
        item_tokens: (n_items,) original ids; entry 0 is padding.
        counts: (n_items,) how often the model was trained on each item; the column ``interactions``.
        allowed: (n_items,) True where the run may recommend an item; None for all.
        vectors: gives the item vectors (n_items, d) that diversity compares, None where the model has none; they are
            read at the first use, as ``raw_vectors()``.
    """

    def __init__(
        self,
        item_tokens: npt.NDArray[np.str_],
        counts: Int64,
        allowed: Bools | None = None,
        vectors: Callable[[], Scores | None] = lambda: None,
    ) -> None:
        self.item_tokens, self.ids, self.raw_vectors = item_tokens, Ids(item_tokens), vectors
        self.allowed = None if allowed is None else np.array(allowed)
        self.columns: dict[str, pa.Array] = {INTERACTIONS: pa.array(np.asarray(counts, dtype=np.int64))}

    def with_columns(self, table: pa.Table, item_column: str) -> Catalogue:
        """Return a catalogue that has the columns of ``table`` too; of two rows of one item the first counts.

        Items without a row have no value. ConfigError for a table without ``item_column``, or where no row is of an
        item of the model.
        """
        if item_column not in table.column_names:
            raise ConfigError(f"the catalogue has no column {item_column!r}; it has {', '.join(table.column_names)}")
        numbers = self.ids.find(table[item_column].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str))
        rows = np.full(len(self.item_tokens), -1, dtype=np.int64)
        known = np.flatnonzero(numbers)[::-1]
        rows[numbers[known]] = known
        if not len(known):
            raise ConfigError(f"no id of the catalogue's column {item_column!r} is an item of the model")
        if missing := int((rows[1:] < 0).sum()):
            logger.info("%d of %d items are not in the catalogue: they meet no condition", missing, len(rows) - 1)
        places = pa.array(rows, mask=rows < 0)
        result = copy.copy(self)
        columns = {name: table[name].combine_chunks().take(places) for name in table.column_names}
        result.columns = self.columns | {name: values for name, values in columns.items() if name != item_column}
        return result

    @property
    def n_items(self) -> int:
        """Number of item numbers, padding included."""
        return len(self.item_tokens)

    @property
    def n_recommendable(self) -> int:
        """Number of items that the run may recommend."""
        return self.n_items - 1 if self.allowed is None else int(self.allowed.sum())

    @cached_property
    def vectors(self) -> Scores:
        """(n_items, d) item vectors of length 1; ConfigError for a model without item vectors."""
        vectors = self.raw_vectors()
        if vectors is None:
            raise ConfigError("diversity: this model has no item vectors; name a column by diversity_by")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.ascontiguousarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)

    def numbers(self, name: str, values: Any, unknown: str = "skip") -> Int64:
        """Return the numbers of the known ids among ``values``, any iterable of original ids.

        The unknown ones are counted in a warning. ValueError for any of them where ``unknown`` is "error", and where
        more than half are unknown: then the list is most likely one of something else.
        """
        given = read_ids(name, values)
        numbers = self.ids.find(given.astype(str))
        missing = int((numbers == 0).sum())
        if missing:
            first = given[np.flatnonzero(numbers == 0)[0]]
            first = repr(first.item() if isinstance(first, np.generic) else first)
            if unknown == "error":
                raise ValueError(f"{missing} items are not in the data (first: {first})")
            text = f"{name}: {missing} of {len(given)} ids are no items of this model (first: {first})"
            if 2 * missing > len(given):
                raise ValueError(f"{text}; give the ids of items")
            logger.warning("%s; they are skipped", text)
        return numbers[numbers > 0]

    def plan(
        self,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        unknown: str = "skip",
        rules: Rules | Mapping[str, Any] | None = None,
    ) -> Plan:
        """Return the plan for lists of ``k`` items; the arguments are those of ``Recommender.recommend``.

        ValueError for what these refuse.
        """
        if whole("k", k) > self.n_recommendable:
            raise ValueError(f"k={k}: between 1 and {self.n_recommendable} items can be recommended")
        rules = Rules.of(rules)
        allowed = np.ones(self.n_items, dtype=bool) if self.allowed is None else self.allowed.copy()
        allowed[0] = False
        if items is not None:
            only = np.zeros_like(allowed)
            only[self.numbers("items", items, unknown)] = True
            allowed &= only
            if not allowed.any():
                raise ValueError("items: none of them is an item that may be recommended")
        if rules.where:
            allowed &= self._meets(rules.where)
            if not allowed.any():
                raise ValueError(f"where={rules.where!r}: no item that may be recommended meets this condition")
        own: dict[str, Any] = {}
        if isinstance(exclude, Mapping):
            own = self._exclusions(exclude, unknown)
        elif exclude is not None:
            allowed[self.numbers("exclude", exclude, unknown)] = False
            if not allowed.any():
                raise ValueError("exclude: no item is left that may be recommended")
        return Plan(
            k=int(k), exclude_seen=flag("exclude_seen", exclude_seen), hidden=None if allowed[1:].all() else ~allowed,
            boost=self._boost(rules.boost, unknown), **self._limits(rules, int(k)), **self._likeness(rules), **own,
        )  # fmt: skip

    def _meets(self, condition: str) -> Bools:
        mask = np.array(parse_where(condition).mask(self.columns))
        mask[0] = False
        return mask

    def _codes(self, rule: str, name: str) -> npt.NDArray[np.int32]:
        """Return (n_items,) a code for each value of a column, -1 where there is none."""
        if name not in self.columns:
            raise ConfigError(
                f"{rule}: the catalogue has no column {name!r}{did_you_mean(name, self.columns)}; columns: "
                f"{', '.join(self.columns)}"
            )
        column = self.columns[name]
        if pa.types.is_nested(column.type):
            raise ConfigError(f"{rule}: {name!r} holds lists; a column with one value per item is needed")
        codes = pc.fill_null(column.dictionary_encode().indices, -1) if len(column) else column
        result = np.asarray(codes, dtype=np.int32)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):  # an empty text is no value
            result = np.where(np.asarray(pc.fill_null(pc.equal(column, ""), True)), np.int32(-1), result)
        return result

    def _limits(self, rules: Rules, k: int) -> dict[str, Any]:
        codes = [self._codes(f"at_most {name}", name) for name in rules.at_most]
        limits = list(rules.at_most.values())
        for condition, number in rules.at_least.items():
            if number > k:
                raise ValueError(f"at_least {condition!r}: {number} items of a list of {k}")
            codes.append(np.where(self._meets(condition), -1, 0).astype(np.int32))
            limits.append(k - number)
        if not codes:
            return {}
        return {"codes": np.stack(codes), "limits": np.minimum(limits, k).astype(np.int32)}

    def _likeness(self, rules: Rules) -> dict[str, Any]:
        if not rules.diversity:
            return {}
        if rules.diversity_by:
            return {
                "diversity": float(rules.diversity), "kinds": self._codes("diversity_by", rules.diversity_by)
            }  # fmt: skip
        return {"diversity": float(rules.diversity), "vectors": self.vectors}

    def _boost(self, boost: Mapping[Any, float], unknown: str) -> Scores | None:
        if not boost:
            return None
        self.numbers("boost", list(boost), unknown)  # counts the unknown ones
        numbers = self.ids.find(np.array([str(item) for item in boost]))
        result = np.zeros(self.n_items, dtype=np.float32)
        result[numbers] = np.array(list(boost.values()), dtype=np.float32)
        result[0] = 0.0
        return result

    def _exclusions(self, exclude: Mapping[Any, Any], unknown: str) -> dict[str, Any]:
        """Return the exclusions of each owner as a plan has them."""
        lists = {str(owner): read_ids(f"exclude[{owner!r}]", items) for owner, items in exclude.items()}
        owners = np.array(sorted(lists), dtype=str)
        given = [item for owner in owners.tolist() for item in lists[owner].tolist()]
        self.numbers("exclude", given, unknown)  # counts the unknown ones of all
        numbers = self.ids.find(np.array([str(item) for item in given], dtype=str))
        offsets = np.cumsum([0, *(len(lists[owner]) for owner in owners.tolist())]).astype(np.int64)
        return {"owners": owners, "offsets": offsets, "excluded": numbers.astype(np.int64)}
