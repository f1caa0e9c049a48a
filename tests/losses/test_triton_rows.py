"""Lifts and link of the Poincare head as kernels, by Triton's interpreter on the CPU, against float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.losses import ce
from recbole_hyper.losses.ce import exact_cross_entropy
from tests.losses.test_ce import full, gradients

pytest.importorskip("triton", reason="triton is not installed")

from recbole_hyper.losses._triton_rows import PoincareRows
from tests.losses.interpreter import DEVICE, MARKS

pytestmark = MARKS


@pytest.fixture(autouse=True)
def _by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ce, "_stream_of", lambda *_, **__: PoincareRows)


def problem(n: int, m: int, d: int, size: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    states, weight, offset = (torch.randn(*shape, generator=generator) for shape in ((n, d), (m, d), (m,)))
    offset[:: m // 4] = 1e-5
    targets = torch.randint(1, m, (n,), generator=generator)
    given = (size * states, weight, 0.3 * offset, torch.tensor(0.4))
    return [targets.to(DEVICE), *(one.to(DEVICE).requires_grad_() for one in given)]


def compared(targets: Tensor, leaves: list[Tensor], theta: Any, padding: int | None, **options: Any) -> list[float]:
    """Return the errors of loss and gradients by ``leaves``, as shares of the largest number, against float64."""
    doubles = [one.detach().double().requires_grad_() for one in leaves]
    results = []
    for states, weight, *rest in (leaves, doubles):
        offset, curvature = (rest[0] if len(rest) else None), (rest[1] if len(rest) > 1 else theta)
        if states.dtype == torch.float32:
            given = (states, targets, weight, offset, Poincare())
            loss = exact_cross_entropy(*given, theta=curvature, padding_idx=padding, **options)
        else:
            loss = full(states, targets, weight, offset, curvature, "poincare", padding)
        own = leaves if states.dtype == torch.float32 else doubles
        results.append([one.double() for one in (loss, *gradients(loss, tuple(own)))])
    return [float((one - other).abs().max() / other.abs().max()) for one, other in zip(*results, strict=True)]


# the gradient by the curvature of tiny states is a difference that loses all digits, also in torch's operations: in
# float32 full logits are wrong by 1e-2 of it at states of 1e-3, and by more than all of it at 1e-4
@pytest.mark.parametrize(("known", "size", "padding"), [(2, 1.0, None), (4, 1.0, 0), (2, 1e-4, 0), (3, 1e-4, None)])
def test_equals_full_logits_in_float64(known: int, size: float, padding: int | None) -> None:
    """Without offsets, with them, and with a learned curvature; states of usual size, and tiny ones."""
    targets, *leaves = problem(37, 83, 11, size)
    assert max(compared(targets, leaves[:known], 0.4, padding)) < 3e-6


def test_far_states_are_as_exact_as_torchs_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    targets, *leaves = problem(9, 60, 8, 40.0)
    own = compared(targets, leaves[:3], 1.0, None)
    monkeypatch.undo()
    for one, other in zip(own, compared(targets, leaves[:3], 1.0, None), strict=True):
        assert one <= 3 * other + 4e-6


def test_smoothing_is_part_of_it_and_the_padding_item_has_no_gradient() -> None:
    targets, *leaves = problem(20, 40, 8)
    given = (leaves[0], targets, leaves[1], leaves[2], Poincare())
    loss = exact_cross_entropy(*given, theta=0.4, padding_idx=0, label_smoothing=0.1)
    logits = Poincare().logits(*(one.double() for one in leaves[:3]), theta=0.4)[:, 1:]
    expected = torch.nn.functional.cross_entropy(logits, targets - 1, label_smoothing=0.1)
    found, other = gradients(loss, tuple(leaves[:3])), gradients(expected, tuple(leaves[:3]))
    for one, exact in zip([loss, *found], [expected, *other], strict=True):
        assert float((one - exact).abs().max() / exact.abs().max()) < 3e-6
    assert not found[1][0].any()
    assert not found[2][0]
