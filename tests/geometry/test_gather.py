"""Functions of gathered items, piece by piece, against one plain gather and autograd."""

import pytest
import torch
from torch import Tensor

from recbole_hyper.geometry._gather import LOGITS, Piece, gathered, groups_at_once


def compute(states: Tensor, weight: Tensor, offset: Tensor | None, theta: Tensor | float, factor: float) -> Tensor:
    value = theta * (states.unsqueeze(1) * weight).sum(-1).square()
    return factor * (value if offset is None else value + offset).sum(1)


def pieces() -> list[Piece]:
    """Rows and items occur several times, within a piece and across pieces."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.tensor([0, 3, 3]), torch.tensor([3, 1]), torch.tensor([2])]
    items = [torch.randint(0, 9, (len(own), 4), generator=generator) for own in rows]
    return [Piece(compute, own, chosen, (2.0,)) for own, chosen in zip(rows, items, strict=True)]


@pytest.mark.parametrize("frozen", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("offset", [True, False])
def test_equals_one_plain_gather(offset: bool, frozen: int | None) -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(shape, dtype=torch.float64) for shape in ((4, 3), (9, 3), (9,), ())]
    for number, leaf in enumerate(leaves):
        leaf.requires_grad_(number != frozen)
    states, weight, offsets, theta = leaves
    found = gathered(iter_again := pieces(), states, weight, offsets if offset else None, theta)
    expected = torch.cat(
        [
            compute(states[p.rows], weight[p.items], offsets[p.items] if offset else None, theta, *p.data)  # type: ignore[arg-type]
            for p in iter_again
        ]
    )
    torch.testing.assert_close(found, expected)
    trained = [leaf for leaf in leaves if leaf.requires_grad and (offset or leaf is not offsets)]
    upstream = torch.linspace(-1, 2, len(found), dtype=torch.float64)
    ours = torch.autograd.grad(found, trained, upstream)
    for one, other in zip(ours, torch.autograd.grad(expected, trained, upstream), strict=True):
        torch.testing.assert_close(one, other)


def test_half_precision_is_computed_in_float32() -> None:
    states, weight = torch.randn(4, 3).half().requires_grad_(), torch.randn(9, 3).half().requires_grad_()
    found = gathered(pieces(), states, weight, None, 0.5)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, gathered(pieces(), states.float(), weight.float(), None, 0.5))
    assert torch.autograd.grad(found.sum(), weight)[0].dtype == torch.float16


def test_groups_fit_their_bound() -> None:
    assert groups_at_once(8, 16, 4) == LOGITS // (16 * 8)
    assert groups_at_once(2, 16, 64) == LOGITS // (16 * 64)
    assert groups_at_once(LOGITS, LOGITS, 1) == 1
