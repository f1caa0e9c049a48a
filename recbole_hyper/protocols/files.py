"""Parts that were made elsewhere: the files of RecBole's ``benchmark_filename``."""

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError
from recbole_hyper.protocols.parts import split_of_parts
from recbole_hyper.registry import register
from recbole_hyper.types import Split


@register("protocols", "files")
class Files(Protocol):
    """``benchmark_filename: [train, valid, test]``: each interaction of the second and third file is a case.

    The history of a validation case is the user's part of the training file; that of a test case adds the validation
    file, as in RecBole's evaluation. With ``successive: true`` each case joins the history of the later ones. Cases of
    users without an earlier interaction are left out and counted.

    A row can hold its own history and target (``item_id_list``, ``item_id``); then the row is the case.
    """

    title, timed = "files of training, validation and test", False

    def split(self, store: SequenceStore) -> Split:
        if store.parts is None:
            raise self.error("these interactions did not come in parts")
        if self.refit and not store.parts[:, 2].any():
            raise ProtocolError("refit: True needs a validation part, which these files do not have")
        if self.refit and store.parts[:, 0].any():
            raise ProtocolError(
                "refit: True would learn the histories of the validation file, which repeat those of the training file"
            )
        return split_of_parts(store, store.parts, successive=self.successive, refit=self.refit)
