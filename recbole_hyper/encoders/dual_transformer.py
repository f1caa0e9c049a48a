"""SASRec's transformer in both directions (DualSASRec, Table 4 of the DualRec paper)."""

from __future__ import annotations

from torch import Tensor

from recbole_hyper.components import component
from recbole_hyper.encoders.base import Trace
from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.encoders.transformer import TransformerBlock, TransformerEncoder


class TracedTransformerEncoder(TransformerEncoder):
    """The transformer encoder that also tells the head outputs of each layer."""

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states (B, L, d) and, per layer, the head outputs before they are mixed (B, L, h, d/h)."""
        found = Trace()
        hooks = []
        for block in self.blocks:
            assert isinstance(block, TransformerBlock)
            attention = block.attention
            heads = (attention.n_heads, attention.output.in_features // attention.n_heads)
            # what enters the output projection are the heads side by side
            hooks.append(
                attention.output.register_forward_pre_hook(
                    lambda _, inputs, heads=heads: found.heads.append(inputs[0].unflatten(-1, heads))
                )
            )
        try:
            return self(items, lengths), found
        finally:
            for hook in hooks:
                hook.remove()


@component("encoders", "dual_transformer")
class DualTransformerEncoder(DualEncoder, backbone=TracedTransformerEncoder):
    """A transformer with absolute positions in each direction; the future one reads the sequence in reverse.

    The paper prints no settings for this backbone: as in its single direction, it has neither windows nor relative
    positions.
    """
