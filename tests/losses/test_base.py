"""What all losses have in common: draws, half precision, padding, and errors for bad settings."""

import math

import pytest
import torch

from recbole_hyper import registry
from recbole_hyper.losses.negatives import NegativeSampler
from tests.losses.sampled import GEOMETRIES, LOSSES, problem
from tests.raising import refused


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_loss_alone_with_a_user_sampler_and_under_autocast(name: str, geometry: str) -> None:
    """Draws by itself and from a sampler, seeded; half precision states; padding gets no gradient."""
    states, targets, head = problem(geometry, dtype=torch.float32)
    with torch.no_grad():
        head.weight[0] = 100.0
    options = {"bucket_size_y": 9} if name == "sce" else {"n_negatives": 4} if name != "rece" else {"rounds": 2}
    loss = registry.resolve("losses", name)(**options)
    offsets = torch.tensor([0, 6, 12])
    sampler = NegativeSampler(head.n_items, offsets, targets)
    bound = sampler.bind(torch.arange(2), torch.arange(12) // 6, targets)
    for negatives in (None, bound):
        values = []
        for _ in range(2):
            torch.manual_seed(3)
            values.append(loss(states, targets, head, negatives))
        assert values[0] == values[1]
        assert values[0].shape == ()
        gradient = torch.autograd.grad(values[0], [states, head.weight])
        assert all(torch.isfinite(g).all() for g in gradient)
        assert gradient[1][0].abs().max() == 0
        assert gradient[1][targets].abs().sum(1).min() > 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.manual_seed(3)
            half = loss(states.bfloat16(), targets, head, negatives)
        assert half.dtype == torch.float32
        assert math.isfinite(half)
    assert loss.uses_negatives == (name in ("bce", "bce_plus", "gbce", "sampled_ce"))


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        *((name, {"n_negatives": 0}, "n_negatives=0") for name in ("bce", "bce_plus", "gbce", "sampled_ce")),
        ("gbce", {"t": 1.2}, "gbce_t=1.2"),
        ("gbce", {"t": -0.1}, "gbce_t=-0.1"),
        ("sce", {"bucket_size_y": 0}, "sce_bucket_size_y=0"),
        ("sce", {"n_buckets": 2.5}, "sce_n_buckets=2.5"),
        ("sce", {"bucket_size_y": True}, "sce_bucket_size_y=True"),
        ("sce", {"alpha": 0.0}, "sce_alpha=0.0"),
        ("rece", {"n_buckets": 2.5}, "rece_n_buckets=2.5"),
        ("rece", {"rounds": 0}, "rece_rounds=0"),
        ("rece", {"n_extra_chunks": -1}, "rece_n_extra_chunks=-1"),
        ("rece", {"n_buckets": 5, "buckets_per_chunk": 2}, "rece_buckets_per_chunk=2"),
        ("ce", {"memory_budget": -1}, "loss_memory_budget=-1"),
        ("ce", {"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ("cse", {}, "'cse'"),
    ],
)
def test_bad_settings_fail_before_any_data(name: str, options: dict, key: str) -> None:
    with refused(ValueError, key):
        registry.resolve("losses", name)(**options)


def test_settings_that_the_catalogue_cannot_hold() -> None:
    states, targets, head = problem("euclidean")
    with refused(ValueError, "sce_bucket_size_y=30"):
        registry.resolve("losses", "sce")(bucket_size_y=30)(states, targets, head)
    with refused(ValueError, "distinct", "negatives"):
        registry.resolve("losses", "sampled_ce")(n_negatives=30)(states, targets, head)
