"""FMLP-Rec in both directions (DualFMLP-Rec, Table 4 of the DualRec paper)."""

from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.encoders.fmlp import FMLPEncoder


class DualFMLPEncoder(DualEncoder, backbone=FMLPEncoder):
    """Filter layers in each direction; the future network reads the sequence in reverse.

    The published filter wraps around, so a state would see its target; no setting of ``filter`` here does. The transfer
    term compares the outputs of the filters, as one head of width d (ours).
    """

    model_defaults = FMLPEncoder.model_defaults
