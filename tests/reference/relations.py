"""Attention that knows places and times, position by position and head by head, as HSTU and FuXi-alpha are written."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def bucket(earlier: float, later: float, last: int) -> int:
    """Return the bucket of a gap of time."""
    return min(last, math.floor(math.log(max(1.0, abs(later - earlier))) / 0.301))


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def layer_norm(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + eps)


def rms_norm(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps)


def embedded(made: Any, items: list[int]) -> Tensor:
    """Return the input: item times sqrt(d) plus the position counted from the oldest."""
    width = made.table.weight.shape[1]
    rows = [made.table.weight[item] * width**0.5 + made.position_embedding.weight[i] for i, item in enumerate(items)]
    return torch.stack(rows)


def left(made: Any, x: Tensor) -> Tensor:
    """Return the output norm of ``x``."""
    norm = made.output_norm
    return layer_norm(x, norm.eps) * norm.weight + norm.bias


def fuxi(made: Any, items: list[int], times: list[float]) -> Tensor:
    """Return the states (L, d) of one sequence."""
    x, last = embedded(made, items), made.n_time_buckets
    for block in made.blocks:
        heads = block.n_heads
        normed = rms_norm(x, block.input_norm.eps)
        gate, query = silu(normed @ block.gate_query.weight.T).split([3 * block.widths[0], block.widths[1]], dim=-1)
        value, key = silu(normed @ block.value_key.weight.T).split(block.widths, dim=-1)
        rows = []
        for i in range(len(items)):
            place, gap, content = (torch.zeros_like(value[0]) for _ in range(3))
            for j in range(i + 1):
                place = place + block.weights.place[i - j] * value[j]
                gap = gap + block.weights.gap[bucket(times[j], times[i], last)] * value[j]
                parts = zip(query[i].chunk(heads), key[j].chunk(heads), value[j].chunk(heads), strict=True)
                content = content + torch.cat([silu(q @ k) / made.max_length * v for q, k, v in parts])
            rows.append(torch.cat([place, gap, content]))
        mixed = rms_norm(torch.stack(rows), block.attended_norm.eps) * gate
        x = x + mixed @ block.output.weight.T + block.output.bias
        normed = rms_norm(x, block.feed_norm.eps)
        opened, passed = (normed @ block.feed_forward.inner.weight.T).chunk(2, dim=-1)
        x = x + (silu(opened) * passed) @ block.feed_forward.outer.weight.T
    return left(made, x)


def hstu(made: Any, items: list[int], times: list[float]) -> Tensor:
    """Return the states (L, d) of one sequence: equations 1 to 3."""
    x, last = embedded(made, items), made.n_time_buckets
    for block in made.blocks:
        heads = block.n_heads
        normed = layer_norm(x, block.input_norm.eps)
        gate, query = silu(normed @ block.gate_query.weight.T).split(block.widths, dim=-1)
        value, key = silu(normed @ block.value_key.weight.T).split(block.widths, dim=-1)
        rows = []
        for i in range(len(items)):
            parts = []
            for q, k, v in zip(query.chunk(heads, -1), key.chunk(heads, -1), value.chunk(heads, -1), strict=True):
                total = torch.zeros_like(v[0])
                for j in range(i + 1):
                    bias = block.weights.place[i - j] + block.weights.gap[bucket(times[j], times[i], last)]
                    total = total + silu(q[i] @ k[j] + bias) / made.max_length * v[j]
                parts.append(total)
            rows.append(torch.cat(parts))
        attended = layer_norm(torch.stack(rows), block.attended_norm.eps)
        x = x + (attended * gate) @ block.output.weight.T + block.output.bias
    return left(made, x)
