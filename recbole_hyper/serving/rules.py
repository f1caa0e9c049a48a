"""Rules of a shop for lists: conditions, limits, boosts, diversity; and the best lists under them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.kernels import LOWEST
from recbole_hyper.serving.query import best_items
from recbole_hyper.values import PositiveInt, Share, Words, allows, in_words

Bools = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

#: candidates for diversity; ten times the list if that is more
POOL = 100
#: of a boost, so that no sum with a score leaves the range of float32
LARGEST = 3e38
_COUNTS = Annotated[dict[str, PositiveInt], Words("a mapping to whole numbers from 1, such as {category: 2},")]
_BOOST = Annotated[float, Ge(-LARGEST), Le(LARGEST)]
_BOOSTS = Annotated[dict[Any, _BOOST], Words(f"a mapping to numbers from {-LARGEST:g} to {LARGEST:g}")]
_KINDS = {"where": str, "at_most": _COUNTS, "at_least": _COUNTS, "boost": _BOOSTS, "diversity": Share}
_NONE = [(str, ""), (dict, {}), (float, 0.0)]


@dataclass(frozen=True)
class Rules:
    """Rules for a list, all optional; ConfigError for a value of the wrong type.

    A list is filled place by place: each place gets the best item of the whole catalogue that no rule forbids, equal
    scores in item order. If no item is left, the list is shorter.

    Attributes:
        where: condition on columns of the catalogue, such as ``category != 'Garden' and price < 50``.
        at_most: {column: n}, at most n items with the same value of the column; items without a value have no limit.
        at_least: {condition: n}, at least n items that meet the condition: the others get at most k - n places.
        boost: {item id: number}, added to the score of the item.
        diversity: 0 to 1. Above 0, the list is chosen among the 100 best items (10 k if that is more) by maximal
            marginal relevance (Carbonell and Goldstein 1998): (1 - diversity) * relevance - diversity * similarity.
            Relevance is the score, scaled to 0 .. 1 over these items; similarity is the highest to an item of the list.
        diversity_by: column whose equal values have similarity 1; "" uses the cosine of the item vectors.
    """

    where: str = ""
    at_most: Mapping[str, int] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    boost: Mapping[Any, float] = field(default_factory=dict)
    diversity: float = 0.0
    diversity_by: str = ""

    def __post_init__(self) -> None:
        for name, kind in {**_KINDS, "diversity_by": str}.items():
            value = getattr(self, name)
            plain = dict(value) if isinstance(value, Mapping) else value
            # pydantic is not imported for lists without rules
            if (type(plain), plain) not in _NONE and not allows(kind, plain):
                raise ConfigError(f"{name}={str(plain)[:200]}: {in_words(kind)} is expected")
        if self.diversity_by and not self.diversity:
            raise ConfigError(f"diversity_by={self.diversity_by!r} has no effect without diversity")

    @classmethod
    def of(cls, values: Rules | Mapping[str, Any] | None) -> Rules:
        """Return rules from a mapping by name; ConfigError for an unknown rule."""
        if isinstance(values, Rules):
            return values
        if not isinstance(values or {}, Mapping):
            raise ConfigError(f'rules={values!r}: must be a mapping, such as {{where: "price < 50"}}')
        known = [entry.name for entry in fields(cls)]
        for name in values or {}:
            if name not in known:
                raise ConfigError(f"unknown rule {name!r}{did_you_mean(name, known)}; rules: {', '.join(known)}")
        return cls(**dict(values or {}))


@dataclass(frozen=True)
class Plan:
    """Rules over item numbers, for :func:`select`.

    Attributes:
        k, exclude_seen: length of a list; whether to leave out the items of the history.
        hidden: (n_items,) True for items that are never recommended, or None.
        boost: (n_items,) added to the scores, or None.
        codes, limits: (g, n_items) and (g,): at most ``limits[j]`` items with one code of ``codes[j]``; -1 is free.
        diversity, vectors, kinds: weight, and unit vectors (n_items, d) or codes (n_items,) to compare.
        excluded: item numbers to leave out, by name of the user.
    """

    k: int
    exclude_seen: bool = True
    hidden: Bools | None = None
    boost: Scores | None = None
    codes: Int32 = field(default_factory=lambda: np.empty((0, 0), dtype=np.int32))
    limits: Int32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    diversity: float = 0.0
    vectors: Scores = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    kinds: Int32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    excluded: Mapping[str, Int64] = field(default_factory=dict)


def select(
    scores: Scores, plan: Plan, offsets: Int64 | None, seen: Int64 | None, names: npt.NDArray[Any] | None = None
) -> tuple[Int32, Scores]:
    """Return the best lists (n, k) for ``scores`` (n, n_items) under ``plan``, and their scores with boosts.

    Row i leaves out the items ``seen[offsets[i]:offsets[i + 1]]``, and those excluded for ``names[i]``; ``scores`` are
    overwritten. A list with fewer items ends with item 0 and score -inf. Raises as :func:`best_items`.
    """
    if plan.boost is not None:
        scores += plan.boost
    if names is not None and plan.excluded:
        for row, name in enumerate(names.tolist()):
            scores[row, plan.excluded.get(str(name), np.empty(0, np.int64))] = LOWEST
    if not plan.exclude_seen:
        offsets, seen = None, None
    if not len(plan.limits) and not plan.diversity:
        return best_items(scores, plan.k, offsets=offsets, excluded=seen, hidden=plan.hidden)
    from recbole_hyper.kernels.choose import choose_rows, fill_rows

    pool = min(max(POOL, 10 * plan.k) if plan.diversity else 4 * plan.k, scores.shape[1] - 1)
    items, values = best_items(scores, pool, offsets=offsets, excluded=seen, hidden=plan.hidden)
    top, best = choose_rows(items, values, plan.k, plan.codes, plan.limits, plan.diversity, plan.vectors, plan.kinds)
    # if the candidates do not fill a list, search all items
    short = np.flatnonzero((top[:, -1] == 0) & (items[:, -1] > 0))
    if len(short):
        more, their = top[short], best[short]
        n_codes = int(plan.codes.max(initial=0)) + 1
        fill_rows(scores[short], more, their, plan.codes, plan.limits, n_codes)
        top[short], best[short] = more, their
    return top, np.where(top == 0, np.float32(-np.inf), best)
