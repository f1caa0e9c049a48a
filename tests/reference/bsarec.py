"""BSARec written out with loops from the paper's equations, in float64, for comparison."""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from recbole_hyper.encoders.bsarec import BSARecEncoder, BSARecLayer


def low_frequencies(window: Tensor, count: int) -> Tensor:
    """Return what the ``count`` lowest frequencies of a window (N, d) make of it: a discrete Fourier sum and back."""
    n, width = window.shape
    found = torch.zeros(n, width, dtype=torch.float64)
    kept = [f for f in range(n) if min(f, n - f) < count]
    for column in range(width):
        values = window[:, column].tolist()
        spectrum = {f: sum(v * cmath.exp(-2j * math.pi * f * t / n) for t, v in enumerate(values)) for f in kept}
        for t in range(n):
            found[t, column] = (sum(c * cmath.exp(2j * math.pi * f * t / n) for f, c in spectrum.items()) / n).real
    return found


def layer_norm(vector: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    centred = vector - vector.mean()
    return norm.weight * centred / (centred.square().mean() + norm.eps).sqrt() + norm.bias


def attend(layer: BSARecLayer, window: Tensor, items: list[int]) -> Tensor:
    """Return the attention of each position to the real ones up to it; to all alike where there is none."""
    attention, (n, width) = layer.attention, window.shape
    part = width // attention.n_heads
    query, key, value = (linear(window) for linear in (attention.query, attention.key, attention.value))
    found = torch.zeros_like(window)
    for i in range(n):
        for head in range(attention.n_heads):
            columns = slice(head * part, (head + 1) * part)
            seen = [j for j in range(i + 1) if items[j]] or list(range(n))
            scores = torch.stack([query[i, columns] @ key[j, columns] / math.sqrt(part) for j in seen])
            for weight, j in zip(scores.softmax(0), seen, strict=True):
                found[i, columns] += weight * value[j, columns]
    return attention.output(found)


def last_state(encoder: BSARecEncoder, history: list[int], frequencies: int) -> Tensor:
    """Return the state (d,) behind a history, whose window is padded at the left as in the published code."""
    n = encoder.max_length
    items = [0] * (n - len(history)) + history
    # the published positions count from the left of the window, ours from the newest item
    embedded = encoder.item_embedding(torch.tensor(items)) + encoder.position.flip(0)
    states = torch.stack([layer_norm(row, encoder.norm) for row in embedded])
    for layer in encoder.layers:
        assert isinstance(layer, BSARecLayer)
        low = low_frequencies(states, frequencies)
        filtered = low + layer.beta**2 * (states - low)
        attended = attend(layer, states, items)
        rows = []
        for x, one, other in zip(states, filtered, attended, strict=True):
            hidden = layer.alpha * layer_norm(x + one, layer.filter_norm)
            hidden = hidden + (1 - layer.alpha) * layer_norm(x + other, layer.attention_norm)
            inner = layer.widen(hidden)
            inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
            rows.append(layer_norm(hidden + layer.narrow(inner), layer.output_norm))
        states = torch.stack(rows)
    return states[-1]
