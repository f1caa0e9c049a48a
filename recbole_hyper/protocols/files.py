"""Ready-made parts: the files of RecBole's ``benchmark_filename``."""

import numpy as np
import pandas as pd

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.protocols.parts import split_of_parts
from recbole_hyper.types import Int64, Split


class Files(Protocol):
    """``benchmark_filename: [train, valid, test]``: each interaction of the second and third file is a case.

    A validation case has the user's rows of the training file as history, a test case also those of the validation
    file, as in RecBole's evaluation. With ``successive: true`` a case also has the earlier cases of its part. Cases
    without any earlier interaction are dropped and counted. Interactions of two files are counted.

    A row can also be a case itself, with its history and target (``item_id_list``, ``item_id``).
    """

    name = "files"
    title, timed = "files of training, validation and test", False

    def split(self, store: SequenceStore) -> Split:
        if store.parts is None:
            raise self.error("the data do not come in parts; set benchmark_filename")
        if self.refit and not store.parts[:, 2].any():
            raise ProtocolError("refit: True needs a validation part, which these files do not have")
        if self.refit and store.parts[:, 0].any():
            raise ProtocolError(
                "refit: True would train on the histories of the validation file, which repeat the training file"
            )
        if not store.parts[:, 2].any():
            self.title = "files of training and test, no validation"
        elif not store.parts[:, 3].any():
            self.title = "files of training and validation, no test"
        split = split_of_parts(store, store.parts, successive=self.successive, refit=self.refit)
        split.counts.update(_repeated(store, store.parts))
        return split


def _repeated(store: SequenceStore, parts: Int64) -> dict[str, int]:
    """Return how many interactions are in an earlier file too, or twice in a file, with the same user, item and time.

    Only counts above 0.
    """
    part = np.repeat(np.tile(np.arange(4, dtype=np.int8), len(parts)), parts.ravel())
    pair = store.users[store.row_of].astype(np.int64) * store.n_items + store.items
    rows = np.flatnonzero((part > 0) & np.isin(pair, pair[part > 1]))
    frame = pd.DataFrame({"pair": pair[rows], "time": store.times[rows], "part": part[rows]})
    twice = frame.duplicated()
    counts = {
        "interactions that are in an earlier file too": frame[~twice].duplicated(["pair", "time"]).sum(),
        "cases twice, as rows twice in a file of validation or test": (twice & (frame["part"] > 1)).sum(),
    }
    return {name: int(count) for name, count in counts.items() if count}
