"""SASRec's transformer in both directions (DualSASRec, Table 4 of the DualRec paper)."""

import contextlib

from torch import Tensor

from recbole_hyper.encoders.base import Trace
from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.encoders.transformer import TransformerBlock, TransformerEncoder
from recbole_hyper.registry import register


class TracedTransformerEncoder(TransformerEncoder):
    """The transformer encoder that also tells the head outputs of each layer."""

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states (B, L, d) and, per layer, the head outputs before they are mixed (B, L, h, d/h)."""
        found = Trace()
        with contextlib.ExitStack() as hooks:
            for block in self.blocks:
                assert isinstance(block, TransformerBlock)
                heads = (block.attention.n_heads, -1)
                # what enters the output projection are the heads side by side
                hook = block.attention.output.register_forward_pre_hook(
                    lambda _, inputs, heads=heads: found.heads.append(inputs[0].unflatten(-1, heads))
                )
                hooks.callback(hook.remove)
            return self(items, lengths), found


@register("encoders", "dual_transformer")
class DualTransformerEncoder(DualEncoder, backbone=TracedTransformerEncoder):
    """A transformer with absolute positions in each direction; the future one reads the sequence in reverse.

    The paper prints no settings for this backbone: as in its single direction, it has neither windows nor relative
    positions.
    """
