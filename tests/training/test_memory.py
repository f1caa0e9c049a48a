"""What a training gives back."""

from __future__ import annotations

import gc

import psutil
import pytest
import torch

from recbole_hyper.training.memory import give_back_freed


def test_holes_in_the_heap_are_given_back() -> None:
    process = psutil.Process()
    # below the size from which the C library maps a block by itself; every hundredth stays and keeps the heap long
    blocks = [torch.ones(20_000) for _ in range(2_000)]
    full = process.memory_info().rss
    kept = blocks[::100]
    del blocks
    gc.collect()
    if not give_back_freed():
        pytest.skip("the C library has no malloc_trim")
    assert full - process.memory_info().rss > 100e6
    assert all(block.sum() == 20_000 for block in kept)
