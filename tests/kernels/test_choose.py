"""Lists under rules against a choice over Python lists."""

import math

import numpy as np
import pytest

from recbole_hyper.kernels import LOWEST
from recbole_hyper.kernels.choose import choose_rows, fill_rows

N_ITEMS, M, K = 40, 15, 6


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return candidates (5, M), best first, their scores, two kinds of codes, limits and item vectors."""
    generator = np.random.default_rng(seed)
    items = np.stack([generator.permutation(np.arange(1, N_ITEMS))[:M] for _ in range(5)]).astype(np.int32)
    scores = -np.sort(-generator.integers(0, 9, (5, M)), axis=1).astype(np.float32)
    items[2, 4:], scores[2, 4:] = 0, LOWEST  # fewer candidates
    items[3], scores[3] = 0, LOWEST  # none
    codes = generator.integers(-1, 4, (2, N_ITEMS)).astype(np.int32)
    return items, scores, codes, np.array([2, 3], np.int32), generator.standard_normal((N_ITEMS, 3)).astype(np.float32)


def allowed(item: int, chosen: list[int], codes: np.ndarray, limits: np.ndarray) -> bool:
    return all(
        code[item] < 0 or sum(code[other] == code[item] for other in chosen) < limit
        for code, limit in zip(codes, limits, strict=True)
    )


def chosen_list(items: list[int], scores: list[float], codes, limits, diversity: float, similarity) -> list[int]:
    """Choose one after another the item of the largest value that no limit forbids."""
    candidates = {item: score for item, score in zip(items, scores, strict=True) if item}
    if not candidates:
        return [0] * K
    low, high = min(candidates.values()), max(candidates.values())
    chosen: list[int] = []

    def value(item: int) -> float:
        if not diversity:
            return candidates[item]
        relevance = (candidates[item] - low) / (high - low) if high > low else 0.0
        nearest = max((similarity(item, other) for other in chosen), default=0.0)
        return math.floor(((1 - diversity) * relevance - diversity * nearest) * 2.0**32 + 0.5)

    while len(chosen) < K:
        free = [item for item in candidates if item not in chosen and allowed(item, chosen, codes, limits)]
        if not free:
            break
        chosen.append(max(free, key=lambda item: (value(item), -item)))
    return chosen + [0] * (K - len(chosen))


@pytest.mark.parametrize("by", ["vectors", "kinds"])
@pytest.mark.parametrize("diversity", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(4))
def test_lists_are_those_of_the_loop(seed: int, diversity: float, by: str) -> None:
    items, scores, codes, limits, vectors = problem(seed)
    kinds = codes[1].copy()
    used = (vectors, kinds[:0]) if by == "vectors" else (vectors[:0], kinds)

    def similarity(one: int, other: int) -> float:
        if by == "kinds":
            return float(kinds[one] == kinds[other] >= 0)
        return math.fsum(float(a) * float(b) for a, b in zip(vectors[one], vectors[other], strict=True))

    top, best = choose_rows(items, scores, K, codes, limits, diversity, *used)
    for row, own, found, values in zip(items.tolist(), scores.tolist(), top.tolist(), best.tolist(), strict=True):
        assert found == chosen_list(row, own, codes, limits, diversity, similarity)
        assert values == [own[row.index(item)] if item else float(LOWEST) for item in found]


def test_equal_values_are_in_item_order() -> None:
    """With diversity 1/4, 3/4 * 2/3 equals 3/4 - 1/4; 2/3 in float32 would put the later item first."""
    items = np.array([[1, 2, 3, 4]], np.int32)
    scores = np.array([[3, 3, 2, 0]], np.float32)
    kinds = np.array([-1, 0, 0, 1, 2], np.int32)
    nothing = np.empty((0, 0), np.float32)
    top, _ = choose_rows(items, scores, 3, np.empty((0, 5), np.int32), np.empty(0, np.int32), 0.25, nothing, kinds)
    assert top.tolist() == [[1, 2, 3]]


def test_lists_are_filled_from_all_items() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 9, (3, N_ITEMS)).astype(np.float32)
    scores[:, 0] = scores[1, 5:] = LOWEST
    codes, limits = generator.integers(-1, 4, (2, N_ITEMS)).astype(np.int32), np.array([2, 3], np.int32)
    top, best = np.zeros((3, K), np.int32), np.full((3, K), LOWEST, np.float32)
    top[0, 0], best[0, 0] = 7, scores[0, 7]
    fill_rows(scores, top, best, codes, limits, 4)
    for row, found in zip(scores, top.tolist(), strict=True):
        expected = [item for item in found[:1] if item == 7]
        while len(expected) < K:
            free = [j for j in range(1, N_ITEMS) if row[j] > LOWEST and j not in expected]
            free = [j for j in free if allowed(j, expected, codes, limits)]
            if not free:
                break
            expected.append(max(free, key=lambda j: (row[j], -j)))
        assert found == expected + [0] * (K - len(expected))
    assert (top[1] > 0).sum() <= 4
