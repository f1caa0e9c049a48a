"""The device of the tests in this folder."""

from collections.abc import Iterator

import pytest
import torch

from tests.devices.foreign import foreign_device, registered

# before the first backward of the process: autograd counts the devices once
registered()


@pytest.fixture
def foreign() -> Iterator[torch.device]:
    """Return a device that is not the CPU, which a run with use_gpu=True takes."""
    with foreign_device() as device:
        yield device
