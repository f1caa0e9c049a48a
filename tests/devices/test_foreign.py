"""The test device behaves as a GPU where it matters: it refuses what a GPU refuses, and counts what it waits for."""

import pytest
import torch

from tests.devices.foreign import counted
from tests.raising import refused


@pytest.mark.parametrize("name", ["mm", "add", "where"])
def test_a_tensor_of_the_cpu_among_those_of_the_device_fails(name: str, foreign: torch.device) -> None:
    own, other = torch.ones(4, 4, device=foreign), torch.ones(4, 4)
    mixed = {"mm": torch.mm, "add": torch.add, "where": lambda one, two: torch.where(one > 0, one, two)}[name]
    with refused(RuntimeError, "tensors", "foreign"):
        mixed(own, other)


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
