"""What the thread count of the numba kernels leaves behind."""

import numpy as np
import pytest
import torch

from recbole_hyper.kernels import compiled
from recbole_hyper.kernels.ranks import rank_rows


def test_torch_keeps_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    seen = []
    targets, offsets, hidden = np.ones(2, np.int64), np.zeros(3, np.int64), np.zeros(0, np.int64)
    try:
        torch.set_num_threads(1)
        rank_rows(np.zeros((2, 4), np.float32), targets, offsets, hidden.astype(np.int32), hidden, 1)
        monkeypatch.setattr(compiled, "compiled", lambda **_: lambda function: function)
        compiled.threaded()(lambda: seen.append(torch.get_num_threads()))()
        assert seen == [1]
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
