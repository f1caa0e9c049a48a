"""Attention that reads the distance and the time between items, the base of HSTU and FuXi-alpha.

Shapes: B users, L length, Q query positions (L, or 1 for the newest item), d width.
"""

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import Dropout, TimedEncoder, check_heads, check_length, newest
from recbole_hyper.options import Option
from recbole_hyper.values import PositiveInt

# width of a bucket in the logarithm of the time; the code of HSTU and FuXi-alpha
BUCKET = 0.301
# added to the score of a later item, so that SiLU and its gradient are exactly 0
LATER = -1e30
# gaps per block, 1 MiB, so that they stay in the cache
_GAPS = 1 << 17


class Relations(NamedTuple):
    """Distance and time between query positions i and all positions j, computed once for all layers."""

    places: Tensor  # (Q, L), or (B, 1, L): i - j, or max_length if j is later than i
    gaps: Tensor  # (B, Q, L) int32: the bucket of |t_i - t_j|, or n_time_buckets + 1 if j is later


def time_buckets(queries: Tensor, times: Tensor, n_buckets: int, later: Tensor) -> Tensor:
    """Return the buckets min(n, floor(log(max(1, |t_i - t_j|)) / 0.301)), (B, Q, L) int32, n + 1 where ``later``.

    ``queries`` (B, Q) are the times of the queries. They and ``times`` (B, L) are float64, because float32 cannot hold
    Unix seconds. ``later`` is (Q, L) or (B, 1, L).
    """

    def buckets_of(rows: slice) -> Tensor:
        gaps = (queries[rows, :, None] - times[rows, None, :]).abs_().clamp_(min=1)
        buckets = gaps.log_().div_(BUCKET).clamp_(max=n_buckets).to(torch.int32)
        return buckets.masked_fill_(later if later.dim() == 2 else later[rows], n_buckets + 1)

    if torch.compiler.is_exporting() or times.device.type != "cpu":
        return buckets_of(slice(None))
    indices = torch.empty(*queries.shape, times.shape[1], dtype=torch.int32)
    size = max(1, _GAPS // max(1, queries.shape[1] * times.shape[1]))
    for start in range(0, len(times), size):
        rows = slice(start, start + size)
        indices[rows] = buckets_of(rows)
    return indices


class RelativeWeights(nn.Module):
    """A learned weight for each distance 0 .. ``max_length`` - 1 and each time bucket, shared by all heads."""

    def __init__(self, max_length: int, n_buckets: int, std: float) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.empty(max_length).normal_(std=std))
        self.gap = nn.Parameter(torch.empty(n_buckets + 1).normal_(std=std))


def looked_up(weights: Tensor, index: Tensor, later: float) -> Tensor:
    """Return the weights at ``index``, places or gaps of :class:`Relations`, and ``later`` for a later item."""
    table = torch.cat((weights, weights.new_full((1,), later)))
    # index_select, and its backward, at a fifth of the cost of table[index]
    return table.index_select(0, index.reshape(-1)).view(index.shape)


class RelationalBlock(nn.Module):
    """Base of the blocks of a :class:`RelationalEncoder`: projections, norms without weights, relative weights.

    A subclass sets its ``norm`` and the number of ``channels`` that attend to the same values.
    """

    norm: ClassVar[type[nn.LayerNorm] | type[nn.RMSNorm]]
    channels: ClassVar[int] = 1

    def __init__(
        self,
        hidden_size: int,
        *,
        n_heads: opt.Heads = 1,
        attention_dim: Annotated[opt.HeadWidth, "width of a query and key; ~ is hidden_size / n_heads"] = None,
        linear_dim: Annotated[opt.HeadWidth, "width of a value and gate; ~ is hidden_size / n_heads"] = None,
        max_length: int,
        n_time_buckets: int,
        hidden_dropout_prob: float,
        layer_norm_eps: float,
        initializer_range: float,
    ) -> None:
        super().__init__()
        self.n_heads, self.max_length, self.std = n_heads, max_length, initializer_range
        for name, width in (("attention_dim", attention_dim), ("linear_dim", linear_dim)):
            if width is None:
                check_heads(hidden_size, n_heads, f"; set {name}")
        keys, values = (n_heads * (width or hidden_size // n_heads) for width in (attention_dim, linear_dim))
        gates = self.channels * values
        self.widths = (values, keys)
        self.weights = RelativeWeights(max_length, n_time_buckets, initializer_range)
        self.gate_query = nn.Linear(hidden_size, gates + keys, bias=False)
        self.value_key = nn.Linear(hidden_size, values + keys, bias=False)
        self.output = nn.Linear(gates, hidden_size)
        self.input_norm = self.norm(hidden_size, eps=layer_norm_eps, elementwise_affine=False)
        self.attended_norm = self.norm(gates, eps=layer_norm_eps, elementwise_affine=False)
        self.dropout = Dropout(hidden_dropout_prob)

    def draw(self) -> None:
        """Draw the input projections from N(0, std^2) and the output projection by Xavier's rule."""
        for linear in (self.gate_query, self.value_key):
            nn.init.normal_(linear.weight, std=self.std)
        nn.init.xavier_uniform_(self.output.weight)

    @abstractmethod
    def forward(self, memory: Tensor, relations: Relations, query: Tensor | None = None) -> Tensor:
        """Map (B, L, d) to (B, L, d), or to the ``query`` positions (B, Q, d) alone."""

    def projected(self, memory: Tensor, query: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the query states (B, Q, d), their gates and queries, and values and keys of ``memory``."""
        states = memory if query is None else query
        normed = self.input_norm(memory)
        normed_query = normed if query is None else self.input_norm(query)
        gates, queries = F.silu(self.gate_query(normed_query)).split((self.output.in_features, self.widths[1]), dim=-1)
        values, keys = F.silu(self.value_key(normed)).split(self.widths, dim=-1)
        return states, gates, queries, values, keys

    def attended(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Return SiLU(Q K^T + bias) V / N, (B, Q, h w); ``bias`` broadcasts to (B, h, Q, L) and masks by LATER."""
        query, key, value = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (queries, keys, values))
        # float32, because half precision cannot represent LATER
        weights = F.silu(bias + query @ key.transpose(-1, -2))
        return (weights @ value).transpose(1, 2).flatten(-2) / self.max_length


class RelationalEncoder(TimedEncoder):
    """Causal blocks that read the distance and the time between items, over item vectors and learned positions.

    The input is drop(sqrt(d) e + p), as in the code of HSTU and FuXi-alpha; positions count from the oldest item. Two
    things differ from that code. It uses the time of the *next* item as time of a query, which is unknown when a model
    recommends; here it is the time of the query's item. And it normalises states and item vectors and divides by a
    temperature; here the states pass a layer norm, and the geometry scores them.

    A subclass sets ``made_of`` to the class of its blocks.
    """

    # published code, cut off at two deviations
    model_defaults = {"initializer": "normal"}

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        for name in ("attention_dim", "linear_dim"):
            if options[name] is None:
                check_heads(width, options["n_heads"], f"; set {name}")

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        max_length: opt.Length,
        n_layers: opt.Layers = 2,
        n_time_buckets: Annotated[
            PositiveInt, Option("last bucket of times between items, each 1.35 x the one before; published code")
        ] = 128,
        hidden_dropout_prob: Annotated[opt.HiddenDropout, "of input and gated output; published code"] = 0.2,
        layer_norm_eps: Annotated[opt.NormEps, "added to the variance; published code"] = 1e-6,
        initializer_range: Annotated[opt.InitializerRange, "of vectors, projections, weights; published code"] = 0.02,
        **more: Any,
    ) -> None:
        super().__init__(item_embedding)
        width = item_embedding.embedding_dim
        self.max_length, self.n_time_buckets, self.scale = max_length, n_time_buckets, math.sqrt(width)
        self.position_embedding = nn.Embedding(max_length, width)
        bound = 2 / self.scale
        nn.init.trunc_normal_(self.position_embedding.weight, std=1 / self.scale, a=-bound, b=bound)
        self.dropout = Dropout(hidden_dropout_prob)
        self.output_norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.blocks = nn.ModuleList()
        more |= {"max_length": max_length, "n_time_buckets": n_time_buckets, "layer_norm_eps": layer_norm_eps}
        more |= {"hidden_dropout_prob": hidden_dropout_prob, "initializer_range": initializer_range}
        for _ in range(n_layers):
            block = cast(RelationalBlock, self.made_of[0](width, **more))
            block.draw()
            self.blocks.append(block)

    def forward(self, items: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        states, relations = self._embed(items), self._relations(items, times)
        for block in self.blocks:
            states = block(states, relations)
        return self.output_norm(states)

    def last(self, items: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the states (B, d) at the newest items; in evaluation the last block computes only these."""
        if self.training:
            return super().last(items, lengths, times)
        states = self._embed(items)
        relations = self._relations(items, times) if len(self.blocks) > 1 else None
        for block in self.blocks[:-1]:
            states = block(states, relations)
        query = newest(states, lengths).unsqueeze(1)
        states = self.blocks[-1](states, self._relations(items, times, lengths - 1), query)
        return self.output_norm(states).squeeze(1)

    def _embed(self, items: Tensor) -> Tensor:
        length = items.shape[1]
        check_length(length, self.max_length)
        positions = self.position_embedding.weight[:length]
        return self.dropout(torch.add(positions, self.item_embedding(items), alpha=self.scale))

    def _relations(self, items: Tensor, times: Tensor | None, query: Tensor | None = None) -> Relations:
        """Return the relations of every position, or of the one position ``query`` (B,) of each row."""
        if times is None:
            times = torch.zeros(items.shape, dtype=torch.float64, device=items.device)
        place = torch.arange(items.shape[1], device=items.device)
        places, query_times = place[:, None] - place, times
        if query is not None:
            places, query_times = query[:, None, None] - place, times.gather(1, query[:, None])
        later = places < 0
        gaps = time_buckets(query_times, times, self.n_time_buckets, later)
        return Relations(places.masked_fill(later, self.max_length), gaps)
