"""Intervals of values such as ``[5,inf)``, by RecBole's own parser."""

import logging
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

logger = logging.getLogger("recbole_hyper")


def intervals(text: str) -> list[tuple[str, float, float, str]]:
    """Parse intervals such as ``[5,inf)`` or ``[1,2];(4,9)``: opening bracket, bounds, closing bracket."""
    from recbole.data.dataset import Dataset

    # the method only uses the dataset's logger
    return Dataset._parse_intervals_str(SimpleNamespace(logger=logger), text)


def within(values: npt.NDArray, allowed: str) -> npt.NDArray[np.bool_]:
    """Return which values are in one of the intervals."""
    from recbole.data.dataset import Dataset

    inside = Dataset._within_intervals(None, values, intervals(allowed))
    return np.full(len(values), inside) if isinstance(inside, bool) else inside
