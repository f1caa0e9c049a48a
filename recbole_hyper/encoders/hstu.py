"""HSTU (Zhai et al., 2024, "Actions Speak Louder than Words"): gated attention without softmax that reads times."""

from torch import Tensor, nn

from recbole_hyper.encoders._relations import LATER, RelationalBlock, RelationalEncoder, Relations, looked_up


class TransductionUnit(RelationalBlock):
    r"""One layer, equations 1 to 3 of the paper.

    .. math::
        U, V, Q, K &= \mathrm{SiLU}(W_1 \mathrm{LN}(X)) \\
        A_{ij} &= \mathrm{SiLU}(q_i^T k_j + p_{i-j} + r_{b(t_i - t_j)}) / N, \quad j \le i \\
        X' &= X + W_2\, \mathrm{drop}(\mathrm{LN}(A V) \odot U) + c

    with N = ``max_length``, learned p and r (:class:`RelativeWeights`), and layer norms without weights, as in the
    published code.
    """

    norm = nn.LayerNorm

    def forward(self, memory: Tensor, relations: Relations, query: Tensor | None = None) -> Tensor:
        states, gates, queries, values, keys = self.projected(memory, query)
        bias = looked_up(self.weights.gap, relations.gaps, 0.0).add_(
            looked_up(self.weights.place, relations.places, LATER)
        )
        attended = self.attended(queries, keys, values, bias.unsqueeze(1))
        return states + self.output(self.dropout(self.attended_norm(attended) * gates))


class HSTUEncoder(RelationalEncoder):
    """HSTU's layers over item vectors and learned positions."""

    made_of = (TransductionUnit,)
