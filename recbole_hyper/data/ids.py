"""Original ids to numbers, many at a time, without a dictionary of all of them."""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

# more texts than these are looked up once for each that differs
_MANY = 4096


class Ids:
    """The numbers of original ids; made once for a catalogue, sorted at the first question.

    Args:
        tokens: (n,) original ids by number; entry 0 is padding and is never found.
    """

    def __init__(self, tokens: npt.NDArray[np.str_]) -> None:
        self.tokens = tokens

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.str_]]:
        order = np.argsort(self.tokens[1:], kind="stable") + 1
        return order, self.tokens[order]

    def find(self, wanted: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
        """Return the number of each id in ``wanted`` (m,), 0 for those that are not known."""
        if len(wanted) > _MANY:
            codes, different = pd.factorize(wanted.astype(object))
            return self._find(np.asarray(different, dtype=str))[codes]
        return self._find(wanted)

    def _find(self, wanted: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
        order, known = self._sorted
        if not len(known) or not len(wanted):
            return np.zeros(len(wanted), dtype=np.int64)
        # of the same type, or numpy would copy all known ids; what this cuts off is seen by the comparison
        at = np.minimum(np.searchsorted(known, wanted.astype(known.dtype)), len(known) - 1)
        return np.where(known[at] == wanted, order[at], 0)
