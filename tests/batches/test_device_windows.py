"""Batches that a device makes equal those of the host; sizes are rounded up, and fillers have weight 0."""

import numpy as np
import pytest
import torch

from recbole_hyper.batches.device_windows import (
    PLACES,
    ROWS,
    WEIGHTS,
    DeviceWindows,
    Names,
    rounded_count,
    rounded_width,
)
from recbole_hyper.batches.loader import windows
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.encoders.base import positions_from_end
from recbole_hyper.types import gather

NAMES = Names(user="user", items="items", length="length", targets="targets", times="times")
CPU = torch.device("cpu")


def store_of(lengths: list[int]) -> SequenceStore:
    generator = np.random.default_rng(0)
    users = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    items = generator.integers(1, 50, len(users))
    times = generator.integers(10**9, 10**9 + 10**6, len(users)).astype(float)
    tokens = np.array([str(i) for i in range(60)])
    return SequenceStore.from_interactions(users, items, times, tokens, tokens)


@pytest.mark.parametrize("fills", [True, False])
def test_a_batch_is_that_of_the_host(fills: bool) -> None:
    store = store_of([2, 9, 30, 5, 17])
    cases = windows(store, np.diff(store.offsets), 10)
    maker = DeviceWindows(store, CPU, 10, NAMES, fills=fills)
    packed = maker.pack(cases)
    batch = packed.to(CPU)
    lengths = cases.ends - cases.starts
    n, width = int(lengths.sum()), packed.shape.width
    assert len(batch) == len(cases)
    given = (cases.store, cases.rows)
    expected = {
        "items": gather(*given, cases.starts, cases.ends, width),
        "targets": gather(*given, cases.starts + 1, cases.ends + 1, width),
        "times": gather(*given, cases.starts, cases.ends, width, times=True),
        "length": lengths,
        "user": store.users[cases.rows],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name].numpy(), values)
    rows, columns = batch["targets"].nonzero(as_tuple=True)
    assert batch[PLACES][:n].tolist() == (rows * width + columns).tolist()
    assert batch[ROWS][:n].tolist() == rows.tolist()
    assert (WEIGHTS in batch) == fills
    assert len(batch[PLACES]) == (rounded_count(n) if fills else n)
    if fills:
        weights = batch[WEIGHTS]
        torch.testing.assert_close(weights[:n], torch.full((n,), 1 / n))
        assert not weights[n:].any()
        assert set(batch[PLACES][n:].tolist()) <= {0}
    assert positions_from_end(batch["length"], width).shape == (len(cases), width)


def test_sizes_are_few_and_never_smaller() -> None:
    widths = {rounded_width(width, 50) for width in range(1, 51)}
    assert widths == {13, 26, 39, 50}
    assert all(width <= rounded_width(width, 50) for width in range(1, 51))
    assert rounded_width(3, 3) == 3
    counts = [rounded_count(n) for n in range(1, 5000)]
    assert all(n <= size <= n * 1.125 + 1 for n, size in enumerate(counts, 1))
    assert len({size for size in counts if 2048 < size <= 4096}) == 8


def test_data_that_do_not_fit_stay_on_the_host() -> None:
    store = store_of([3, 4])
    assert not DeviceWindows.fits(store, CPU, times=False)


def test_a_device_takes_data_up_to_a_quarter_of_its_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    store, device = store_of([3, 4]), torch.device("meta")
    for free, times, fits in ((7 * 4 * 4, False, True), (7 * 4 * 4 - 1, False, False), (7 * 4 * 4, True, False)):
        monkeypatch.setattr("recbole_hyper.batches.device_windows.free_memory", lambda _, free=free: free)
        assert DeviceWindows.fits(store, device, times=times) == fits
