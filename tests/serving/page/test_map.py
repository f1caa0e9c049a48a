"""The map of items: distances on the disk, principal components of flat vectors, a sample of a large catalogue."""

from typing import Any

import numpy as np
import pytest

from recbole_hyper.serving.page import map as page_map
from recbole_hyper.serving.page.map import item_map


def drawn(n: int, width: int, curvature: float | None) -> tuple[np.ndarray, dict[str, Any]]:
    generator = np.random.default_rng(7)
    vectors = (0.3 * generator.normal(size=(n + 1, width))).astype(np.float32)
    tokens = np.array(["", *(f"i{item}" for item in range(1, n + 1))])
    return vectors, item_map(vectors, generator.permutation(n + 1), tokens, curvature)


def test_a_disk_keeps_the_distances_from_the_origin() -> None:
    vectors, places = drawn(20, 5, 0.7)
    radius = np.hypot(places["x"], places["y"])
    lengths = np.sqrt((vectors[1:].astype(float) ** 2).sum(axis=1))
    np.testing.assert_allclose(radius, np.tanh(np.sqrt(0.7) * lengths), atol=2e-5)
    np.testing.assert_allclose(places["norm"], lengths, atol=2e-5)
    assert places["disk"]
    assert places["items"] == [f"i{item}" for item in range(1, 21)]


def test_flat_vectors_of_two_dimensions_keep_their_distances() -> None:
    """Two principal components of two dimensions are a rotation, here scaled to the square of the page."""
    vectors, places = drawn(15, 2, None)
    points = np.stack([places["x"], places["y"]], axis=1)
    apart, wanted = (np.linalg.norm(one[:, None] - one[None], axis=2) for one in (points, vectors[1:].astype(float)))
    np.testing.assert_allclose(apart / apart.max(), wanted / wanted.max(), atol=1e-4)
    assert np.abs(points).max() == pytest.approx(1.0)
    assert places["share"] == pytest.approx(1.0)


def test_a_large_catalogue_shows_its_most_popular_items_and_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_map, "_POINTS", 10)
    n = 50
    tokens = np.array(["", *(f"i{item}" for item in range(1, n + 1))])
    places = item_map(np.random.default_rng(0).normal(size=(n + 1, 3)), np.arange(n + 1), tokens, None)
    assert len(places["items"]) == len(set(places["items"])) == 10
    assert {f"i{item}" for item in range(46, 51)} <= set(places["items"])
    assert places["count"] == [int(item[1:]) for item in places["items"]]


@pytest.mark.parametrize("vectors", [None, np.zeros((2, 4), np.float32), np.zeros((9, 1), np.float32)])
def test_without_vectors_there_is_no_map(vectors: np.ndarray | None) -> None:
    assert item_map(vectors, np.zeros(9, np.int64), np.array(["", "i1"]), None) == {}
