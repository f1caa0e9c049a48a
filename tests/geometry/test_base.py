"""What every geometry owes: one suite over all registered ones, so that a new file is tested at once."""

import torch

from recbole_hyper.geometry.base import Geometry


def test_link_in_place_equals_link_and_its_derivative(geometry: Geometry) -> None:
    inner = torch.linspace(-5, 5, 41, dtype=torch.float64)
    for exponent in (None, torch.linspace(0, 30, 41, dtype=torch.float64)) if geometry.curved else (None,):
        leaf = inner.clone().requires_grad_()
        linked = geometry.link(leaf, exponent)
        (derivative,) = torch.autograd.grad(linked.sum(), leaf)
        value, slope = inner.clone(), torch.empty_like(inner)
        # link_ overwrites its exponent
        geometry.link_(value, slope, torch.empty_like(inner), None if exponent is None else exponent.clone())
        torch.testing.assert_close(value, linked.detach())
        torch.testing.assert_close(slope, derivative)
        # odd and increasing, which the searches and the ranking of one item over states rely on
        torch.testing.assert_close(geometry.link(-inner, exponent), -linked.detach())
    assert (geometry.link(inner).diff() > 0).all()


def test_gradients(geometry: Geometry) -> None:
    states = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, w, o: geometry.logits(s, w, o, theta=0.4), (states, weight, offset))
