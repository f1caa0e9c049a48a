"""The verdict on data whose answer is known, and each of its questions."""

from __future__ import annotations

import numpy as np
import pytest

from recbole_hyper.curvature.study import Measurement, measure_samples
from recbole_hyper.curvature.verdict import judge, plateau_ranks
from tests.reference.gromov import tree_distances


def hyperbolic_disk(n: int, radius: float, rng: np.random.Generator) -> np.ndarray:
    """Distances of points spread evenly over a disk of the hyperbolic plane."""
    r = np.arccosh(1 + rng.random(n) * (np.cosh(radius) - 1))
    angle = rng.random(n) * 2 * np.pi
    product = np.cosh(r)[:, None] * np.cosh(r) - np.sinh(r)[:, None] * np.sinh(r) * np.cos(angle[:, None] - angle)
    distances = np.arccosh(np.maximum(product, 1.0))
    np.fill_diagonal(distances, 0.0)
    return (distances + distances.T) / 2


def random_tree(n: int, rng: np.random.Generator) -> np.ndarray:
    return tree_distances([int(rng.integers(0, i + 1)) for i in range(n - 1)], list(rng.integers(1, 9, n - 1)))


def sphere(n: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(size=(n, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("kind", "expected", "because"),
    [
        ("tree", "compatible", None),
        ("hyperbolic disk", "compatible", None),
        ("gaussian, 128 dimensions", "not compatible", "change per doubling of the rank"),
        ("grid", "not compatible", "level"),
        ("sphere", "not compatible", "level"),
        ("flat square", "not compatible", "level"),
    ],
)
def test_verdict_where_the_answer_is_known(kind: str, expected: str, because: str | None) -> None:
    rng = np.random.default_rng(0)
    n = 400
    arguments = {
        "tree": lambda: {"distances": random_tree(n, rng)},
        "hyperbolic disk": lambda: {"distances": hyperbolic_disk(n, 8.0, rng)},
        "gaussian, 128 dimensions": lambda: {"vectors": rng.normal(size=(n, 128)), "ranks": [16, 32, 64, 128]},
        "grid": lambda: {"vectors": np.argwhere(np.ones((20, 20)))},
        "sphere": lambda: {"vectors": sphere(n, 3, rng)},
        "flat square": lambda: {"vectors": rng.random((n, 2))},
    }[kind]()
    verdict = judge(measure_samples(**arguments, sample_sizes=[100, 200, 400], repeats=12, seed=1))
    assert verdict.verdict == expected, verdict.explain()
    if because:
        assert any(question.name.startswith(because) and question.answer == "no" for question in verdict.questions)
    if kind == "tree":
        assert verdict.questions[0].value == 0.0


def made(level: dict[int, float], growth: float, repeats: int = 8, noise: float = 0.0) -> list[Measurement]:
    """Trials with the given level at each rank and growth over the last doubling of the sample."""
    rng = np.random.default_rng(0)
    return [
        Measurement(
            k, m, r, 0, 0.0, 1.0, value * (1 + (growth if m == 1000 else 0.0)) * (1 + noise * rng.normal()), 0.0
        )
        for k, value in level.items()
        for m in (500, 1000)
        for r in range(repeats)
    ]


def test_each_question_decides() -> None:
    flat = {64: 0.25, 128: 0.25, 256: 0.25, 512: 0.25}
    assert judge(made(flat, 0.0)).verdict == "compatible"
    assert judge(made(flat, 0.02)).verdict == "compatible"
    assert judge(made(flat, 0.10)).verdict == "not compatible"
    assert judge(made(dict.fromkeys(flat, 0.40), 0.0)).verdict == "not compatible"
    assert judge(made(flat | {512: 0.18}, 0.0)).verdict == "not compatible"
    assert judge(made(flat | {64: 0.40, 128: 0.33}, 0.0)).verdict == "compatible"  # low ranks are not asked
    assert judge(made(flat, 0.045, noise=0.05)).verdict == "undecided"
    assert judge(made(flat, 0.0, repeats=2)).verdict == "undecided"
    assert judge([t for t in made(flat, 0.0) if t.sample_size == 1000]).verdict == "undecided"
    assert judge(made({64: 0.25}, 0.0)).verdict == "undecided"
    assert "rank" in " ".join(judge(made({64: 0.25}, 0.0)).explain())
    assert plateau_ranks([32, 64, 128, 256]) == [128, 256]
    assert plateau_ranks([64, 32]) == [32, 64]
    with pytest.raises(ValueError, match="not measured"):
        judge(made(flat, 0.0)[1:])
    with pytest.raises(ValueError, match="no measurements"):
        judge([])
