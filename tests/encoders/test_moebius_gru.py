"""Moebius GRU: step-by-step geoopt reference in float64, gradient checks, the flat limit, torch.nn.GRU's interface."""

import math

import geoopt
import pytest
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.gru import GRUEncoder
from recbole_hyper.encoders.moebius_gru import MoebiusGRU, MoebiusGRUEncoder
from recbole_hyper.geometry.head import LEAST_LEARNED
from recbole_hyper.hyperbolic._math import exp0, log0
from tests.raising import refused
from tests.reference import moebius as reference

pytestmark = pytest.mark.usefixtures("kernels")

VARIANTS = [("identity", "before"), ("tanh", "before"), ("identity", "after"), ("tanh", "after")]


def layer(width: int = 4, hidden: int = 5, curvature: float = 1.0, scale: float = 1.0, **options: str) -> MoebiusGRU:
    """Return a float64 layer with weights times ``scale`` and biases far from 0."""
    torch.manual_seed(3)
    module = MoebiusGRU(width, hidden, curvature=curvature, **options).double()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith("bias_l"):
                parameter.copy_(exp0(torch.randn(3, hidden, dtype=torch.float64) * 0.3 / curvature**0.5, curvature))
            elif name.startswith("weight"):
                parameter.mul_(scale)
    return module


def random_points(shape: tuple[int, ...], radius: float, curvature: float) -> Tensor:
    direction = torch.nn.functional.normalize(torch.randn(shape, dtype=torch.float64), dim=-1)
    return direction * radius / curvature**0.5


def relative_error(ours: Tensor, truth: Tensor) -> float:
    return float((ours.detach().double() - truth.detach()).norm() / truth.detach().norm())


@pytest.mark.parametrize(("nonlinearity", "reset"), VARIANTS)
@pytest.mark.parametrize("curvature", [0.2, 1.0])
@pytest.mark.parametrize(
    ("dtype", "radius", "tolerance", "gradient_tolerance"),
    [
        (torch.float64, 0.5, 1e-12, 1e-11),
        (torch.float64, 0.999, 1e-8, 1e-6),
        (torch.float32, 0.5, 3e-6, 1e-5),
        (torch.float32, 0.99, 3e-5, 3e-4),
        (torch.float32, 0.999, 3e-4, 6e-3),
    ],
)
def test_states_and_gradients_are_those_of_the_reference(
    nonlinearity: str,
    reset: str,
    curvature: float,
    dtype: torch.dtype,
    radius: float,
    tolerance: float,
    gradient_tolerance: float,
) -> None:
    # few steps and small weights keep every point below s = 8.4, where geoopt cuts its artanh
    steps = 2 if radius > 0.99 else 6
    module = layer(curvature=curvature, scale=0.25, nonlinearity=nonlinearity, reset=reset)
    tangents = log0(random_points((steps, 7, 4), radius, curvature), curvature)
    start, weights = random_points((7, 5), radius, curvature), torch.randn(steps, 7, 5, dtype=torch.float64)
    exact = [
        value.detach().as_subclass(Tensor).clone().requires_grad_()
        for value in (tangents, start, module.weight_ih_l0, module.weight_hh_l0, module.bias_l0)
    ]
    expected = reference.gru(*exact, curvature, nonlinearity == "tanh", reset == "after")
    (expected * weights).sum().backward()

    module = module.to(dtype)
    given, h0 = tangents.to(dtype).requires_grad_(), start.to(dtype)[None].requires_grad_()
    output, last = module(given, h0)
    (output * weights.to(dtype)).sum().backward()
    assert relative_error(output, expected) < tolerance
    torch.testing.assert_close(last[0], output[-1])
    ours = [given.grad, h0.grad[0], module.weight_ih_l0.grad, module.weight_hh_l0.grad, module.bias_l0.grad]
    for name, gradient, truth in zip(("x", "h0", "U", "W", "b"), ours, exact, strict=True):
        assert relative_error(gradient, truth.grad) < gradient_tolerance, name


def test_far_states_are_exact_beyond_the_reach_of_geoopt() -> None:
    module = layer(curvature=0.2, scale=0.25)
    tangents = log0(random_points((5, 2, 4), 0.999, 0.2), 0.2)
    start = random_points((2, 5), 0.999, 0.2)
    parameters = [value.detach() for value in (module.weight_ih_l0, module.weight_hh_l0, module.bias_l0)]
    truth, farthest = reference.exact_gru(tangents, start, *parameters, 0.2)
    assert farthest > 9  # geoopt cuts at 8.4
    torch.testing.assert_close(module(tangents, start[None])[0].detach(), truth, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("nonlinearity", "reset"), VARIANTS)
def test_gradcheck_of_the_recurrence(nonlinearity: str, reset: str) -> None:
    module = layer(3, 2, curvature=0.6, nonlinearity=nonlinearity, reset=reset)
    names = ["weight_ih_l0", "weight_hh_l0", "bias_l0"]
    values = [getattr(module, name).detach().as_subclass(Tensor).clone().requires_grad_() for name in names]
    inputs = torch.randn(3, 1, 3, dtype=torch.float64, requires_grad=True)
    start = random_points((1, 1, 2), 0.7, 0.6).requires_grad_()

    def run(inputs: Tensor, start: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (inputs, start))[0]

    assert torch.autograd.gradcheck(run, (inputs, start, *values))


def test_gradcheck_of_one_step() -> None:
    torch.manual_seed(0)
    module = MoebiusGRU(3, 2, curvature=1.3, inputs="ball").double()
    inputs = random_points((2, 3), 0.8, 1.3).requires_grad_()
    hidden = random_points((2, 2), 0.6, 1.3).requires_grad_()

    def step(inputs: Tensor, hidden: Tensor) -> Tensor:
        return module(inputs[None], hidden[None])[1][0]

    assert torch.autograd.gradcheck(step, (inputs, hidden))
    expected = reference.cell(
        inputs, hidden, module.weight_ih_l0, module.weight_hh_l0, module.bias_l0.as_subclass(Tensor), 1.3
    )
    torch.testing.assert_close(step(inputs, hidden), expected, rtol=1e-9, atol=1e-10)


def test_a_learned_curvature_ends_where_that_of_a_head_ends() -> None:
    """At the floor its gradient in float32 is that of float64; below it, it would be noise, and there is none."""

    def gradient(curvature: float, dtype: torch.dtype) -> float:
        torch.manual_seed(0)
        module = MoebiusGRU(3, 4, curvature="learn").to(dtype)
        with torch.no_grad():
            module.ball.isp_c.fill_(math.log(math.expm1(curvature)))
        module(torch.randn(5, 2, 3).to(dtype))[0].square().sum().backward()
        return float(module.ball.isp_c.grad)

    assert gradient(1e-3, torch.float32) == pytest.approx(gradient(1e-3, torch.float64), rel=0.1)
    assert gradient(1e-8, torch.float32) == gradient(1e-8, torch.float64) == 0
    module = MoebiusGRU(3, 4, curvature="learn")
    module.set_curvature(LEAST_LEARNED)
    with torch.no_grad():
        module.ball.isp_c -= 5
    assert float(module.curvature) == pytest.approx(LEAST_LEARNED)
    with refused(ValueError, "curvature=1e-07", "1e-06"):
        module.set_curvature(1e-7)


@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
def test_gradient_of_a_learned_curvature(nonlinearity: str) -> None:
    torch.manual_seed(0)
    module = MoebiusGRU(3, 2, curvature="learn", nonlinearity=nonlinearity).double()
    inputs = torch.randn(4, 2, 3, dtype=torch.float64)
    raw = module.ball.isp_c.detach().clone().requires_grad_()

    def run(raw: Tensor) -> Tensor:
        return torch.func.functional_call(module, {"ball.isp_c": raw}, (inputs,))[0]

    assert torch.autograd.gradcheck(run, (raw,))
    module(inputs)[0].square().sum().backward()
    assert float(module.ball.isp_c.grad.abs()) > 1e-3


def test_flat_limit_is_torch_gru() -> None:
    torch.manual_seed(0)
    flat = nn.GRU(3, 4).double()
    curved = MoebiusGRU(3, 4, curvature=1e-12, nonlinearity="tanh", reset="after").double()
    sign = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64).repeat_interleave(4)
    with torch.no_grad():
        flat.bias_hh_l0.zero_()
        curved.weight_ih_l0.copy_(flat.weight_ih_l0 * sign[:, None])
        curved.weight_hh_l0.copy_(flat.weight_hh_l0 * sign[:, None])
        curved.bias_l0.copy_((flat.bias_ih_l0 * sign).view(3, 4))
    inputs, start = torch.randn(7, 5, 3, dtype=torch.float64), torch.randn(1, 5, 4, dtype=torch.float64)
    x1, x2 = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    expected, ours = flat(x1, start)[0], curved(x2, start)[0]
    torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-9)
    expected.square().sum().backward()
    ours.square().sum().backward()
    torch.testing.assert_close(x2.grad, x1.grad, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(curved.weight_hh_l0.grad * sign[:, None], flat.weight_hh_l0.grad, rtol=1e-7, atol=1e-8)


def test_flat_limit_of_the_papers_cell() -> None:
    module = layer(3, 4, curvature=1e-10)
    with torch.no_grad():
        module.bias_l0.copy_(torch.randn(3, 4))
    u, w = module.weight_ih_l0.chunk(3), module.weight_hh_l0.chunk(3)
    b = module.bias_l0.as_subclass(Tensor)
    inputs, h = torch.randn(5, 2, 3, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)
    for x in inputs:
        r, z = (torch.sigmoid(h @ w[i].t() + x @ u[i].t() + b[i]) for i in range(2))
        h = (1 - z) * h + z * ((r * h) @ w[2].t() + x @ u[2].t() + b[2])
    torch.testing.assert_close(module(inputs)[1][0], h, rtol=1e-6, atol=1e-7)


def test_interface_is_that_of_torch_gru() -> None:
    torch.manual_seed(0)
    ours, theirs = MoebiusGRU(3, 4, num_layers=2, batch_first=True), nn.GRU(3, 4, num_layers=2, batch_first=True)
    inputs = torch.randn(5, 6, 3)
    for module in (ours, theirs):
        output, last = module(inputs)
        assert output.shape == (5, 6, 4)
        assert last.shape == (2, 5, 4)
        torch.testing.assert_close(output[:, -1], last[-1])
    single, last = ours(inputs[0])
    torch.testing.assert_close(single, ours(inputs)[0][0])
    assert last.shape == (2, 4)
    rest, _ = ours(inputs[:, 4:], ours(inputs[:, :4])[1])
    torch.testing.assert_close(rest, ours(inputs)[0][:, 4:], rtol=1e-5, atol=1e-6)


def test_lengths_are_those_of_single_sequences() -> None:
    module = layer(3, 4)
    inputs, lengths = torch.randn(6, 4, 3, dtype=torch.float64), torch.tensor([2, 6, 1, 4])
    output, last = module(inputs, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, alone_last = module(inputs[:length, row])
        torch.testing.assert_close(output[:length, row], alone)
        torch.testing.assert_close(last[:, row], alone_last)


def test_parameters_lie_on_the_ball_and_survive_a_reload(tmp_path) -> None:
    module = MoebiusGRU(3, 4, num_layers=2, curvature=0.3)
    points = [p for p in module.parameters() if isinstance(p, geoopt.ManifoldParameter)]
    assert [tuple(p.shape) for p in points] == [(3, 4), (3, 4)]
    assert all(float(p.manifold.c) == pytest.approx(0.3) for p in points)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    other = MoebiusGRU(3, 4, num_layers=2, curvature=0.3)
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=False))
    assert isinstance(other.bias_l1, geoopt.ManifoldParameter)
    inputs = torch.randn(3, 2, 3)
    assert torch.equal(module(inputs)[0], other(inputs)[0])


def test_states_stay_inside_the_ball_under_huge_weights() -> None:
    torch.manual_seed(0)
    module = MoebiusGRU(8, 8)
    with torch.no_grad():
        module.weight_ih_l0.mul_(1e3)
        module.weight_hh_l0.mul_(1e3)
    inputs = torch.randn(50, 16, 8).requires_grad_()
    output, _ = module(inputs)
    assert float(output.detach().norm(dim=-1).max()) < 1
    output.square().sum().backward()
    assert torch.isfinite(inputs.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters() if p.requires_grad)


def test_autocast_does_not_reach_the_recurrence() -> None:
    module, inputs = MoebiusGRU(3, 4), torch.randn(6, 9, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = module(inputs)
    assert output.dtype == torch.float32
    assert torch.equal(output, module(inputs)[0])


def test_zero_inputs_have_finite_gradients() -> None:
    module = MoebiusGRU(3, 4, bias=False)
    inputs = torch.zeros(4, 2, 3, requires_grad=True)
    output, _ = module(inputs)
    assert float(output.detach().abs().max()) == 0
    output.sum().backward()
    assert torch.isfinite(inputs.grad).all()
    assert float(inputs.grad.abs().max()) > 0


def test_faults_are_named() -> None:
    module, good = MoebiusGRU(3, 4), torch.zeros(5, 2, 3)
    for inputs, options, named in (
        (good, {"lengths": torch.tensor([3, 0])}, "lengths"),
        (good, {"lengths": torch.tensor([3, 6])}, "within"),
        (torch.zeros(0, 2, 3), {}, "0 steps"),
        (torch.zeros(5, 0, 3), {}, "0 rows"),
        (torch.full((5, 2, 3), float("nan")), {}, "NaN"),
        (torch.zeros(5, 2, 7), {}, "must be 3"),
        (good, {"h0": torch.ones(1, 2, 4)}, "h0"),
        (good, {"h0": torch.zeros(2, 2, 4)}, "h0"),
    ):
        with refused(ValueError, named):
            module(inputs, **options)
    with refused(ValueError, "outside the ball"):
        MoebiusGRU(3, 4, inputs="ball")(torch.ones(5, 2, 3))
    for key, value in (
        *(("curvature", value) for value in (0, float("nan"), "flat")),
        *(("inputs", "sphere"), ("nonlinearity", "relu"), ("reset", "never"), ("num_layers", 0), ("dropout", 1.0)),
    ):
        with refused(ValueError, key):
            MoebiusGRU(3, 4, **{key: value})


def test_auto_curvature_must_be_set() -> None:
    module = MoebiusGRU(3, 4, curvature="auto")
    with refused(RuntimeError, "set_curvature"):
        module(torch.zeros(5, 2, 3))
    module.set_curvature(0.02)
    assert module.curvature == 0.02
    assert float(module.bias_l0.manifold.c) == pytest.approx(0.02)
    module(torch.zeros(5, 2, 3))


@pytest.mark.parametrize("build", [MoebiusGRUEncoder, GRUEncoder])
def test_encoder_keeps_the_shared_table_out_and_its_width(build) -> None:
    embedding = nn.Embedding(20, 8, padding_idx=0)
    assert not any(name.startswith("item_embedding") for name in build(embedding).state_dict())
    with refused(ValueError, "dense=False"):
        build(embedding, gru_size=6, dense=False)


def test_encoder_hands_over_tangent_vectors() -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(20, 8, padding_idx=0)
    encoder = MoebiusGRUEncoder(embedding, curvature=0.5, dense=False).eval()
    items = torch.randint(1, 20, (3, 7))
    points, _ = encoder.gru(embedding(items))
    torch.testing.assert_close(exp0(encoder(items, torch.tensor([7, 7, 7])), 0.5), points, rtol=1e-5, atol=1e-6)
