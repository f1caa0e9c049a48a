"""What a validation computed for its cases, so that its ranking does not compute it again."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from recbole_hyper.models.reranker import Changes
from recbole_hyper.types import Prefixes

Places = npt.NDArray[np.int64] | slice


class KnownCases:
    """Cases with the ``states`` (n, d) of a network and the ``changes`` of their best items; without cases, none."""

    def __init__(self, cases: Prefixes | None = None, states: Tensor | None = None) -> None:
        self.states = states
        self.changes: Changes | None = None
        if cases is not None:
            index = _index(cases)
            self._first = np.flatnonzero(~index.duplicated())  # cases may share a history
            self._index = index[self._first]

    def __len__(self) -> int:
        return 0 if self.states is None else len(self.states)

    def states_of(self, cases: Prefixes, encode: Callable[[Places], Tensor]) -> Tensor:
        """Return the states of ``cases``; ``encode`` returns those of some places of them."""
        known = None if self.states is None else [self.states]
        return self._rows(cases, known, lambda places: [encode(places)])[0]

    def changes_of(self, cases: Prefixes, read: Callable[[Places], Changes]) -> Changes:
        """Return the changes of the best items of ``cases``; ``read`` returns those of some places of them."""
        return Changes(*self._rows(cases, self.changes, read))

    def _rows(
        self, cases: Prefixes, known: Sequence[Tensor] | None, compute: Callable[[Places], Sequence[Tensor]]
    ) -> Sequence[Tensor]:
        if known is None:
            return compute(slice(None))
        places = self._index.get_indexer(_index(cases))
        unknown = np.flatnonzero(places < 0)
        rows = [tensor[torch.from_numpy(self._first[places]).to(tensor.device)] for tensor in known]
        if len(unknown):
            for row, computed in zip(rows, compute(unknown), strict=True):
                row[torch.from_numpy(unknown).to(row.device)] = computed
        return rows


def _index(cases: Prefixes) -> pd.MultiIndex:
    """Return what tells histories from each other."""
    return pd.MultiIndex.from_arrays((cases.rows, cases.starts, cases.ends))
