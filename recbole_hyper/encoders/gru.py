"""The GRU4Rec encoder (Hidasi et al., 2016), as RecBole has it, on whole sequences."""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import Dropout, Encoder
from recbole_hyper.options import Option


def resolve_width(gru_size: int | None, width: int, *, dense: bool) -> int:
    """Return the width of the GRU, by default that of the embedding; ValueError if they differ without ``dense``."""
    if not dense and gru_size not in (None, width):
        raise ValueError(f"dense=False: gru_size={gru_size} must equal hidden_size={width}")
    return gru_size or width


class GRUEncoder(Encoder):
    """RecBole's GRU4Rec with a state per position: dropout of the item embeddings, GRU layers, a dense projection."""

    step_rows = 24  # measured: 80 at width 32, 24 at 64, 9 at 128

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        resolve_width(options["gru_size"], width, dense=options["dense"])

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        gru_size: Annotated[opt.GRUSize, "width of the GRU; RecBole GRU4Rec: 128; ~ is hidden_size; ours"] = None,
        n_layers: Annotated[opt.Layers, "GRU layers; RecBole GRU4Rec"] = 1,
        dropout_prob: Annotated[opt.GRUDropout, "dropout of the embeddings and between layers; RecBole GRU4Rec"] = 0.3,
        gru_bias: Annotated[bool, Option("biases in the GRU; RecBole GRU4Rec")] = False,
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
    """Return ``gru(inputs)[0]`` in evaluation, (B, L, d), with one operation per layer.

    torch exports nn.GRU step by step, which would fix the length.
    """
    from torch._higher_order_ops import scan

    states = inputs.transpose(0, 1)
    for layer in range(gru.num_layers):
        names = [f"{name}_l{layer}" for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")]
        weights: list[Any] = [getattr(gru, name, None) for name in names]
        input_weight, input_bias, *recurrent = weights

        def step(state: Tensor, x: Tensor, recurrent: Any = recurrent) -> tuple[Tensor, Tensor]:
            reset_x, update_x, candidate_x = x.chunk(3, dim=-1)
            reset_h, update_h, candidate_h = nn.functional.linear(state, *recurrent).chunk(3, dim=-1)
            candidate = torch.tanh(candidate_x + torch.sigmoid(reset_x + reset_h) * candidate_h)
            update = torch.sigmoid(update_x + update_h)
            state = candidate + update * (state - candidate)
            return state, state.clone()

        start = states.new_zeros(states.shape[1], gru.hidden_size)
        states = scan(step, start, nn.functional.linear(states, input_weight, input_bias))[1]
    return states.transpose(0, 1)
