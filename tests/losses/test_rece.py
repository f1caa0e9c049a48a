"""RECE against loops over rounds, rows and items: value and gradients."""

import pytest
import torch

from recbole_hyper import registry
from recbole_hyper.losses.rece import ReducedCrossEntropy
from tests.losses.sampled import GEOMETRIES, assert_same, problem, search_vectors
from tests.reference import losses as reference


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    ("n_buckets", "per_chunk", "extra", "rounds"),
    [(4, 1, 1, 3), (6, 2, 0, 2), (20, 1, 2, 4), (1, 1, 0, 2), (3, 1, 9, 1)],
)
def test_rece(geometry: str, n_buckets: int, per_chunk: int, extra: int, rounds: int) -> None:
    states, targets, head = problem(geometry)
    rows, items = search_vectors(states, head)
    generator = torch.Generator().manual_seed(3)
    projections = []
    for _ in range(rounds):
        directions = torch.randn(n_buckets, rows.shape[1], generator=generator, dtype=torch.float64)
        projections.append(((rows @ directions.t()).tolist(), (items @ directions.t()).tolist()))
    expected = reference.reduced_cross_entropy(
        head.logits(states), targets.tolist(), projections, n_buckets, per_chunk, extra, 0
    )
    torch.manual_seed(3)
    options = {"n_buckets": n_buckets, "buckets_per_chunk": per_chunk, "n_extra_chunks": extra, "rounds": rounds}
    loss = ReducedCrossEntropy(**options)
    assert_same(loss(states, targets, head), expected, states, head, 1e-6)
    if n_buckets == 1:
        exact = registry.resolve("losses", "ce")()(states, targets, head)
        assert_same(loss(states, targets, head), exact, states, head, 1e-6)
