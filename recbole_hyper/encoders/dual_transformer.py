"""SASRec's transformer in both directions (DualSASRec, Table 4 of the DualRec paper)."""

import contextlib

from torch import Tensor

from recbole_hyper.encoders.base import Trace
from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.encoders.transformer import TransformerBlock, TransformerEncoder


class TracedTransformerEncoder(TransformerEncoder):
    """The transformer encoder with the head outputs of each layer in its trace."""

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states (B, L, d), and the head outputs (B, L, h, d/h) of each layer before they are mixed."""
        trace = Trace()
        with contextlib.ExitStack() as hooks:
            for block in self.blocks:
                assert isinstance(block, TransformerBlock)
                heads = (block.attention.n_heads, -1)
                # the output projection reads the heads side by side
                hook = block.attention.output.register_forward_pre_hook(
                    lambda _, inputs, heads=heads: trace.heads.append(inputs[0].unflatten(-1, heads))
                )
                hooks.callback(hook.remove)
            return self(items, lengths), trace


class DualTransformerEncoder(DualEncoder, backbone=TracedTransformerEncoder):
    """A transformer with absolute positions in each direction; the future network reads the sequence in reverse.

    The paper states no settings: these are from DualRec's code, and the block is RecBole's.
    """

    model_defaults = {"MAX_ITEM_LIST_LENGTH": 50}  # DualRec's code

    backbone_defaults = {
        "n_heads": (2, "heads, divides hidden_size; RecBole's SASRec (ours for this pair)"),
        "inner_size": (256, "width inside the feed-forward part; RecBole's SASRec"),
        "hidden_dropout_prob": (0.5, "of the input sum and of both branches; DualRec's code"),
        "attn_dropout_prob": (0.5, "dropout of attention weights; DualRec's code"),
        "hidden_act": ("gelu", "inside the feed-forward part; RecBole's SASRec"),
        "layer_norm_eps": (1e-12, "added to the variance; RecBole's SASRec"),
        "norm_placement": ("post", "query, pre or post; RecBole's SASRec"),
        "scale_embeddings": (False, "items times sqrt(hidden_size); RecBole's SASRec"),
        "initializer": ("normal", "of item vectors and matrices; RecBole's SASRec"),
    }
