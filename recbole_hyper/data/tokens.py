"""Text to numbers by first appearance, over any number of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Tokens:
    """A growing table of texts, in compiled loops: worth it from some millions of texts on."""

    def __init__(self) -> None:
        self._slots = np.zeros(1 << 12, np.uint64)
        self._starts = np.zeros(1 << 11, np.uint64)
        self._text = np.empty(1 << 12, np.uint8)
        self._known = 0

    def codes(self, texts: pa.Array) -> npt.NDArray[np.int32]:
        """Return the (n,) number of each of the texts."""
        from recbole_hyper.kernels import tokens

        if len(texts) == 0:  # Arrow may leave its buffers out
            return np.empty(0, np.int32)
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
        most = self._known + len(texts)
        if 2 * most > len(self._slots):
            larger = np.zeros(1 << (4 * most - 1).bit_length(), np.uint64)
            tokens.rehash(self._slots, larger)
            self._slots = larger
        self._starts = _grown(self._starts, self._known + 1, most + 1)
        used = int(self._starts[self._known])
        self._text = _grown(self._text, used, used + int(offsets[-1] - offsets[0]) + 1)
        codes = np.empty(len(texts), np.int32)
        self._known = tokens.number(offsets, data, self._slots, self._starts, self._text, self._known, codes)
        return codes

    def names(self) -> pa.Array:
        """Return the texts by their numbers."""
        starts, text = pa.py_buffer(self._starts[: self._known + 1]), pa.py_buffer(self._text)
        names = pa.LargeStringArray.from_buffers(self._known, starts, text)
        return names.cast(pa.string()) if self._starts[self._known] < 2**31 else names


def _grown(array: npt.NDArray, used: int, wanted: int) -> npt.NDArray:
    if wanted <= len(array):
        return array
    larger = np.empty(2 * wanted, array.dtype)
    larger[:used] = array[:used]
    return larger
