"""Parts that were made elsewhere: the files of RecBole's ``benchmark_filename``."""

from recbole_hyper.components import component
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.protocols.parts import split_of_parts
from recbole_hyper.types import Split


@component("protocols", "files")
class Files(Protocol):
    """``benchmark_filename: [train, valid, test]``: each interaction of the second and third file is a case.

    The history of a validation case is what the training file holds of its user, that of a test case what the training
    and the validation file hold: the items that RecBole's evaluation knows of the user then. Cases of one user and file
    share it. With ``successive: true`` they are asked one after another in time order, the earlier ones in the history
    of the later. Cases of users without any earlier interaction are left out and counted.

    Where a row holds a history of its own and its target (``item_id_list``, ``item_id``), that is the case.
    """

    title, timed = "files of training, validation and test", False

    def split(self, store: SequenceStore) -> Split:
        if store.parts is None:
            raise ProtocolError(f"split {{files: {self.argument!r}}}: these interactions did not come in parts")
        if self.refit and not store.parts[:, 2].any():
            raise ProtocolError("refit: True needs a validation part, which these files do not have")
        if self.refit and store.parts[:, 0].any():
            raise ProtocolError(
                "refit: True would learn the histories of the validation file, which hold the training file's again"
            )
        return split_of_parts(store, store.parts, successive=self.successive, refit=self.refit)
