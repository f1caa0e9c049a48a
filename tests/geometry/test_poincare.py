"""The hyperbolic head against the published formula, and at the ends of its range."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recbole_hyper.functional import poincare_logits
from recbole_hyper.geometry.poincare import Poincare
from tests.raising import refused
from tests.reference.poincare import exact_logit, gyrovector_logits

GEOMETRY = Poincare()


def inputs(seed: int, n: int, m: int, d: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype),
        torch.randn(m, d, generator=generator, dtype=torch.float64).to(dtype),
        torch.randn(m, generator=generator, dtype=torch.float64).to(dtype),
    )


@pytest.mark.parametrize("curvature", [1e-4, 0.015, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_equals_the_gyrovector_formula(curvature: float, d: int) -> None:
    states, weight, offset = inputs(3, 5, 6, d)
    states = states / states.norm(dim=1, keepdim=True) * torch.rand(5, 1, dtype=torch.float64) / curvature**0.5
    offset = offset / curvature**0.5 * 0.5
    expected = gyrovector_logits(states, weight, offset, curvature)
    torch.testing.assert_close(poincare_logits(states, weight, offset, curvature), expected, rtol=1e-11, atol=1e-11)


def assert_within_rounding(dtype: torch.dtype, states: Tensor, weight: Tensor, offset: Tensor, c: float) -> None:
    """Compare with 400 digits; the argument u of asinh may be off by rounding of its two terms, no more."""
    found = poincare_logits(states.to(dtype), weight.to(dtype), offset.to(dtype), c)
    states, weight, offset = states.to(dtype).double(), weight.to(dtype).double(), offset.to(dtype).double()
    eps = torch.finfo(dtype).eps
    for i, state in enumerate(states):
        for j, (z, r) in enumerate(zip(weight, offset, strict=True)):
            with mpmath.workdps(400):
                exact = exact_logit(state.tolist(), z.tolist(), float(r), c)
                scale = 2 * mpmath.sqrt(mpmath.fsum(a * a for a in map(mpmath.mpf, z.tolist()))) / mpmath.sqrt(c)
                s = mpmath.sqrt(mpmath.mpf(c)) * mpmath.sqrt(mpmath.fsum(mpmath.mpf(a) ** 2 for a in state.tolist()))
                b = 2 * mpmath.sqrt(mpmath.mpf(c)) * mpmath.mpf(float(r))
                # exp(2s) of a rounded 2s is off by 2s eps
                slack = eps * (20 + 2 * s + abs(b)) * mpmath.cosh(2 * s) * mpmath.cosh(b)
                u = mpmath.sinh(exact / scale)
                low, high = mpmath.asinh(u - slack) * scale, mpmath.asinh(u + slack) * scale
                room = 8 * eps * abs(exact)
                assert low - room <= mpmath.mpf(float(found[i, j])) <= high + room, (i, j, float(found[i, j]), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("c", [1.0, 1e3, 1e4, 1e6])
def test_far_states_parallel_to_z_are_on_their_side_of_the_hyperplane(c: float, d: int, dtype: torch.dtype) -> None:
    """There the score is 4 |z| (|F| - r), of which no digit is left in the product."""
    z = torch.full((1, d), d**-0.5, dtype=dtype)
    far, offset = torch.tensor([[0.3], [0.5], [0.8]], dtype=dtype), torch.tensor([0.5, -0.3], dtype=dtype)
    expected = (4 * (far - offset)).double()
    found = poincare_logits(far * z, z.expand(2, d), offset, c)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3 if c < 2 else 1e-5)
    alone = Poincare().pair_logits(far * z, z.expand(3, 2, d), offset.expand(3, 2), theta=c)
    torch.testing.assert_close(alone.double(), expected, rtol=1e-4, atol=1e-3 if c < 2 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [1e-6, 0.02, 1.0])
@pytest.mark.parametrize(
    ("s", "b"), [(1e-12, 0.0), (1e-3, 1e-3), (1, -2), (9, 3), (24, 20), (25, 60), (60, -60), (60, 60)]
)
def test_range_against_400_digits(dtype: torch.dtype, c: float, s: float, b: float) -> None:
    states, weight, offset = inputs(int(7 * s + b) % 97, 3, 3, 5)
    states = states / states.norm(dim=1, keepdim=True) * s / c**0.5
    weight[0] = states[0] / states[0].norm()  # parallel to the first state: the worst cancellation
    offset = torch.full((3,), b / 2 / c**0.5, dtype=torch.float64)
    assert_within_rounding(dtype, states, weight, offset, c)


@given(
    log_s=st.floats(-8, math.log10(60)),
    log_z=st.floats(-4, 2),
    b=st.floats(-60, 60),
    log_c=st.floats(-6, 1),
    angle=st.floats(0, math.pi),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_pair_in_float32(log_s: float, log_z: float, b: float, log_c: float, angle: float) -> None:
    c = 10**log_c
    states = torch.tensor([[10**log_s / c**0.5, 0.0]], dtype=torch.float64)
    weight = 10**log_z * torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    assert_within_rounding(torch.float32, states, weight, torch.tensor([b / 2 / c**0.5], dtype=torch.float64), c)


@pytest.mark.parametrize("curvature", [1e-4, 1e-6, 1e-8])
def test_flat_limit(curvature: float) -> None:
    states, weight, offset = inputs(5, 6, 7, 4, torch.float32)
    limit = 4 * (states @ weight.t() - offset * weight.norm(dim=1))
    found = poincare_logits(states, weight, offset, curvature)
    torch.testing.assert_close(found, limit, rtol=300 * curvature + 1e-5, atol=300 * curvature + 1e-5)


def test_gradients_in_float64_including_curvature() -> None:
    states, weight, offset = inputs(11, 4, 5, 3)
    states[0] = 0
    for scale in (0.1, 1.0, 4.0):
        tensors = [states * scale, weight, offset, torch.tensor(0.7, dtype=torch.float64)]
        tensors = [t.clone().requires_grad_() for t in tensors]
        assert torch.autograd.gradcheck(poincare_logits, tensors)
        assert torch.autograd.gradgradcheck(poincare_logits, tensors)


@pytest.mark.parametrize("s", [0.3, 5.0, 25.0, 60.0])
def test_factored_path_has_the_gradients_of_the_plain_one(s: float) -> None:
    """float64 reaches e^353 without factoring, float32 does not: the same numbers by two ways."""
    c = 0.5
    states, weight, offset = inputs(2, 6, 7, 8)
    states = states / states.norm(dim=1, keepdim=True) * s / c**0.5
    weights = torch.randn(6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = []
    for factored in (False, True):
        leaves = [t.clone().requires_grad_() for t in (states, weight, offset, torch.tensor(c, dtype=torch.float64))]
        lifted = GEOMETRY.lift_states(leaves[0], theta=leaves[3], offset=True, factored=factored)
        terms = GEOMETRY.lift_items(leaves[1], leaves[2], theta=leaves[3], factored=factored)
        assert (lifted.exponent is not None) == factored
        logits = GEOMETRY.combine(lifted, terms, terms.vectors(leaves[1]))
        gradients.append(torch.autograd.grad((logits * weights).sum(), leaves))
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_values_and_gradients_on_a_log_grid(dtype: torch.dtype) -> None:
    """From 0 over 1e-15 to the end of the range, at the origin of states and items too."""
    c = 0.02
    grid = torch.cat((torch.zeros(1), torch.logspace(-15, math.log10(60), 24))).to(dtype)
    direction = torch.tensor([0.6, -0.8, 0.0], dtype=dtype)
    states = (grid[:, None] * direction / c**0.5).requires_grad_()
    norms = torch.cat((torch.zeros(1), torch.logspace(-15, 2, 12))).to(dtype)
    weight = (norms[:, None] * torch.tensor([0.6, -0.8, 0.0], dtype=dtype)).requires_grad_()
    for b in (0.0, 1e-12, -1.0, 60.0):
        offset = torch.full((len(norms),), b / 2 / c**0.5, dtype=dtype).requires_grad_()
        curvature = torch.tensor(c, dtype=dtype, requires_grad=True)
        logits = poincare_logits(states, weight, offset, curvature)
        assert torch.isfinite(logits).all()
        for gradient in torch.autograd.grad(logits.sum(), (states, weight, offset, curvature)):
            assert torch.isfinite(gradient).all()


def test_an_item_at_the_origin_still_learns() -> None:
    """At z = 0 the gradient is the limit of small z, 4 F for c -> 0, not 0."""
    states = torch.tensor([[0.3, -0.2]])
    weight = torch.zeros(1, 2, requires_grad=True)
    poincare_logits(states, weight, torch.zeros(1), 1e-6).sum().backward()
    torch.testing.assert_close(weight.grad, 4 * states, rtol=1e-4, atol=0)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_are_lifted_in_float32(half: torch.dtype) -> None:
    states, weight, offset = inputs(1, 4, 5, 6, half)
    expected = poincare_logits(states.float(), weight.float(), offset.float(), 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = poincare_logits(states, weight, offset, 0.1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("curvature", [0.0, -1.0, float("nan"), float("inf"), torch.tensor(-2.0), torch.ones(2)])
def test_impossible_curvature(curvature: float | Tensor) -> None:
    states, weight, offset = inputs(1, 2, 3, 4)
    with refused(ValueError, "curvature"):
        poincare_logits(states, weight, offset, curvature)
