"""The flow of data: what each stage passes to the next.

atomic files -> SequenceStore -> Split -> batches -> states -> scores -> Ranks -> metrics
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from recbole_hyper.data.sequences import SequenceStore

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prefixes:
    """Histories that a model scores, as pointers into a store: histories that share interactions copy nothing.

    History ``i`` is positions ``starts[i] .. ends[i] - 1`` of row ``rows[i]`` of ``store``.

    Attributes:
        rows: (n,) store row of each history.
        ends, starts: (n,) position after the history, and its first position, usually 0.
    """

    store: SequenceStore
    rows: Int64
    ends: Int64
    starts: Int64

    @classmethod
    def build(
        cls, store: SequenceStore, rows: npt.ArrayLike, ends: npt.ArrayLike, starts: npt.ArrayLike | None = None
    ) -> Self:
        """Return the histories of these rows and ends; without ``starts`` each begins at 0."""
        rows = np.asarray(rows, dtype=np.int64)
        starts = np.zeros_like(rows) if starts is None else np.asarray(starts, dtype=np.int64)
        return cls(store, rows, np.asarray(ends, dtype=np.int64), starts)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice | Int64) -> Self:
        return replace(self, rows=self.rows[part], ends=self.ends[part], starts=self.starts[part])


@dataclass(frozen=True)
class Cases(Prefixes):
    """Evaluation cases: histories, each with the item that comes next as its target.

    The target of case ``i`` is at position ``target_positions[i]`` of row ``rows[i]``. Usually that is ``ends[i]``, and
    the history is everything before the target. Cases that share one history have ``places`` beyond its end.

    Attributes:
        candidates: (n, k) item ids to rank the target among, or None to rank it among all items.
        places: (n,) position of each target in its row, or None if it is ``ends``.
    """

    candidates: npt.NDArray[np.int32] | None = None
    places: Int64 | None = None

    def __getitem__(self, part: slice | Int64) -> Self:
        candidates = None if self.candidates is None else self.candidates[part]
        places = None if self.places is None else self.places[part]
        return replace(super().__getitem__(part), candidates=candidates, places=places)

    @property
    def target_positions(self) -> Int64:
        """(n,) position of each target in its row."""
        return self.ends if self.places is None else self.places

    @property
    def targets(self) -> npt.NDArray[np.int32]:
        """(n,) item ids of the targets."""
        items: npt.NDArray[np.int32] = self.store.items[self.store.offsets[self.rows] + self.target_positions]
        return items

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """(n,) times of the targets."""
        times: npt.NDArray[np.float64] = self.store.times[self.store.offsets[self.rows] + self.target_positions]
        return times


def gather(
    store: SequenceStore, rows: Int64, starts: Int64, ends: Int64, width: int, times: bool = False
) -> npt.NDArray[Any]:
    """Return (n, width) int64 items, or float64 ``times``, at positions ``starts`` to ``ends - 1`` of ``rows``.

    Padding is 0.
    """
    values, kind = (store.times, np.float64) if times else (store.items, np.int64)
    columns = np.arange(width)
    inside = columns < (ends - starts)[:, None]
    if not len(values):
        return np.zeros(inside.shape, dtype=kind)
    index = np.where(inside, (store.offsets[rows] + starts)[:, None] + columns, 0)
    return np.where(inside, values[index], 0).astype(kind, copy=False)


@dataclass(frozen=True)
class Split:
    """A protocol's training part, validation cases and test cases.

    Attributes:
        store: the sequences to train on, in time order.
        train_lengths: (U,) the first ``train_lengths[row]`` interactions of each row are its training part.
        valid: cases for selection.
        test: cases for the evaluation at the end.
        refit_lengths: (U,) training part of a refit on train + validation, or None for no refit.
        catalogue: (n_items,) True for items that may be recommended in the test, or None for all items but padding.
        valid_catalogue: the same for validation, or None if it is equal; a refit knows more items.
        points: the times that split the data, by the part that begins there ("valid", "test"); may be empty.
        counts: what the protocol kept and dropped, for the report.
    """

    store: SequenceStore
    train_lengths: Int64
    valid: Cases
    test: Cases
    refit_lengths: Int64 | None = None
    catalogue: npt.NDArray[np.bool_] | None = None
    valid_catalogue: npt.NDArray[np.bool_] | None = None
    points: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int | float | str] = field(default_factory=dict)

    def without_test(self) -> Split:
        """Return the split without test cases and refit."""
        return replace(self, test=self.test[:0], refit_lengths=None)

    def candidates(self, part: str) -> npt.NDArray[np.bool_] | None:
        """Return which items may be recommended in ``part``, "valid" or "test"; None for all."""
        return self.valid_catalogue if part == "valid" and self.valid_catalogue is not None else self.catalogue


@dataclass(frozen=True)
class Ranks:
    """The result of ranking cases.

    Attributes:
        ranks: (n,) rank of each target from 1; a target ranks behind every candidate with an equal score.
        n_candidates: (n,) number of items among which each target was ranked, including itself.
        top_items: (n, k) best items of each case, equal scores in item order.
        tied: share of cases whose target has the same score as another candidate.
        top_scores: (n, k) scores of the best items, -inf beyond the end of a list; None if no lists were requested.
    """

    ranks: Int64
    n_candidates: Int64
    top_items: npt.NDArray[np.int32]
    tied: float
    top_scores: npt.NDArray[np.float32] | None = None
