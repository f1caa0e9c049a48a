"""The exact cross-entropy by whole rows, as on a device: the losses and gradients of the tiles."""

from typing import Any

import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.devices import CPU
from recbole_hyper.losses import ce
from recbole_hyper.losses._rows import RowStream, rows_at_once
from tests.raising import refused

N, M, D = 33, 57, 8


def evaluated(monkeypatch: pytest.MonkeyPatch, stream: Any, geometry: str, far: float, **options: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    states, weight, offset, upstream = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in ((N, D), (M, D), (M,), (N,))
    )
    targets = torch.randint(1, M, (N,), generator=generator)
    targets[targets == options["padding_idx"]] = 1
    leaves = [far * states, weight, 0.2 * offset, torch.tensor(0.4, dtype=torch.float64)]
    states, weight, offset, theta = (leaf.requires_grad_() for leaf in leaves)
    if options.pop("weighted", False):
        options |= {"row_weights": upstream, "reduction": "sum"}
    monkeypatch.setattr(ce, "_engine_of", lambda *_: stream)
    part = registry.resolve("geometry", geometry)()
    loss = ce.exact_cross_entropy(states, targets, weight, offset, part, theta=theta, **options)
    total = loss if loss.dim() == 0 else loss.dot(upstream)
    return [total.detach(), *torch.autograd.grad(total, [states, weight, offset, theta], allow_unused=True)]


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
@pytest.mark.parametrize("padding", [None, 0, 20])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("how", [{}, {"reduction": "none"}, {"weighted": True}], ids=str)
def test_equals_the_tiles(
    how: dict[str, Any], smoothing: float, padding: int | None, geometry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in chunks of a few rows, and with states so far out that exponents are taken out of their lifts."""
    options = {"padding_idx": padding, "label_smoothing": smoothing, **how}
    for far in (1.0, 60.0):
        expected = evaluated(monkeypatch, ce.ItemStream, geometry, far, **options)
        for budget in (1 << 20, 20_000):
            found = evaluated(monkeypatch, RowStream, geometry, far, memory_budget=budget, **options)
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                if isinstance(one, Tensor):
                    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_rows_fit_the_budget() -> None:
    assert rows_at_once(100, 1000, 8, 4, 1 << 30, CPU, True) == 100
    rows = rows_at_once(100, 1000, 8, 4, 400_000, CPU, True)
    assert rows * 8 * 1000 * 4 <= 400_000 - 6 * 100 * 8 * 4 < (rows + 1) * 8 * 1000 * 4
    with refused(ValueError, "51200"):
        rows_at_once(100, 1000, 8, 4, 51_199, CPU, True)


def test_row_weights_need_the_sum() -> None:
    states, targets = torch.randn(3, 4), torch.ones(3, dtype=torch.long)
    part = registry.resolve("geometry", "euclidean")()
    with refused(ValueError, "'sum'", "'mean'", "row_weights", "reduction="):
        ce.exact_cross_entropy(states, targets, torch.randn(5, 4), None, part, row_weights=torch.ones(3))
