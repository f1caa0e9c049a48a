"""The GRU4Rec encoder (Hidasi et al., 2016), as RecBole has it, on whole sequences."""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import Encoder
from recbole_hyper.encoders.dropout import Dropout
from recbole_hyper.options import Option
from recbole_hyper.registry import register


def resolve_width(gru_size: int | None, width: int, *, dense: bool) -> int:
    """Return the width of the GRU, by default that of the embedding; ValueError for another one without ``dense``."""
    if not dense and gru_size not in (None, width):
        raise ValueError(f"dense=False needs gru_size={gru_size} equal to the embedding's width {width}")
    return gru_size or width


@register("encoders", "gru")
class GRUEncoder(Encoder):
    """RecBole's GRU4Rec with a state per position: dropout of the item embeddings, GRU layers, a dense projection.

    Without ``dense``, ``gru_size`` must be d; ValueError otherwise.
    """

    step_rows = 24  # measured: 80 at width 32, 24 at 64, 9 at 128

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        gru_size: Annotated[opt.GRUSize, "width of the GRU; RecBole GRU4Rec: 128; ~ is hidden_size; ours"] = None,
        n_layers: Annotated[opt.Layers, "GRU layers; RecBole GRU4Rec"] = 1,
        dropout_prob: Annotated[opt.GRUDropout, "dropout of the embeddings and between layers; RecBole GRU4Rec"] = 0.3,
        gru_bias: Annotated[bool, Option("bool", "biases in the GRU; RecBole GRU4Rec")] = False,
        dense: Annotated[opt.Dense, "linear map behind the GRU; RecBole GRU4Rec"] = True,
    ) -> None:
        super().__init__(item_embedding)
        width = item_embedding.embedding_dim
        gru_size = resolve_width(gru_size, width, dense=dense)
        self.dropout = Dropout(dropout_prob)
        self.gru = nn.GRU(
            width, gru_size, n_layers, bias=gru_bias, batch_first=True, dropout=dropout_prob if n_layers > 1 else 0.0
        )
        for name, parameter in self.gru.named_parameters():
            if "weight" in name:  # RecBole: Xavier uniform over each stacked matrix
                nn.init.xavier_uniform_(parameter)
        self.dense = nn.Linear(gru_size, width) if dense else nn.Identity()

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        vectors = self.dropout(self.item_embedding(items))
        states: Tensor = scanned(self.gru, vectors) if torch.compiler.is_exporting() else self.gru(vectors)[0]
        return self.dense(states)


def scanned(gru: nn.GRU, inputs: Tensor) -> Tensor:
    """Return ``gru(inputs)[0]`` in evaluation, (B, L, d), as one operation per layer.

    torch exports nn.GRU step by step, which fixes the length.
    """
    from torch._higher_order_ops import scan

    states = inputs.transpose(0, 1)
    for layer in range(gru.num_layers):
        names = [f"{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        given: list[Any] = [getattr(gru, name, None) for name in names]

        def step(state: Tensor, moved: Tensor, weight: Any = given[1], bias: Any = given[3]) -> tuple[Tensor, Tensor]:
            reset, update, candidate = moved.chunk(3, dim=-1)
            own_reset, own_update, own = nn.functional.linear(state, weight, bias).chunk(3, dim=-1)
            new = torch.tanh(candidate + torch.sigmoid(reset + own_reset) * own)
            keep = torch.sigmoid(update + own_update)
            state = new + keep * (state - new)
            return state, state.clone()

        start = states.new_zeros(states.shape[1], gru.hidden_size)
        states = scan(step, start, nn.functional.linear(states, given[0], given[2]))[1]
    return states.transpose(0, 1)
