"""What the bucket search of sce and rece finds of the true top logits.

The search orders items by <A, search vector>. Without a link that is the order of the logits; behind asinh with a
scale per item it is not, so its recall is measured: the share of each state's true top 10 among the 256 best of 5,000
by the search (figures of these seeds in the comments).
"""

import pytest
import torch

from recbole_hyper import registry
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.sce import ScalableCrossEntropy

POINCARE = registry.resolve("geometry", "poincare")()


def problem(state_norm: float, item_norm: float, offset_size: float) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(100, 32, generator=generator)
    weight = torch.randn(5000, 32, generator=generator)
    spread = torch.exp(0.5 * torch.randn(5000, 1, generator=generator))
    offset = offset_size * torch.randn(5000, generator=generator)
    return (
        state_norm * states / states.norm(dim=1, keepdim=True),
        item_norm * spread * weight / weight.norm(dim=1, keepdim=True),
        offset,
    )


def recall(geometry: Geometry, items: torch.Tensor, states: torch.Tensor, logits: torch.Tensor, c: float) -> float:
    searched = geometry.search_states(states, theta=c, offset=True) @ items.t()
    top, found = logits.topk(10, dim=1).indices, searched.topk(256, dim=1).indices
    return float((top[:, :, None] == found[:, None, :]).any(2).float().mean())


def test_euclidean_search_is_exact() -> None:
    geometry = registry.resolve("geometry", "euclidean")()
    states, weight, offset = problem(3, 1, 0.5)
    logits = geometry.logits(states, weight, offset)
    assert recall(geometry, geometry.search_items(weight, offset), states, logits, 1.0) == 1


# measured: 1.00, 1.00, 1.00, .99, .89
@pytest.mark.parametrize(
    ("c", "sizes", "least"),
    [
        (0.015, (3, 0.3, 0.3), 0.99),
        (0.015, (8, 1, 0.5), 0.99),
        (0.1, (3, 0.3, 0.3), 0.99),
        (0.1, (8, 1, 0.5), 0.97),
        (1.0, (8, 1, 0.5), 0.8),
    ],
)
def test_poincare_search(c: float, sizes: tuple[float, float, float], least: float) -> None:
    """The published curvatures (.012 to .041) lose nothing; the bare lift, without the scale, would lose much."""
    states, weight, offset = problem(*sizes)
    logits = POINCARE.logits(states, weight, offset, theta=c)
    ours = recall(POINCARE, POINCARE.search_items(weight, offset, theta=c), states, logits, c)
    assert ours >= least
    bare = POINCARE.lift_items(weight, offset, theta=c).vectors(weight)
    assert recall(POINCARE, bare, states, logits, c) < ours


@pytest.mark.parametrize("name", ["euclidean", "poincare"])
def test_buckets_hold_the_best_of_their_direction(name: str) -> None:
    """A bucket along one state's own direction holds that state's top items: with mix, n_b = n, Omega = identity."""
    geometry = registry.resolve("geometry", name)()
    states, weight, offset = problem(3, 0.3, 0.3)
    head = OutputHead(geometry, torch.nn.Parameter(weight), offset=torch.nn.Parameter(offset), theta=0.015)
    original = torch.randn
    try:
        torch.randn = lambda *a, **k: torch.eye(100)  # type: ignore[assignment]
        _, items = ScalableCrossEntropy(n_buckets=100, bucket_size_x=5).find_buckets(states, head)
    finally:
        torch.randn = original  # type: ignore[assignment]
    logits = head.logits(states).detach()
    logits[:, 0] = float("-inf")
    top = logits.topk(10, dim=1).indices
    assert (top[:, :, None] == items[:, None, :]).any(2).float().mean() >= 0.99
    assert not (items == 0).any()
