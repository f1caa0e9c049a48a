"""The device of the tests in this folder."""

import os
from collections.abc import Iterator

import pytest
import torch

from tests.devices.foreign import foreign_device, registered

if os.environ.get("RECBOLE_HYPER_TEST_GPU") == "1":
    # with a second device registered, autograd's backward pass on CUDA fails
    collect_ignore_glob = ["test_*.py"]
else:
    # before the first backward of the process: autograd counts the devices once
    registered()


@pytest.fixture
def foreign() -> Iterator[torch.device]:
    """Return a device that is not the CPU, which a run with use_gpu=True takes."""
    with foreign_device() as device:
        yield device
