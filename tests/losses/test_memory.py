"""What memory_bytes says before a run is what the allocator records in it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recbole_hyper import registry
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.base import Loss, Problem
from recbole_hyper.matmul import product_library
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


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("n", "n_items"),
    [(400, 3000), pytest.param(3200, 3000, marks=pytest.mark.slow), pytest.param(800, 100_000, marks=pytest.mark.slow)],
)
def test_estimate_is_near_the_measurement(name: str, geometry: str, n: int, n_items: int) -> None:
    loss = registry.resolve("losses", name)(**SETTINGS[name])
    d = 64
    states = torch.randn(n, d, requires_grad=True)
    weight = nn.Parameter(0.1 * torch.randn(n_items, d))
    head = OutputHead(registry.resolve("geometry", geometry)(), weight, offset=geometry == "poincare", curvature=0.02)
    targets = torch.randint(1, n_items, (n,))
    leaves = [t for t in (states, weight, head.offset) if t is not None]
    negatives = SequenceSets(n, n_items) if name == "sampled_ce" else None
    product_library()  # its trial of this processor, once a process, is no part of the loss
    measured = peak_bytes(
        lambda: torch.autograd.grad(loss(states, targets, head, negatives), leaves), 4 * n_items * d, 4 * n_items
    )
    estimate = loss.memory_bytes(Problem(n, d, n_items, linked=head.geometry.has_link, lifts=head.geometry.lifts))
    # counted copies, not fitted ones: rather too much than too little
    assert 0.8 <= estimate / measured <= 1.6, (estimate, measured)


def test_a_link_and_float64_need_more() -> None:
    for name, options in SETTINGS.items():
        loss = registry.resolve("losses", name)(**options)
        flat, linked = (loss.memory_bytes(Problem(800, 64, 3000, linked=link)) for link in (False, True))
        assert flat < linked < loss.memory_bytes(Problem(800, 64, 3000, itemsize=8)) <= 2.5 * linked


def test_only_rece_grows_with_the_catalogue() -> None:
    """The exact cross-entropy keeps tiles while they are small, and streams a large catalogue twice."""
    for name, options in SETTINGS.items():
        loss = registry.resolve("losses", name)(**options)
        growth = loss.memory_bytes(Problem(800, 64, 1_000_000)) / loss.memory_bytes(Problem(800, 64, 10_000))
        assert (growth < 1.3) == (name != "rece"), (name, growth)
    exact, scalable = (registry.resolve("losses", name)(**SETTINGS[name]) for name in ("ce", "sce"))
    large = Problem(12_800, 64, 1_000_000)
    assert exact.memory_bytes(large) < 2 * scalable.memory_bytes(large)


def test_a_loss_that_does_not_say_counts_as_its_states_gradient() -> None:
    class Silent(Loss):
        def forward(self, states, targets, head, negatives=None) -> torch.Tensor:
            return states.sum()

    assert Silent().memory_bytes(Problem(10, 8, 100)) == 10 * 8 * 4
