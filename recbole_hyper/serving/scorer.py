"""What a recommender asks of a model, in numpy. Imports no torch."""

from typing import Any

import numpy as np
import numpy.typing as npt

from recbole_hyper.errors import ConfigError
from recbole_hyper.serving.query import Query

Scores = npt.NDArray[np.float32]


class Scorer:
    """Scores of histories, likeness of items, states and vectors of a model.

    Attributes:
        model: the torch model; None in a process that serves a graph.
        reads_times: whether scores depend on when the items of a history were chosen.
        learns_users: whether the model has a vector per user, and answers for no one else.
    """

    model: Any = None
    reads_times = False
    learns_users = False

    @property
    def block(self) -> int:
        """Number of histories that are scored at one time."""
        return 256

    def scores(self, query: Query) -> Scores:
        """Return the scores (n, n_items) after the histories of ``query``, an array that may be written over."""
        raise NotImplementedError

    def vectors(self) -> Scores | None:
        """Return the vectors (n_items, d) of all items, padding included; None for a model without."""
        return None

    def likeness(self, numbers: npt.NDArray[np.int64]) -> tuple[str, Scores] | None:
        """Return (what is measured, likeness (q, n_items) of the items ``numbers`` (q,)); None without vectors."""
        return None

    def states(self, query: Query) -> Scores:
        """Return the states (n, d) behind histories; ConfigError for a model without."""
        raise ConfigError("this model has no states: it scores histories as a whole")
