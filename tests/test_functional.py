"""The public functions refuse what they cannot compute, with one clear message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from recbole_hyper import registry
from recbole_hyper.functional import (
    bce_plus,
    cross_entropy,
    gbce,
    poincare_logits,
    reduced_cross_entropy,
    sampled_cross_entropy,
    scalable_cross_entropy,
)
from recbole_hyper.geometry.head import OutputHead
from tests.raising import refused
from tests.reference import losses as reference


def arguments(**changes: object) -> dict:
    given = {
        "states": torch.zeros(3, 2),
        "targets": torch.tensor([1, 2, 3]),
        "weight": torch.zeros(5, 2),
        "offset": torch.zeros(5),
    }
    return given | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": torch.zeros(3, 4)}, r"must share d, got \(3, 4\) and \(5, 2\)"),
        ({"states": torch.zeros(2)}, "must share d"),
        ({"weight": torch.zeros(5, 2).int()}, "weight must be floating point, got torch.int32"),
        ({"offset": torch.zeros(4)}, r"offset must have shape \(5,\), got \(4,\)"),
        ({"targets": torch.tensor([1, 2])}, r"targets must have shape \(3,\)"),
        ({"targets": torch.tensor([1, 2, 3]).int()}, "targets must be int64"),
        ({"targets": torch.tensor([1, 2, 5])}, r"targets must be in 0..4, got values from 1 to 5"),
        ({"targets": torch.tensor([-1, 2, 3])}, "targets must be in"),
        ({"targets": torch.tensor([0, 2, 3]), "padding_idx": 0}, "a target equals padding_idx=0"),
        ({"padding_idx": 5}, "padding_idx must be"),
        ({"states": torch.zeros(0, 2), "targets": torch.zeros(0, dtype=torch.int64)}, "states and targets are empty"),
        ({"geometry": "poincaré"}, "Did you mean 'poincare'"),
        ({"geometry": "poincare", "curvature": 0.0}, "curvature must be"),
        ({"reduction": "average"}, "allowed: mean, sum, none"),
        ({"memory_budget": 1}, "under one row of logits"),
    ],
)
def test_bad_input(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cross_entropy(**arguments(**changes))


def test_an_unknown_option_is_refused() -> None:
    with refused(TypeError, "'curvatur'"):
        cross_entropy(**arguments(curvatur=0.5))


def test_one_class() -> None:
    loss = cross_entropy(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.randn(1, 2))
    assert loss == 0
    with refused(ValueError, "only class"):
        cross_entropy(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.randn(1, 2), padding_idx=0)


def test_bad_logits_input() -> None:
    with refused(ValueError, "offset", "shape"):
        poincare_logits(torch.zeros(3, 2), torch.zeros(5, 2), torch.zeros(3), 1.0)
    assert poincare_logits(torch.zeros(3, 2), torch.zeros(5, 2), None, 1.0).shape == (3, 5)


def batch(geometry: str) -> tuple[dict, OutputHead]:
    """Arguments of a functional loss, and the head that holds the same parameters."""
    generator = torch.Generator().manual_seed(2)
    weight = torch.nn.Parameter(torch.randn(20, 3, generator=generator, dtype=torch.float64))
    offset = torch.randn(20, generator=generator, dtype=torch.float64)
    given = {
        "states": torch.randn(8, 3, generator=generator, dtype=torch.float64),
        "targets": torch.randint(1, 20, (8,), generator=generator),
        "weight": weight,
        "offset": offset,
        "geometry": geometry,
        "curvature": 0.2,
        "padding_idx": 0,
    }
    head = OutputHead(registry.resolve("geometry", geometry)(), weight, offset=offset, theta=0.2)
    return given, head


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
def test_functions_are_the_losses(geometry: str) -> None:
    given, head = batch(geometry)
    pairs = [
        (bce_plus, {"n_negatives": 4}, "bce_plus", {"n_negatives": 4}),
        (gbce, {"n_negatives": 4, "t": 0.5}, "gbce", {"n_negatives": 4, "t": 0.5}),
        (sampled_cross_entropy, {"n_negatives": 4}, "sampled_ce", {"n_negatives": 4}),
        (scalable_cross_entropy, sizes := {"n_buckets": 2, "bucket_size_x": 3, "bucket_size_y": 4}, "sce", sizes),
        (reduced_cross_entropy, sizes := {"n_buckets": 5, "rounds": 2}, "rece", sizes),
    ]
    for function, options, name, settings in pairs:
        torch.manual_seed(1)
        found = function(**given, **options)
        torch.manual_seed(1)
        expected = registry.resolve("losses", name)(**settings)(given["states"], given["targets"], head)
        torch.testing.assert_close(found, expected)
        generator = torch.Generator().manual_seed(4)
        seeded = function(**given, **options, generator=generator)
        assert seeded == function(**given, **options, generator=generator.manual_seed(4))
        (gradient,) = torch.autograd.grad(seeded, given["weight"])
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() > 0


def test_statistics_on_request() -> None:
    given, _ = batch("euclidean")
    loss, statistics = scalable_cross_entropy(
        **given, n_buckets=1, bucket_size_x=8, bucket_size_y=19, return_stats=True
    )
    torch.testing.assert_close(loss, cross_entropy(**given))
    assert statistics == {"selected": 1, "selected_once": 1, "positives_found": 1}


def test_given_negatives() -> None:
    given, head = batch("poincare")
    table = (given["targets"][:, None] % 18) + torch.tensor([[1, 2]]) - (given["targets"][:, None] == 18).long()
    table = torch.where(table == given["targets"][:, None], 19, table).clamp(min=1)
    table[given["targets"] == 19] = 3
    scores = head.logits(given["states"])
    expected = reference.binary_cross_entropy_plus(scores, given["targets"].tolist(), table.tolist(), 1.0).mean()
    torch.testing.assert_close(bce_plus(**given, negatives=table), expected)
    sets = torch.tensor([[1, 2, 3], [4, 5, 6]])
    rows = torch.tensor([0, 1, 1, 0, 0, 1, 1, 1])
    expected = reference.sampled_cross_entropy(scores, given["targets"].tolist(), sets[rows].tolist()).mean()
    torch.testing.assert_close(sampled_cross_entropy(**given, negatives=sets, rows=rows), expected)


SETS = {"negatives": torch.tensor([[1, 2], [3, 4]])}


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (bce_plus, {"n_negatives": 0}, "n_negatives must be at least 1"),
        (bce_plus, {"negatives": torch.ones(3, 2, dtype=torch.int64)}, r"negatives must have shape \(8, k\)"),
        (gbce, {"t": 2.0}, "gbce_t must lie"),
        (gbce, {"negatives": torch.full((8, 1), 20)}, r"negatives must be in 0..19"),
        (gbce, {"negatives": torch.zeros(8, 1, dtype=torch.int64)}, "a negative equals padding_idx=0"),
        (sampled_cross_entropy, {"n_negatives": 20}, "from 19 items"),
        (sampled_cross_entropy, {"negatives": torch.ones(2, 2, dtype=torch.int64)}, "2 sets of negatives need rows"),
        (
            sampled_cross_entropy,
            SETS | {"rows": torch.zeros(7).long()},
            r"\(8,\), got torch.int64 of shape \(7,\)",
        ),
        (sampled_cross_entropy, SETS | {"rows": torch.zeros(8)}, "rows must be whole numbers.* got torch.float32"),
        (sampled_cross_entropy, SETS | {"rows": torch.zeros(8).bool()}, "rows must be whole numbers.* got torch.bool"),
        (sampled_cross_entropy, SETS | {"rows": torch.arange(8)}, r"rows must be in 0..1, .* values from 0 to 7"),
        (sampled_cross_entropy, SETS | {"rows": torch.arange(8) - 8}, r"rows must be in 0..1"),
        (
            scalable_cross_entropy,
            {"n_buckets": 1, "bucket_size_x": 1, "bucket_size_y": 20},
            "exceeds the 19 items; set it to 19 or less",
        ),
        (reduced_cross_entropy, {"n_buckets": 0}, "rece_n_buckets must be at least 1"),
    ],
)
def test_bad_settings(function, options: dict, message: str) -> None:
    given, _ = batch("euclidean")
    with pytest.raises(ValueError, match=message):
        function(**given, **options)


def test_rows_of_any_whole_number() -> None:
    given, _ = batch("euclidean")
    losses = [
        sampled_cross_entropy(**given, **SETS, rows=torch.tensor([0, 1, 1, 0, 0, 1, 1, 1], dtype=dtype))
        for dtype in (torch.int64, torch.int32)
    ]
    assert losses[0] == losses[1]


def test_a_negative_may_not_be_the_target() -> None:
    given, _ = batch("euclidean")
    with refused(ValueError, "equals", "target"):
        gbce(**given, negatives=given["targets"][:, None])


@pytest.mark.parametrize("function", [cross_entropy, gbce, bce_plus, sampled_cross_entropy])
def test_a_nan_in_the_padding_row_reaches_no_gradient(function: Callable[..., torch.Tensor]) -> None:
    weight = torch.randn(7, 4)
    weight[0] = torch.nan
    weight.requires_grad_()
    states = torch.randn(3, 4, requires_grad=True)
    options = {} if function is cross_entropy else {"n_negatives": 2}
    loss = function(states, torch.tensor([1, 2, 3]), weight, padding_idx=0, **options)
    for gradient in (loss, *torch.autograd.grad(loss, (states, weight))):
        assert torch.isfinite(gradient).all()
