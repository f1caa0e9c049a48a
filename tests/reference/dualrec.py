"""Slow DualRec: one user, one head, one query, one key at a time, in float64, to be read beside the paper.

Also :class:`NaiveAttention`, the published algorithm with a Python loop over the heads, the peer of the benchmark.
"""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.windowed_attention import WindowedAttention, WindowedAttentionEncoder


def window_size(i: int, h: int, n: int) -> int:
    """Equation 8 for head i = 1..h in 50 digits."""
    with mpmath.workdps(50):
        if i <= mpmath.mpf(h) / 2:
            return i + 1
        share = mpmath.e ** (i - mpmath.mpf(h) / 2) / mpmath.e ** (mpmath.mpf(h) / 2)
        # rounding noise of the last digits must not lift an exact integer
        return int(h // 2 + mpmath.ceil(share * (n - mpmath.mpf(h) / 2) - mpmath.mpf(10) ** -40))


def attention(module: WindowedAttention, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One user without padding: (L, d) -> mixed (L, d), head outputs (L, h, d/h), maps (h, L, L)."""
    length, width = inputs.shape
    size = module.head_size
    weight = module.query_key_value.weight.detach().double()
    maps = torch.zeros(module.n_heads, length, length, dtype=torch.float64)
    heads = torch.zeros(length, module.n_heads, size, dtype=torch.float64)
    for head in range(module.n_heads):
        part = slice(head * size, (head + 1) * size)
        query, key, value = (inputs @ weight[i * width : (i + 1) * width][part].T for i in range(3))
        window = module.windows[head] if module.training or module.window_at_eval else length
        for i in range(length):
            scores = {}
            for j in range(length):
                distance = i - j if module.direction == "past" else j - i
                if not 0 <= distance < window:
                    continue
                if module.relative_positions == "none":
                    scores[j] = float(query[i] @ key[j]) / math.sqrt(size)
                    continue
                if module.relative_positions == "learned":
                    r = module.distance.detach().double()[distance][part]
                else:
                    angle = [distance * 10000.0 ** (-2 * c / width) for c in range(width // 2)]
                    sinusoid = torch.tensor([*map(math.sin, angle), *map(math.cos, angle)], dtype=torch.float64)
                    r = (module.position.weight.detach().double() @ sinusoid)[part]
                u = module.content_bias.detach().double()[head, 0]
                v = module.position_bias.detach().double()[head, 0]
                scores[j] = float((query[i] + u) @ key[j] + (query[i] + v) @ r) / math.sqrt(size)
            total = sum(math.exp(s) for s in scores.values())
            for j, score in scores.items():
                maps[head, i, j] = math.exp(score) / total
                heads[i, head] += maps[head, i, j] * value[j]
    return heads.flatten(1) @ module.output.weight.detach().double().T, heads, maps


def encoder(module: WindowedAttentionEncoder, items: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """One user without padding, in evaluation mode: (L,) -> states (L, d), head outputs and maps of each layer."""

    def norm(layer: nn.Module, x: Tensor) -> Tensor:
        if isinstance(layer, nn.Identity):
            return x
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.pow(2).mean(-1, keepdim=True) + layer.eps).sqrt()
        return x * layer.weight.detach().double() + layer.bias.detach().double()

    def linear(layer: nn.Linear, x: Tensor) -> Tensor:
        return x @ layer.weight.detach().double().T + layer.bias.detach().double()

    states = module.item_embedding.weight.detach().double()[items]
    all_heads, all_maps = [], []
    for layer in module.layers:
        mixed, heads, maps = attention(layer.attention, states)
        hidden = norm(layer.attention_norm, mixed + states if layer.residual else mixed)
        wide = linear(layer.widen, hidden)
        wide = 0.5 * wide * (1 + torch.erf(wide / math.sqrt(2)))
        inner = linear(layer.narrow, wide)
        states = norm(layer.output_norm, inner + hidden if layer.residual else inner)
        all_heads.append(heads)
        all_maps.append(maps)
    return states, all_heads, all_maps


def kl(p: list[float], q: list[float]) -> float:
    """KL divergence of two distributions; 0 log 0 = 0."""
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def head_transfer(past: list[list[Tensor]], future: list[list[Tensor]]) -> float:
    """Transfer term from head outputs: ``past[user][layer]`` is (length, h, d/h), without padding."""
    terms = []
    for user_past, user_future in zip(past, future, strict=True):
        for layer_past, layer_future in zip(user_past, user_future, strict=True):
            for head in range(layer_past.shape[1]):
                p = torch.softmax(layer_past[:, head].mean(0), dim=0).tolist()
                q = torch.softmax(layer_future[:, head].mean(0), dim=0).tolist()
                terms.append(0.5 * (kl(p, q) + kl(q, p)))
    return sum(terms) / len(terms)


def attention_transfer(past: list[list[Tensor]], future: list[list[Tensor]]) -> float:
    """Transfer term from attention maps by distance: ``past[user][layer]`` is (h, length, length)."""
    terms = []
    for user_past, user_future in zip(past, future, strict=True):
        for layer_past, layer_future in zip(user_past, user_future, strict=True):
            n_heads, length, _ = layer_past.shape
            for head in range(n_heads):
                p, q = [0.0] * length, [0.0] * length
                for i in range(length):
                    for j in range(length):
                        if j <= i:
                            p[i - j] += float(layer_past[head, i, j]) / length
                        if j >= i:
                            q[j - i] += float(layer_future[head, i, j]) / length
                terms.append(0.5 * (kl(p, q) + kl(q, p)))
    return sum(terms) / len(terms)


class NaiveAttention(nn.Module):
    """The published algorithm over a batch, a head at a time, with the relative table gathered to (L, L, d/h)."""

    def __init__(self, attention: WindowedAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, inputs: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Tensor, None]:
        """Same inputs and outputs as :class:`WindowedAttention`, without maps."""
        module, length, size = self.attention, inputs.shape[1], self.attention.head_size
        place = torch.arange(length)
        distance = place[:, None] - place if module.direction == "past" else place - place[:, None]
        real = place < lengths[:, None]
        queries, keys, values = module.query_key_value(inputs).chunk(3, dim=-1)
        vectors = module.position(module.dropout(module.sinusoid[:length]))
        heads = []
        for head in range(module.n_heads):
            part = slice(head * size, (head + 1) * size)
            query, key, value, r = queries[..., part], keys[..., part], values[..., part], vectors[..., part]
            relative = r[distance.clamp(min=0)]  # (L, L, d/h)
            scores = torch.einsum("bid,bjd->bij", query + module.content_bias[head, 0], key)
            scores = scores + torch.einsum("bid,ijd->bij", query + module.position_bias[head, 0], relative)
            window = module.windows[head] if module.training or module.window_at_eval else length
            seen = (distance >= 0) & (distance < window) & (real[:, None] | (distance == 0))
            scores = (scores / math.sqrt(size)).masked_fill(~seen, -math.inf)
            heads.append(module.dropout(scores.softmax(dim=-1)) @ value)
        stacked = torch.stack(heads, dim=2)
        return module.output(stacked.flatten(-2)), stacked, None
