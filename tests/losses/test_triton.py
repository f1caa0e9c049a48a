"""The kernels of Triton against full logits: on a GPU, or by Triton's interpreter on the CPU.

Nothing here says how fast they are. ``tests/conftest.py`` asks for the interpreter before Triton is imported.
"""

import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.losses import _stream
from recbole_hyper.losses.ce import exact_cross_entropy

pytest.importorskip("triton", reason="triton is not installed: pip install triton, then this file runs on the CPU")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def problem(n: int, m: int, d: int, size: float = 1.0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(n + m)
    states, weight, offset = (torch.randn(*shape, generator=generator) for shape in ((n, d), (m, d), (m,)))
    states, weight, offset = (t.to(DEVICE) for t in (states, weight, offset))
    targets = torch.randint(1, m, (n,), generator=generator).to(DEVICE)
    return (size * states).requires_grad_(), targets, weight.requires_grad_(), (0.3 * offset).requires_grad_()


def evaluated(loss: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return [loss.detach(), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("padding", [0, None])
@pytest.mark.parametrize(("n", "m", "d"), [(5, 131, 7), (70, 129, 16)])
@pytest.mark.parametrize("with_offset", [True, False])
@pytest.mark.parametrize("geometry", registry.names("geometry"))
def test_equals_full_logits(geometry: str, with_offset: bool, n: int, m: int, d: int, padding: int | None) -> None:
    states, targets, weight, offset = problem(n, m, d)
    own = registry.resolve("geometry", geometry)()
    curvature = torch.tensor(0.3, device=DEVICE, requires_grad=True)
    leaves = [states, weight, *([offset] if with_offset else []), *([curvature] if own.curved else [])]
    arguments = (states, targets, weight, offset if with_offset else None, own)
    loss = exact_cross_entropy(*arguments, curvature=curvature, padding_idx=padding, triton_kernel=True)
    # float64: the slow reference
    double = [t.detach().double().requires_grad_() for t in leaves]
    d_offset = double[2] if with_offset else None
    logits = own.logits(double[0], double[1], d_offset, curvature=double[-1] if own.curved else 1.0)
    if padding is not None:
        logits = logits.index_fill(1, torch.tensor([padding], device=DEVICE), -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, targets)
    for one, other in zip(evaluated(loss, leaves), evaluated(expected, double), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-7)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_reductions_and_factored_lifts(reduction: str) -> None:
    """States far out, whose lifts have their exponents taken out, as on a GPU all have."""
    states, targets, weight, offset = problem(9, 100, 8, size=40.0)
    geometry = registry.resolve("geometry", "poincare")()
    assert geometry.factored(states, offset, 1.0)
    found = [
        exact_cross_entropy(states, targets, weight, offset, geometry, reduction=reduction, triton_kernel=kernel)
        for kernel in (True, False)
    ]
    ours, plain = (evaluated(loss.sum(), [states, weight, offset]) for loss in found)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_no_tile_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a tile was allocated")

    monkeypatch.setattr(_stream.ItemStream, "_allocate_tiles", refused)
    states, targets, weight, _ = problem(9, 100, 8)
    exact_cross_entropy(states, targets, weight, None, registry.resolve("geometry", "euclidean")(), triton_kernel=True)


@pytest.mark.parametrize(
    ("dtype", "d", "reason"), [(torch.float64, 8, "compute in float32"), (torch.float32, 300, "at most 256 numbers")]
)
def test_what_the_kernels_do_not_serve_is_refused(dtype: torch.dtype, d: int, reason: str) -> None:
    states, targets, weight, _ = (t.to(dtype) if t.is_floating_point() else t for t in problem(4, 30, d))
    with pytest.raises(ValueError, match=reason):
        exact_cross_entropy(
            states, targets, weight, None, registry.resolve("geometry", "euclidean")(), triton_kernel=True
        )
