"""Triton's kernels of the exact cross-entropy, by Triton's interpreter on the CPU (see conftest), against float64."""

import sys

import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses import _stream
from recbole_hyper.losses.ce import exact_cross_entropy
from tests.losses.test_ce import full, gradients, problem

pytest.importorskip("triton", reason="triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def geometry_of(name: str) -> Geometry:
    return registry.resolve("geometry", name)()


def on_device(*given: float, **options: object) -> list[Tensor | None]:
    found = problem(*given, dtype=torch.float32, **options)  # type: ignore[arg-type]
    return [None if t is None else t.detach().to(DEVICE).requires_grad_(t.is_floating_point()) for t in found]


@pytest.mark.parametrize("padding", [None, 0, 70])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
def test_equals_full_logits_in_float64(geometry: str, offset: bool, padding: int | None) -> None:
    """Two blocks of rows and three of items, both with a rest."""
    states, targets, weight, offsets, curvature = on_device(70, 150, 11, padding, offset=offset)
    leaves = (states, weight, offsets, *((curvature,) if geometry == "poincare" else ()))
    loss = exact_cross_entropy(
        states,
        targets,
        weight,
        offsets,
        geometry_of(geometry),
        theta=curvature,
        padding_idx=padding,
        triton_kernel=True,
    )
    double = [None if t is None else t.detach().double().requires_grad_() for t in leaves]
    own = double[3] if geometry == "poincare" else 1.0
    expected = full(double[0], targets, double[1], double[2], own, geometry, padding)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(gradients(loss, leaves), gradients(expected, double), strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_reductions_and_factored_lifts(reduction: str) -> None:
    """States far out, whose exponents are taken out of the lifts, as always on a GPU."""
    states, targets, weight, offset, _ = on_device(9, 100, 8, None, size=40.0)
    geometry = geometry_of("poincare")
    assert geometry.factored(states, offset, 1.0)
    ours, plain = (
        exact_cross_entropy(states, targets, weight, offset, geometry, reduction=reduction, triton_kernel=kernel).sum()
        for kernel in (True, False)
    )
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
    leaves = (states, weight, offset)
    for one, other in zip(gradients(ours, leaves), gradients(plain, leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_no_tile_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("tiles were cut")

    monkeypatch.setattr(_stream._chunks, "cut", refused)
    states, targets, weight, _, _ = on_device(9, 100, 8, None)
    exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)


@pytest.mark.parametrize(
    ("dtype", "d", "reason"), [(torch.float64, 8, "compute in float32"), (torch.float32, 300, "at most 256 numbers")]
)
def test_what_the_kernels_do_not_serve_is_refused(dtype: torch.dtype, d: int, reason: str) -> None:
    states, targets, weight, _, _ = (t.to(dtype) if t.is_floating_point() else t for t in on_device(4, 30, d, None))
    with pytest.raises(ValueError, match=f"triton_kernel=True: .*{reason}.*; leave it out"):
        exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)


def test_without_a_gpu_or_triton_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    states, targets, weight, _, _ = problem(4, 30, 8, None, dtype=torch.float32)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="it needs a CUDA or ROCm device, and this is cpu; leave it out"):
        exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ValueError, match="the package triton is not installed; leave it out"):
        exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)
