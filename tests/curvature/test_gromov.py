"""Exact delta against plain loops, on metrics of every kind; bounds, invariances and faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.curvature.gromov import EUCLIDEAN_BOUND, euclidean_distances, gromov_delta, search_base
from tests.reference.gromov import delta_fixed_base, delta_four_points, shortest_paths, tree_distances


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
    every = gromov_delta(distances=distances, base="all")
    assert fixed.delta == delta_fixed_base(distances, base)
    assert every.delta == delta_four_points(distances)
    assert fixed.delta <= every.delta <= 2 * fixed.delta
    assert 0 <= every.delta_rel <= 1


@settings(max_examples=30, deadline=None)
@given(integer_metrics() | trees(), st.integers(1, 5))
def test_few_points_without_a_kernel_give_the_same_bits(distances: np.ndarray, dimension: int) -> None:
    points = np.random.default_rng(dimension).normal(size=(len(distances), dimension))
    for what in ({"distances": distances}, {"vectors": points}):
        for base in (0, "all"):
            plain = gromov_delta(**what, base=base)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("recbole_hyper.curvature.gromov.KERNEL_FROM", 0)
                assert gromov_delta(**what, base=base).delta == plain.delta


@settings(max_examples=60, deadline=None)
@given(trees())
def test_a_tree_gives_exactly_zero(distances: np.ndarray) -> None:
    for base in (0, len(distances) - 1, "all"):
        result = gromov_delta(distances=distances, base=base)
        assert (result.delta, result.delta_rel) == (0.0, 0.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dimension", [1, 2, 3, 30])
def test_points_equal_the_loops(dimension: int, seed: int) -> None:
    rng = np.random.default_rng([dimension, seed])
    points = rng.standard_t(2, size=(int(rng.integers(4, 26)), dimension))
    distances = euclidean_distances(points)
    scale = distances.max()
    assert gromov_delta(points, base=2).delta == delta_fixed_base(distances, 2)
    assert gromov_delta(points, base="all").delta == pytest.approx(delta_four_points(distances), abs=1e-13 * scale)


@pytest.mark.parametrize("n", [257, 700])
@pytest.mark.parametrize("kind", ["heavy tail", "gaussian", "square", "clusters", "grid", "lattice path"])
@pytest.mark.parametrize("threads", [1, 3])
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


@pytest.mark.parametrize("threads", [1, 3])
def test_all_bases_equal_the_largest_of_all_fixed_bases(threads: int) -> None:
    rng = np.random.default_rng(3)
    for points in (rng.standard_t(2, size=(150, 6)), rng.normal(size=(150, 40)), rng.random((150, 2))):
        distances = euclidean_distances(points)
        expected = max(fast_fixed_base(distances, base) for base in range(len(points)))
        for result in (
            gromov_delta(points, base="all", threads=threads),
            gromov_delta(distances=distances, base="all", threads=threads),
        ):
            assert result.delta == pytest.approx(expected, rel=1e-12)


def test_known_values() -> None:
    square = gromov_delta(np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]]), base="all")
    assert square.delta == pytest.approx(EUCLIDEAN_BOUND * math.sqrt(2))
    cycle = np.array([[min((i - j) % 12, (j - i) % 12) for j in range(12)] for i in range(12)])
    assert gromov_delta(distances=cycle, base="all").delta == 3  # a cycle of 4k nodes has delta k
    assert gromov_delta(distances=cycle, base="all").delta_rel == 1
    assert gromov_delta(distances=1 - np.eye(40), base="all").delta == 0  # a star with unit diameter


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(-12, 12))
def test_scaling_keeps_delta_rel(seed: int, exponent: float) -> None:
    points = np.random.default_rng(seed).normal(size=(30, 3))
    for base in (0, "all"):
        here = gromov_delta(points, base=base).delta_rel
        there = gromov_delta(points * 10.0**exponent, base=base).delta_rel
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


@pytest.mark.parametrize("base", [0, "all"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_of_a_matrix_of_distances_is_accepted(scale: float, base: int | str) -> None:
    rng = np.random.default_rng(4)
    exact = euclidean_distances(rng.normal(size=(40, 3))) * scale
    noise = rng.uniform(-1e-7, 1e-7, exact.shape) * scale
    rounded = exact + noise
    given = rounded.copy()
    found = gromov_delta(distances=rounded, base=base)
    assert found.delta == pytest.approx(gromov_delta(distances=exact, base=base).delta, abs=1e-6 * scale)
    assert np.array_equal(rounded, given)
    # near points whose distance came out below 0
    exact[0, 1] = exact[1, 0] = -1e-8 * scale
    exact[1, 2:] = exact[2:, 1] = exact[0, 2:]
    assert gromov_delta(distances=exact, base=base).delta >= 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectors": POINTS[:3]}, "at least 4 points, got 3"),
        ({"vectors": np.ones((6, 3))}, "all 6 points coincide"),
        ({"distances": np.zeros((5, 5))}, "all 5 points coincide"),
        ({"vectors": np.where(POINTS == 5, np.nan, POINTS)}, "1 of 10 vectors contain NaN"),
        ({"vectors": np.where(POINTS == 5, np.inf, POINTS)}, "1 of 10 vectors contain NaN"),
        ({"vectors": np.arange(9.0)}, "matrix of n points"),
        ({"vectors": POINTS, "distances": np.zeros((10, 10))}, "not both"),
        ({}, "not both"),
        ({"vectors": POINTS, "base": 10}, "0 to 9; got 10"),
        ({"vectors": POINTS, "base": "every"}, "got 'every'"),
        ({"vectors": POINTS, "base": True}, "got True"),
        ({"distances": np.ones((4, 5))}, "square matrix"),
        ({"distances": np.ones((4, 4))}, "to itself must be 0, it is up to 1; rounding of 1e-06 of the largest"),
        ({"distances": ROUND + 1e-5 * 9 * np.eye(10)}, "to itself must be 0, it is up to 9e-05; rounding of 1e-06"),
        (
            {"distances": ROUND + 1e-4 * np.diag([1.0] * 9, 1)},
            "symmetric, .* differ by up to 0.0001; rounding",
        ),
        ({"distances": ROUND - np.kron(np.eye(2)[::-1], np.ones((5, 5))) * 6}, "not be negative, the smallest is -5"),
        ({"distances": np.full((4, 4), np.nan)}, "NaN"),
        ({"distances": np.triu(np.ones((4, 4)), 1)}, "symmetric"),
        ({"distances": (np.abs(np.subtract.outer(range(6), range(6))) ** 2.0)}, "triangle inequality fails"),
    ],
)
def test_faults_say_what_is_wrong(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gromov_delta(**arguments)
