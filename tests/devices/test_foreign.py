"""The test device behaves as a GPU where it matters: it refuses what a GPU refuses, and counts what it waits for."""

import numpy as np
import pytest
import torch

from tests.devices.foreign import counted
from tests.raising import refused


def test_products_and_gradients_stay_on_the_device(foreign: torch.device) -> None:
    left, right = torch.randn(3, 4), torch.randn(4, 5)
    own = left.to(foreign).requires_grad_()
    with counted() as transfers:
        loss = (own @ right.to(foreign)).square().sum()
        loss.backward()
    assert own.grad.device == loss.device == foreign
    torch.testing.assert_close(own.grad.cpu(), 2 * (left @ right) @ right.t())
    assert transfers == {"to device": 1}


@pytest.mark.parametrize("name", ["mm", "add", "where"])
def test_a_tensor_of_the_cpu_among_those_of_the_device_fails(name: str, foreign: torch.device) -> None:
    own, other = torch.ones(4, 4, device=foreign), torch.ones(4, 4)
    mixed = {"mm": torch.mm, "add": torch.add, "where": lambda one, two: torch.where(one > 0, one, two)}[name]
    with refused(RuntimeError, "tensors", "foreign"):
        mixed(own, other)


def test_numpy_needs_a_copy_on_the_host(foreign: torch.device) -> None:
    own = torch.arange(3, device=foreign)
    with refused(TypeError, "foreign:0"):
        own.numpy()
    np.testing.assert_array_equal(own.cpu().numpy(), [0, 1, 2])


def test_every_meeting_is_counted_by_its_kind(foreign: torch.device) -> None:
    own = torch.arange(4.0).to(foreign)
    with counted() as transfers:
        torch.tensor([1.0, 2.0], device=foreign)
        own.cpu(), own.tolist()
        float(own.sum()), bool(own.isfinite().all()), own[1].item()
        own.nonzero(), own[own > 1], torch.unique(own), torch.bincount(own.long())
        torch.repeat_interleave(own.long(), output_size=6)  # the host knows the size
        own[torch.tensor([0, 1], device=foreign)]  # and here
    assert transfers == {"to device": 2, "to host": 2, "number": 3, "size": 4}
    assert transfers.waits == 9
    with counted() as transfers:
        own.mul(2).log1p_().softmax(0).sum()
    assert not transfers


def test_results_are_resized_and_views_change_in_place(foreign: torch.device) -> None:
    out = torch.empty(0, device=foreign)
    torch.cat((torch.ones(2, device=foreign), torch.zeros(3, device=foreign)), out=out)
    assert out.shape == (5,)
    assert torch.ones(1, 3, device=foreign).squeeze_(0).shape == (3,)
    assert torch.logsumexp(torch.zeros(2, 3, device=foreign), 1).shape == (2,)
    assert torch.arange(2, 7, device=foreign).tolist() == [2, 3, 4, 5, 6]


def test_the_recurrence_of_devices_is_that_of_the_cpu(foreign: torch.device) -> None:
    torch.manual_seed(0)
    own = torch.nn.GRU(5, 7, 2, batch_first=True)
    inputs = torch.randn(3, 4, 5)
    expected = [own(inputs)[0]]
    expected += torch.autograd.grad(expected[0].square().sum(), own.parameters())
    own.to(foreign)
    found = [own(inputs.to(foreign))[0]]
    found += torch.autograd.grad(found[0].square().sum(), own.parameters())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_other_tests_do_not_see_the_device() -> None:
    assert not torch.accelerator.is_available()
    assert torch.tensor([1]).device.type == "cpu"
