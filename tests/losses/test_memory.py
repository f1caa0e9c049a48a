"""What memory_bytes says before a run is what the allocator records in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recbole_hyper import components
from recbole_hyper.geometry.head import OutputHead
from tests.reference.allocation import peak_bytes

SETTINGS = {
    "ce": {},
    "bce": {},
    "bce_plus": {"n_negatives": 256},
    "gbce": {"n_negatives": 256},
    "sampled_ce": {"n_negatives": 256},
    "sce": {"bucket_size_y": 256},
    "rece": {},
}
LENGTH = 200


class SequenceSets:
    """Random negatives, for sampled_ce one set per sequence of 200 rows."""

    def __init__(self, n: int, n_items: int) -> None:
        self.n, self.n_items = n, n_items

    def per_position(self, k: int, **_: bool) -> torch.Tensor:
        return torch.randint(1, self.n_items, (self.n, k))

    def per_sequence(self, k: int, **_: bool) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.arange(self.n) // LENGTH
        return torch.randint(1, self.n_items, (int(rows[-1]) + 1, k)), rows


def test_the_record_of_the_allocator() -> None:
    def call() -> torch.Tensor:
        first = torch.zeros(1000)
        second = first + 1
        del first
        return second.sum() + torch.ones(500).sum()

    assert 8000 <= peak_bytes(call) <= 8100
    assert 4000 <= peak_bytes(call, 4000) <= 4100


@pytest.mark.parametrize("geometry", ["euclidean", "poincare"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("n", "n_items"),
    [(400, 3000), pytest.param(3200, 3000, marks=pytest.mark.slow), pytest.param(800, 100_000, marks=pytest.mark.slow)],
)
def test_estimate_is_within_a_quarter(name: str, geometry: str, n: int, n_items: int) -> None:
    loss = components.resolve("losses", name)(**SETTINGS[name])
    d = 64
    states = torch.randn(n, d, requires_grad=True)
    weight = nn.Parameter(0.1 * torch.randn(n_items, d))
    head = OutputHead(components.resolve("geometry", geometry)(), weight, offset=geometry == "poincare", curvature=0.02)
    targets = torch.randint(1, n_items, (n,))
    leaves = [t for t in (states, weight, head.offset) if t is not None]
    negatives = SequenceSets(n, n_items) if name == "sampled_ce" else None
    measured = peak_bytes(
        lambda: torch.autograd.grad(loss(states, targets, head, negatives), leaves), 4 * n_items * d, 4 * n_items
    )
    estimate = loss.memory_bytes(n, d, n_items, geometry=head.geometry)
    assert 0.75 <= estimate / measured <= 1.25, (estimate, measured)


def test_without_a_geometry_the_estimate_is_the_larger() -> None:
    for name, options in SETTINGS.items():
        loss = components.resolve("losses", name)(**options)
        sizes = [
            loss.memory_bytes(800, 64, 3000, geometry=components.resolve("geometry", geometry)())
            for geometry in ("euclidean", "poincare")
        ]
        assert loss.memory_bytes(800, 64, 3000) == max(sizes)
        double = loss.memory_bytes(800, 64, 3000, dtype=torch.float64)
        assert max(sizes) < double <= 2.5 * max(sizes)


def test_only_rece_grows_with_the_catalogue() -> None:
    """The exact cross-entropy keeps tiles while they are small, and sweeps a large catalogue twice."""
    for name, options in SETTINGS.items():
        loss = components.resolve("losses", name)(**options)
        growth = loss.memory_bytes(800, 64, 1_000_000) / loss.memory_bytes(800, 64, 10_000)
        assert (growth < 1.3) == (name != "rece"), (name, growth)
    exact, scalable = (components.resolve("losses", name)(**SETTINGS[name]) for name in ("ce", "sce"))
    assert exact.memory_bytes(12_800, 64, 1_000_000) < 2 * scalable.memory_bytes(12_800, 64, 1_000_000)
