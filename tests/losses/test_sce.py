"""SCE against loops over buckets, rows and items: value, gradients and statistics."""

import pytest
import torch

from recbole_hyper import registry
from recbole_hyper.losses import _pairs, sce
from tests.losses.sampled import GEOMETRIES, assert_same, problem, search_vectors
from tests.reference import losses as reference


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("mix", [True, False])
@pytest.mark.parametrize(
    ("n_buckets", "size_x", "size_y"),
    # few buckets: states in none; many: states in several; more rows than there are; all items
    [(1, 2, 3), (9, 6, 11), (4, 50, 8), (3, 5, 29)],
)
def test_sce(geometry, mix, n_buckets, size_x, size_y, monkeypatch) -> None:
    monkeypatch.setattr(_pairs, "SEARCH_BLOCK", 7)
    states, targets, head = problem(geometry)
    rows, items = search_vectors(states, head)
    generator = torch.Generator().manual_seed(5)
    columns = len(states) if mix else rows.shape[1]
    directions = torch.randn(n_buckets, columns, generator=generator, dtype=torch.float64)
    directions = directions @ rows if mix else directions
    loss = sce.ScalableCrossEntropy(n_buckets=n_buckets, bucket_size_x=size_x, bucket_size_y=size_y, mix=mix)
    torch.manual_seed(5)
    found, statistics = loss(states, targets, head), loss.statistics
    expected, shares = reference.scalable_cross_entropy(
        head.logits(states), targets.tolist(), rows.tolist(), items.tolist(), directions.tolist(), size_x, size_y, 0
    )
    assert statistics == pytest.approx(shares, abs=1e-6)
    if (n_buckets, size_x) == (1, 2):
        assert statistics["selected"] == pytest.approx(2 / 12)
    if n_buckets == 9:
        assert statistics["selected_once"] < statistics["selected"]
        assert 0 < statistics["positives_found"] < 1
    assert_same(found, expected, states, head)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_sce_in_one_bucket_of_everything_is_ce(geometry: str) -> None:
    states, targets, head = problem(geometry)
    loss = registry.resolve("losses", "sce")(n_buckets=1, bucket_size_x=12, bucket_size_y=head.n_items - 1)
    exact = registry.resolve("losses", "ce")()(states, targets, head)
    assert_same(loss(states, targets, head), exact, states, head)
    assert loss.statistics == {"selected": 1, "selected_once": 1, "positives_found": 1}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("size_x", [1, 12])
@pytest.mark.parametrize("where", ["state", "item"])
def test_sce_does_not_hide_a_nan(geometry: str, size_x: int, where: str) -> None:
    """A NaN state, in a bucket or in none, and a NaN item among the candidates make the loss NaN."""
    states, targets, head = problem(geometry)
    with torch.no_grad():
        (states[7] if where == "state" else head.weight[int(targets[7])]).fill_(float("nan"))
    loss = sce.ScalableCrossEntropy(n_buckets=2, bucket_size_x=size_x, bucket_size_y=head.n_items - 1)
    assert torch.isnan(loss(states, targets, head))


def test_sce_sizes_follow_the_paper() -> None:
    loss = sce.ScalableCrossEntropy(alpha=2.0, beta=4.0)
    n_buckets, size = loss.sizes(10_000)
    assert (n_buckets, size) == (100, 400)
    assert size / n_buckets == 4
    assert sce.ScalableCrossEntropy(n_buckets=7, bucket_size_x=500).sizes(100) == (7, 100)


def test_sce_scaling_the_directions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    states, targets, head = problem("poincare")
    losses = []
    for factor in (1.0, 1000.0):
        original = torch.randn
        monkeypatch.setattr(torch, "randn", lambda *a, f=factor, o=original, **k: f * o(*a, **k))
        torch.manual_seed(1)
        losses.append(sce.ScalableCrossEntropy(n_buckets=3, bucket_size_x=4, bucket_size_y=5)(states, targets, head))
        monkeypatch.undo()
    torch.testing.assert_close(losses[0], losses[1])
