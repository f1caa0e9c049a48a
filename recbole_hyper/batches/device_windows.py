"""Training windows on a device: the sequences live there, and a batch is a few numbers that one copy brings.

The host chooses the windows and knows their lengths, so it also knows the positions with a target: nothing has to be
counted on the device, which would wait for it. Widths and numbers of targets are rounded up to a few sizes, so that
most steps have equal shapes; what fills up has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.devices import free_memory
from recbole_hyper.types import Cases

#: columns of a batch: where each target is among the positions (B, L), flattened, its row, and its weight, 0 for a
#: filler
PLACES, ROWS, WEIGHTS = "target_places", "target_rows", "target_weights"
# shares of the longest history that a width may have
_WIDTHS = 4
# sizes that a number of targets may have between one power of two and the next
_STEPS = 8


class Names(NamedTuple):
    """Columns of a batch."""

    user: str
    items: str
    length: str
    targets: str
    times: str | None  # None if the encoder does not read them


class Shape(NamedTuple):
    """The shape of a batch: equal shapes have equal steps."""

    rows: int
    width: int
    targets: int  # with fillers


@dataclass(frozen=True)
class PackedBatch:
    """A batch of windows that is not made yet: all that a device needs in one array of the host.

    ``numbers`` (3 B + 2.5 N,) int64 are the first position in the store, the length and the user of each row, the place
    and the row of each target, and two weights of targets in each of the last numbers, as the bits of float32.
    """

    windows: DeviceWindows
    numbers: Tensor
    shape: Shape

    def to(self, device: torch.device) -> Interaction:
        """Return the batch on ``device``, with one copy that nothing waits for."""
        numbers = self.numbers.pin_memory() if device.type != "cpu" else self.numbers
        return self.windows.batch(numbers.to(device, non_blocking=True), self.shape)


class DeviceWindows:
    """The sequences of ``store`` on a device, of which it makes batches.

    With ``fills`` targets are filled up to a few numbers, with the first target and weight 0.
    """

    def __init__(
        self, store: SequenceStore, device: torch.device, max_length: int, names: Names, *, fills: bool
    ) -> None:
        self.max_length, self.names, self.fills = max_length, names, fills
        self.store_offsets, self.store_users = store.offsets, store.users
        # a window may reach beyond the last interaction
        rest = np.zeros(max_length + 1)
        self.items = torch.from_numpy(np.concatenate((store.items, rest.astype(np.int32)))).to(device)
        self.times: Tensor | None = None
        if names.times is not None:
            self.times = torch.from_numpy(np.concatenate((store.times, rest))).to(device)
        self._columns = torch.arange(max_length + 1, device=device)

    @staticmethod
    def fits(store: SequenceStore, device: torch.device, *, times: bool) -> bool:
        """Return whether items, and ``times`` if needed, take at most a quarter of the free memory of a device."""
        needed = 4 * len(store.items) + (8 * len(store.times) if times else 0)
        return device.type != "cpu" and len(store.items) < 2**31 - 2**16 and 4 * needed <= free_memory(device)

    def pack(self, part: Cases) -> PackedBatch:
        """Return the batch of these windows; every position has a target."""
        lengths = part.ends - part.starts
        width = rounded_width(int(lengths.max()), self.max_length)
        n = int(lengths.sum())
        size = rounded_count(n) if self.fills else n
        rows = np.repeat(np.arange(len(lengths)), lengths)
        first = lengths.cumsum() - lengths
        places = np.zeros(size, dtype=np.int64)  # fillers repeat the first target
        places[:n] = rows * width + np.arange(n) - first[rows]
        owners = np.zeros(size, dtype=np.int64)
        owners[:n] = rows
        weights = np.zeros(size + size % 2, dtype=np.float32)
        weights[:n] = 1.0 / n
        head = (self.store_offsets[part.rows] + part.starts, lengths, self.store_users[part.rows])
        numbers = np.concatenate([*(one.astype(np.int64) for one in head), places, owners, weights.view(np.int64)])
        return PackedBatch(self, torch.from_numpy(numbers), Shape(len(lengths), width, size))

    def batch(self, numbers: Tensor, shape: Shape) -> Interaction:
        """Return the batch of ``numbers``, those of a :class:`PackedBatch`, on the device."""
        b, width, n = shape
        starts, lengths, users, places, rows, weights = numbers.split((b, b, b, n, n, (n + 1) // 2))
        columns = self._columns[: width + 1]
        index = starts.unsqueeze(1) + columns
        inside = columns[:width] < lengths.unsqueeze(1)
        # items and targets of all windows, in one operation
        pairs = self.items.take(index).unfold(1, width, 1).transpose(0, 1)
        items, targets = torch.mul(pairs, inside, out=index.new_empty(2, b, width)).unbind()
        batch = {
            self.names.user: users,
            self.names.items: items,
            self.names.length: lengths,
            self.names.targets: targets,
            PLACES: places,
            ROWS: rows,
        }
        if self.fills:
            batch[WEIGHTS] = weights.view(torch.float32)[:n]
        if self.times is not None and self.names.times is not None:
            batch[self.names.times] = self.times.take(index[:, :-1]) * inside
        made = Interaction(batch)
        made.length = b
        return made


def rounded_width(width: int, max_length: int) -> int:
    """Return ``width`` rounded up to a quarter, a half, three quarters or the whole of ``max_length``."""
    step = -(-max_length // _WIDTHS)
    return min(max_length, -(-width // step) * step)


def rounded_count(n: int) -> int:
    """Return n rounded up: at most an eighth more, eight sizes between a power of two and the next."""
    step = max(1, (1 << (n - 1).bit_length()) // 2 // _STEPS)
    return -(-n // step) * step
