"""Exact delta against plain loops, on metrics of every kind; bounds, invariances and faults."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.delta_study import four_point_delta
from recbole_hyper.curvature.gromov import EUCLIDEAN_BOUND, METRIC_BOUND, euclidean_distances, gromov_delta, search_base
from tests.raising import refused
from tests.reference.gromov import delta_fixed_base, delta_four_points, shortest_paths, tree_distances


def four_points(distances: np.ndarray, share: float = METRIC_BOUND) -> float:
    diameter = float(distances.max())
    return min(four_point_delta(distances, diameter, share), share * diameter)


def fast_fixed_base(distances: np.ndarray, base: int) -> float:
    """The reference with its innermost loops in numpy: the same operations in the same order, bit for bit."""
    product = 0.5 * ((distances[base][:, None] + distances[base][None, :]) - distances)
    return max((np.minimum(row[:, None], product).max(axis=0) - row).max() for row in product)


@st.composite
def integer_metrics(draw: st.DrawFn) -> np.ndarray:
    n = draw(st.integers(4, 9))
    weights = np.array(draw(st.lists(st.integers(1, 12), min_size=n * n, max_size=n * n))).reshape(n, n)
    return shortest_paths(np.minimum(weights, weights.T))


@st.composite
def trees(draw: st.DrawFn) -> np.ndarray:
    n = draw(st.integers(4, 30))
    parents = [draw(st.integers(0, i)) for i in range(n - 1)]
    lengths = [draw(st.integers(0, 1000)) for _ in range(n - 1)]
    lengths[0] = max(1, lengths[0])
    return tree_distances(parents, lengths)


@settings(max_examples=60, deadline=None)
@given(integer_metrics(), st.data())
def test_integer_metrics_equal_the_loops(distances: np.ndarray, data: st.DataObject) -> None:
    base = data.draw(st.integers(0, len(distances) - 1))
    fixed = gromov_delta(distances=distances, base=base)
    every = four_points(distances)
    assert fixed.delta == delta_fixed_base(distances, base)
    assert every == delta_four_points(distances)
    assert fixed.delta <= every <= 2 * fixed.delta
    assert 0 <= 2 * every / distances.max() <= 1


@settings(max_examples=60, deadline=None)
@given(trees())
def test_a_tree_gives_exactly_zero(distances: np.ndarray) -> None:
    for base in (0, len(distances) - 1):
        result = gromov_delta(distances=distances, base=base)
        assert (result.delta, result.delta_rel) == (0.0, 0.0)
    assert four_points(distances) == 0.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dimension", [1, 2, 3, 30])
def test_points_equal_the_loops(dimension: int, seed: int) -> None:
    rng = np.random.default_rng([dimension, seed])
    points = rng.standard_t(2, size=(int(rng.integers(4, 26)), dimension))
    distances = euclidean_distances(points)
    scale = distances.max()
    assert gromov_delta(points, base=2).delta == delta_fixed_base(distances, 2)
    found = four_points(distances, EUCLIDEAN_BOUND)
    assert found == pytest.approx(delta_four_points(distances), abs=1e-13 * scale)


@pytest.mark.parametrize(("n", "threads"), [(257, 3), (700, 1)])
@pytest.mark.parametrize("kind", ["heavy tail", "gaussian", "square", "clusters", "grid", "lattice path"])
def test_larger_fixed_base_is_equal_to_the_last_bit(kind: str, n: int, threads: int) -> None:
    rng = np.random.default_rng([n, len(kind)])
    points = {
        "heavy tail": lambda: rng.pareto(1.5, size=(n, 1)) * rng.normal(size=(n, 8)),
        "gaussian": lambda: rng.normal(size=(n, 50)),
        "square": lambda: rng.random((n, 2)),
        "clusters": lambda: rng.normal(size=(5, 4))[rng.integers(0, 5, n)] * 10 + rng.normal(size=(n, 4)),
        "grid": lambda: np.argwhere(np.ones((27, 27)))[rng.permutation(729)[:n]],
        "lattice path": lambda: np.arange(n)[:, None] * np.ones((1, 3)),
    }[kind]()
    distances = euclidean_distances(points)
    assert gromov_delta(points, threads=threads).delta == fast_fixed_base(distances, 0)


def test_all_bases_equal_the_largest_of_all_fixed_bases() -> None:
    rng = np.random.default_rng(3)
    for points in (rng.standard_t(2, size=(90, 6)), rng.normal(size=(90, 40)), rng.random((90, 2))):
        distances = euclidean_distances(points)
        expected = max(fast_fixed_base(distances, base) for base in range(len(points)))
        for share in (EUCLIDEAN_BOUND, METRIC_BOUND):
            assert four_points(distances, share) == pytest.approx(expected, rel=1e-12)


def test_known_values() -> None:
    square = euclidean_distances(np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]]))
    assert four_points(square, EUCLIDEAN_BOUND) == pytest.approx(EUCLIDEAN_BOUND * math.sqrt(2))
    cycle = np.array([[min((i - j) % 12, (j - i) % 12) for j in range(12)] for i in range(12)], dtype=float)
    assert four_points(cycle) == 3  # a cycle of 4k nodes has delta k
    assert four_points(1 - np.eye(40)) == 0  # a star with unit diameter


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(-12, 12))
def test_scaling_keeps_delta_rel(seed: int, exponent: float) -> None:
    points = np.random.default_rng(seed).normal(size=(30, 3))
    here, there = (gromov_delta(scale * points).delta_rel for scale in (1.0, 10.0**exponent))
    assert there == pytest.approx(here, rel=1e-9)
    assert 0 <= here <= 2 * EUCLIDEAN_BOUND


def test_a_known_lower_bound_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    distances = euclidean_distances(rng.standard_t(2, size=(300, 5)))
    others = np.arange(1, 300)
    part = search_base(distances, 0, others[:120], float(distances.max()))
    whole = search_base(distances, 0, others, float(distances.max()), at_least=part)
    assert whole == fast_fixed_base(distances, 0)


def test_euclidean_points_obey_the_bound_of_the_stopping_rule() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        a, b, c, d = rng.normal(size=(4, 3)) * rng.lognormal(size=(4, 1))
        splits = [(a, b, c, d), (a, c, b, d), (a, d, b, c)]
        pairs = [(np.linalg.norm(p - q), np.linalg.norm(r - s)) for p, q, r, s in splits]
        (x, y), *_ = sorted(pairs, key=sum, reverse=True)
        sums = sorted(map(sum, pairs))
        assert sums[0] ** 2 + sums[1] ** 2 >= (x + y) ** 2 * (1 - 1e-12)
        assert (sums[2] - sums[1]) / 2 <= min(min(x, y) / 2, EUCLIDEAN_BOUND * (x + y) / 2) * (1 + 1e-12)


def test_distances_of_near_points_are_accurate() -> None:
    rng = np.random.default_rng(2)
    points = np.repeat(rng.normal(size=(40, 20)), 2, axis=0) + 1e5
    points[1::2] += rng.normal(size=(40, 20)) * 1e-6
    found = euclidean_distances(points)
    exact = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=0)
    assert np.array_equal(found, found.T)
    larger = rng.normal(size=(2500, 3))
    np.testing.assert_allclose(
        euclidean_distances(larger)[::50], np.linalg.norm(larger[::50, None] - larger[None], axis=-1), rtol=1e-10
    )


POINTS = np.arange(20.0).reshape(10, 2)
ROUND = np.abs(np.subtract.outer(np.arange(10.0), np.arange(10.0)))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_of_a_matrix_of_distances_is_accepted(scale: float) -> None:
    rng = np.random.default_rng(4)
    exact = euclidean_distances(rng.normal(size=(40, 3))) * scale
    noise = rng.uniform(-1e-7, 1e-7, exact.shape) * scale
    rounded = exact + noise
    given = rounded.copy()
    found = gromov_delta(distances=rounded)
    assert found.delta == pytest.approx(gromov_delta(distances=exact).delta, abs=1e-6 * scale)
    assert np.array_equal(rounded, given)
    # near points whose distance came out below 0
    exact[0, 1] = exact[1, 0] = -1e-8 * scale
    exact[1, 2:] = exact[2:, 1] = exact[0, 2:]
    assert gromov_delta(distances=exact).delta >= 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"vectors": POINTS[:3]}, "got 3"),
        ({"vectors": np.ones((6, 3))}, "coincide"),
        ({"distances": np.zeros((5, 5))}, "coincide"),
        ({"vectors": np.where(POINTS == 5, np.nan, POINTS)}, "1 of 10 vectors"),
        ({"vectors": np.where(POINTS == 5, np.inf, POINTS)}, "1 of 10 vectors"),
        ({"vectors": np.arange(9.0)}, "(9,)"),
        ({"vectors": POINTS, "distances": np.zeros((10, 10))}, "not both"),
        ({}, "not both"),
        ({"vectors": POINTS, "base": 10}, "got 10"),
        ({"vectors": POINTS, "base": True}, "got True"),
        ({"distances": np.ones((4, 5))}, "(4, 5)"),
        ({"distances": np.ones((4, 4))}, "diagonal"),
        ({"distances": ROUND + 1e-5 * 9 * np.eye(10)}, "diagonal"),
        ({"distances": ROUND + 1e-4 * np.diag([1.0] * 9, 1)}, "symmetric"),
        ({"distances": ROUND - np.kron(np.eye(2)[::-1], np.ones((5, 5))) * 6}, "-5"),
        ({"distances": np.full((4, 4), np.nan)}, "NaN"),
        ({"distances": np.triu(np.ones((4, 4)), 1)}, "symmetric"),
        ({"distances": (np.abs(np.subtract.outer(range(6), range(6))) ** 2.0)}, "triangle inequality"),
    ],
)
def test_faults_say_what_is_wrong(arguments: dict, named: str) -> None:
    with refused(ValueError, named):
        gromov_delta(**arguments)
