"""SASRec's transformer in both directions (DualSASRec, Table 4 of the DualRec paper)."""

import contextlib
from typing import Annotated, Any

from torch import Tensor, nn

from recbole_hyper.encoders.base import Trace
from recbole_hyper.encoders.dual import DualEncoder
from recbole_hyper.encoders.options import (
    Activation,
    AttentionDropout,
    Heads,
    HiddenDropout,
    Initializer,
    InnerSize,
    NormEps,
)
from recbole_hyper.encoders.transformer import NormPlacement, ScaleEmbeddings, TransformerBlock, TransformerEncoder
from recbole_hyper.registry import register


class TracedTransformerEncoder(TransformerEncoder):
    """The transformer encoder whose trace has the head outputs of each layer."""

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states (B, L, d) and, per layer, the head outputs before they are mixed (B, L, h, d/h)."""
        found = Trace()
        with contextlib.ExitStack() as hooks:
            for block in self.blocks:
                assert isinstance(block, TransformerBlock)
                heads = (block.attention.n_heads, -1)
                # the input of the output projection is the heads side by side
                hook = block.attention.output.register_forward_pre_hook(
                    lambda _, inputs, heads=heads: found.heads.append(inputs[0].unflatten(-1, heads))
                )
                hooks.callback(hook.remove)
            return self(items, lengths), found


@register("encoders", "dual_transformer")
class DualTransformerEncoder(DualEncoder, backbone=TracedTransformerEncoder):
    """A transformer with absolute positions in each direction; the future one reads the sequence in reverse.

    The paper prints no settings for this backbone. It has neither windows nor relative positions, as in one direction,
    and takes its settings from DualRec's code and its block from RecBole.
    """

    model_defaults = {"MAX_ITEM_LIST_LENGTH": 50}  # DualRec's code

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        n_heads: Annotated[Heads, "heads, divides hidden_size; RecBole's SASRec (ours for this pair)"] = 2,
        inner_size: Annotated[InnerSize, "width inside the feed-forward part; RecBole's SASRec"] = 256,
        hidden_dropout_prob: Annotated[HiddenDropout, "of the input sum and of both branches; DualRec's code"] = 0.5,
        attn_dropout_prob: Annotated[AttentionDropout, "dropout of attention weights; DualRec's code"] = 0.5,
        hidden_act: Annotated[Activation, "inside the feed-forward part; RecBole's SASRec"] = "gelu",
        layer_norm_eps: Annotated[NormEps, "added to the variance; RecBole's SASRec"] = 1e-12,
        norm_placement: Annotated[NormPlacement, "query, pre or post; RecBole's SASRec"] = "post",
        scale_embeddings: Annotated[ScaleEmbeddings, "items times sqrt(hidden_size); RecBole's SASRec"] = False,
        initializer: Annotated[Initializer, "of item vectors and matrices; RecBole's SASRec"] = "normal",
        **options: Any,
    ) -> None:
        super().__init__(
            item_embedding,
            n_heads=n_heads,
            inner_size=inner_size,
            hidden_dropout_prob=hidden_dropout_prob,
            attn_dropout_prob=attn_dropout_prob,
            hidden_act=hidden_act,
            layer_norm_eps=layer_norm_eps,
            norm_placement=norm_placement,
            scale_embeddings=scale_embeddings,
            initializer=initializer,
            **options,
        )
