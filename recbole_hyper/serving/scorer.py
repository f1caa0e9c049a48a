"""What a recommender asks of a model, in numpy. Imports no torch."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recbole_hyper.errors import ConfigError
from recbole_hyper.serving.query import Query

Scores = npt.NDArray[np.float32]


class Scorer:
    """Scores of histories, likeness of items, states and vectors of a model.

    Attributes:
        model: the torch model; None in a process that serves a graph.
        features: names of the item features that the model reads.
        reads_times: whether scores depend on when the items of a history were chosen.
        learns_users: whether the model has a vector per user, and answers for no one else.
    """

    model: Any = None
    features: tuple[str, ...] = ()
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

    def add_items(self, tokens: npt.NDArray[np.str_], table: pa.Table) -> None:
        """Take in items with the ids ``tokens`` (m,), behind those that there are, by their features in ``table``.

        ConfigError for a model that does not score items by features; DataError for features that cannot be used.
        """
        raise ConfigError("this model reads no features of items, so it takes no new ones")

    def states(self, query: Query) -> Scores:
        """Return the states (n, d) behind histories; ConfigError for a model without."""
        raise ConfigError("this model has no states: it scores histories as a whole")
