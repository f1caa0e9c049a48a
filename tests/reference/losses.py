"""Every loss as a plain loop over rows and items, in float64, straight from its formula.

All take ``scores`` (n, n_items), a float64 tensor through which autograd may run, and integers; padding is class 0
where it is named.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_sum_exp(values: list[Tensor]) -> Tensor:
    """log(sum(exp(v))), shifted by the largest."""
    top = max(float(v.detach()) for v in values)
    return top + torch.log(sum(torch.exp(v - top) for v in values))


def cross_entropy(scores: Tensor, targets: list[int], padding: int | None = None) -> Tensor:
    """-s_t + log sum_j exp(s_j) for each row, over all items but the padding."""
    losses = []
    for row, target in enumerate(targets):
        items = [scores[row, j] for j in range(scores.shape[1]) if j != padding]
        losses.append(log_sum_exp(items) - scores[row, target])
    return torch.stack(losses)


def smoothed_cross_entropy(scores: Tensor, targets: list[int], padding: int | None, smoothing: float) -> Tensor:
    """(1 - e) -log p_t + e mean_j -log p_j for each row, over all items but the padding."""
    losses = []
    for row, target in enumerate(targets):
        items = [scores[row, j] for j in range(scores.shape[1]) if j != padding]
        total = log_sum_exp(items)
        even = sum(total - item for item in items) / len(items)
        losses.append((1 - smoothing) * (total - scores[row, target]) + smoothing * even)
    return torch.stack(losses)


def minus_log_sigmoid(x: Tensor) -> Tensor:
    """-log(1 / (1 + exp(-x)))."""
    return torch.log1p(torch.exp(-x)) if float(x.detach()) > 0 else -x + torch.log1p(torch.exp(x))


def binary_cross_entropy(scores: Tensor, targets: list[int], negatives: list[list[int]]) -> Tensor:
    """-log sigma(s_t) - sum_j log(1 - sigma(s_j)) for each row."""
    losses = []
    for row, target in enumerate(targets):
        loss = minus_log_sigmoid(scores[row, target])
        for j in negatives[row]:
            loss = loss + minus_log_sigmoid(-scores[row, j])
        losses.append(loss)
    return torch.stack(losses)


def binary_cross_entropy_plus(scores: Tensor, targets: list[int], negatives: list[list[int]], beta: float) -> Tensor:
    """-(beta log sigma(s_t) + sum_j log(1 - sigma(s_j))) / (k + 1) for each row."""
    losses = []
    for row, target in enumerate(targets):
        loss = beta * minus_log_sigmoid(scores[row, target])
        for j in negatives[row]:
            loss = loss + minus_log_sigmoid(-scores[row, j])
        losses.append(loss / (len(negatives[row]) + 1))
    return torch.stack(losses)


def sampled_cross_entropy(scores: Tensor, targets: list[int], negatives: list[list[int]]) -> Tensor:
    """-log(e^s_t / (e^s_t + sum_j e^s_j)) for each row; its own target among its negatives does not count."""
    losses = []
    for row, target in enumerate(targets):
        items = [scores[row, target], *(scores[row, j] for j in negatives[row] if j != target)]
        losses.append(log_sum_exp(items) - scores[row, target])
    return torch.stack(losses)


def largest(values: list[float], k: int) -> list[int]:
    """Indices of the k largest values."""
    return sorted(range(len(values)), key=lambda i: -values[i])[:k]


def scalable_cross_entropy(
    scores: Tensor,
    targets: list[int],
    row_vectors: list[list[float]],
    item_vectors: list[list[float]],
    directions: list[list[float]],
    size_x: int,
    size_y: int,
    padding: int | None,
) -> tuple[Tensor, dict[str, float]]:
    """SCE: bucket by bucket, the largest loss of each row, the mean over rows in some bucket; and its statistics."""

    def dot(u: list[float], v: list[float]) -> float:
        return sum(a * b for a, b in zip(u, v, strict=True))

    by_row: dict[int, list[Tensor]] = {}
    found = pairs = 0
    for direction in directions:
        rows = largest([dot(direction, x) for x in row_vectors], min(size_x, len(row_vectors)))
        items = [j for j in largest([dot(direction, y) for y in item_vectors], len(item_vectors)) if j != padding]
        items = items[:size_y]
        for row in rows:
            target = targets[row]
            pairs += 1
            found += target in items
            terms = [scores[row, target], *(scores[row, j] for j in items if j != target)]
            by_row.setdefault(row, []).append(log_sum_exp(terms) - scores[row, target])
    losses = [max(values, key=lambda v: float(v.detach())) for values in by_row.values()]
    n = len(targets)
    return torch.stack(losses).mean(), {
        "selected": len(by_row) / n,
        "selected_once": sum(len(values) == 1 for values in by_row.values()) / n,
        "positives_found": found / pairs,
    }


def reduced_cross_entropy(
    scores: Tensor,
    targets: list[int],
    rounds: list[tuple[list[list[float]], list[list[float]]]],
    n_buckets: int,
    buckets_per_chunk: int,
    n_extra_chunks: int,
    padding: int | None,
) -> Tensor:
    """RECE: ``rounds`` holds the projections of rows and of items on that round's directions."""
    n_chunks = n_buckets // buckets_per_chunk
    candidates: list[list[int]] = [[] for _ in targets]
    for row_projections, item_projections in rounds:
        chunks = []
        for projections, left_out in ((row_projections, None), (item_projections, padding)):
            nearest = [max(range(n_buckets), key=lambda b, p=p: p[b]) for p in projections]
            order = [i for i in sorted(range(len(nearest)), key=lambda i: nearest[i]) if i != left_out]
            size = -(-len(order) // n_buckets) * n_buckets // n_chunks
            chunks.append([order[c * size : (c + 1) * size] for c in range(n_chunks)])
        for m, rows in enumerate(chunks[0]):
            for other in range(m - n_extra_chunks, m + n_extra_chunks + 1):
                if 0 <= other < n_chunks:
                    for row in rows:
                        candidates[row] += chunks[1][other]
    losses = []
    for row, target in enumerate(targets):
        terms = [scores[row, target]]
        for j in candidates[row]:
            if j != target:
                terms.append(scores[row, j] - torch.log(torch.tensor(float(candidates[row].count(j)))))
        losses.append(log_sum_exp(terms) - scores[row, target])
    return torch.stack(losses).mean()
