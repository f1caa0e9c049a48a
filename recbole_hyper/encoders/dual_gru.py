"""GRU4Rec in both directions (DualGRU4Rec, Table 4 of the DualRec paper)."""

from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.encoders.gru import GRUEncoder


class DualGRUEncoder(DualEncoder, backbone=GRUEncoder):
    """A recurrent network in each direction; the future network reads the sequence in reverse.

    The paper states no settings. The transfer term compares the states, as one head of width d (ours).
    """
