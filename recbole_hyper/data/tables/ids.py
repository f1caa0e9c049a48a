"""Original ids: any column as text, numbering by first appearance, and look-ups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.errors import DataError

Good = npt.NDArray[np.bool_]

PAD = "[PAD]"
# what programs write for a missing value; in csv files these are not ids
MISSING_IDS = ("NA", "N/A", "NaN", "nan", "None", "NULL", "null", "<NA>", "\\N")
# from here on, floats of so many bits lose digits of whole numbers
_EXACT = {16: 2.0**11, 32: 2.0**24, 64: 2.0**53}
# an array of fixed width may take this many bytes, or this many times the bytes of its characters
_WIDE_BYTES, _WIDE_TIMES = 64 << 20, 8


def is_text(kind: pa.DataType) -> bool:
    """Return whether this is one of Arrow's string types."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_list(values: pa.Array) -> bool:
    """Return whether the values are lists."""
    kind = values.type
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def relisted(lists: pa.Array, entries: pa.Array) -> pa.Array:
    """Return other ``entries`` in lists of the lengths of ``lists``; null stays null."""
    offsets = np.concatenate([[0], np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())])
    mask = pc.is_null(lists) if lists.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(offsets), entries, mask=mask)


def single(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def as_mask(values: pa.Array) -> Good:
    """Return Arrow's booleans as a numpy array; null is False. They become bytes first, as numpy is slow with bits."""
    return np.array(pc.fill_null(values, False).cast(pa.uint8()), dtype=bool)


def as_text(values: pa.Array) -> pa.Array:
    """Return values as text; null for bytes that are not UTF-8 and floats from 2**53 on. DataError for lists."""
    kind = values.type
    if pa.types.is_binary(kind) and is_plain(values):
        return values.view(pa.string())
    if pa.types.is_dictionary(kind):
        return as_text(values.dictionary).take(values.indices)
    if isinstance(kind, pa.BaseExtensionType):  # UUIDs
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        exact_below, values = _EXACT[kind.bit_width], values.cast(pa.float64())
        values = pc.if_else(pc.less(pc.abs(values), exact_below), values, pa.scalar(None, pa.float64()))
        integers = pc.cast(pc.floor(values), pa.int64(), safe=False)
        exact = pc.fill_null(pc.equal(integers.cast(pa.float64(), safe=False), values), False)
        return pc.if_else(exact, integers.cast(pa.string()), values.cast(pa.string()))
    if pa.types.is_decimal(kind):  # 7.00 is 7
        trimmed = pc.replace_substring_regex(values.cast(pa.string()), r"(\.[0-9]*?)0+$", r"\1")
        return pc.replace_substring_regex(trimmed, r"\.$", "")
    try:
        return values.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise DataError(f"a column of {kind} is neither text nor numbers; ids must be text or numbers") from error
    except pa.ArrowInvalid:
        return pa.array([decoded(value) for value in values.to_pylist()], pa.string())


def decoded(value: Any) -> Any:
    """Return bytes as text, None if they are not UTF-8; return other values unchanged."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None


def to_strings(values: pa.Array) -> tuple[pa.Array, Good]:
    """Return text without surrounding blanks, and which entries are not empty."""
    values = as_text(values)
    values = values if is_plain(values) else pc.utf8_trim_whitespace(values)
    return values, as_mask(pc.greater(pc.binary_length(values), 0))


def is_plain(values: pa.Array) -> bool:
    """Return whether texts or bytes are ASCII without blanks and control characters, so nothing is to check or trim."""
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    return bool(data.min(initial=ord("~")) > ord(" ") and data.max(initial=0) <= ord("~"))


def id_fault(value: Any) -> str:
    """Return why a Python value is not an id."""
    if value is None or value in ("", b"") or value != value:
        return "null or empty; drop such rows"
    if isinstance(value, float):
        return f"{value!r} is a float that has lost digits; write such ids as whole numbers or text"
    if value == PAD:
        return f"{PAD!r}, RecBole's name for padding; drop such rows"
    if "\0" in str(value) or b"\0" in (value if isinstance(value, bytes) else b""):
        return f"{value!r} contains a NUL character"
    return f"{value!r}, not UTF-8; give --encoding" if isinstance(value, bytes) else f"{value!r}, which is not an id"


def column_of_values(values: Any) -> pa.ChunkedArray | None:
    """Return a Series or array of pandas, polars, Arrow or numpy as an Arrow column; None for anything else.

    Python objects that are ids (text, whole numbers, UUIDs) become text. DataError, with the row, for other objects,
    and for a float among texts, which may be the same id as one of them.
    """
    if hasattr(values, "to_arrow") and not isinstance(values, pa.Array):  # polars, without importing it
        values = values.to_arrow()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            return None
        values = pd.Series(values)
    if isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        series = pd.Series(values)
        if isinstance(series.dtype, pd.PeriodDtype):  # Arrow would count the periods since 1970
            series = series.dt.to_timestamp()
        try:
            values = pa.Array.from_pandas(series)
            if pa.types.is_date(values.type) and series.dtype == object:  # Arrow would drop the times of day
                values = pa.array(pd.to_datetime(series, utc=True).dt.tz_convert(None))
        except (pa.ArrowTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
            values = pa.array(_plain_ids(series.to_numpy(dtype=object)), pa.string())
    if isinstance(values, pa.ChunkedArray):
        return values
    return pa.chunked_array([values]) if isinstance(values, pa.Array) else None


def _plain_ids(values: npt.NDArray[Any]) -> list[str | None]:
    texts: list[str | None] = []
    for row, value in enumerate(values.tolist()):
        if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
            texts.append(None)
        elif isinstance(value, float | np.floating):
            raise DataError(
                f"row {row} (from 0): the column mixes the float {value!r} with text, and {value:g} may be one of the "
                "texts; make all ids text or whole numbers"
            )
        elif isinstance(value, bool) or not isinstance(value, str | int | np.integer | UUID):
            raise DataError(f"row {row} (from 0): {value!r} is neither text nor a whole number, so it is not an id")
        else:
            texts.append(str(value))
    return texts


def natural(values: pa.Array) -> npt.NDArray[Any]:
    """Return whole numbers as int64, other ids as text. DataError, with the row, for a null or another invalid id."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_integer(values.type):
        return values.to_numpy(zero_copy_only=False)
    texts = as_text(values)
    wrong = pc.or_(pc.is_null(texts), pc.match_substring(pc.fill_null(texts, "\0"), "\0"))
    if (row := pc.index(wrong, True).as_py()) >= 0:
        raise DataError(f"row {row} (from 0): {id_fault(values[row].as_py())}")
    if pa.types.is_floating(values.type) and as_mask(pc.match_substring_regex(texts, "^-?[0-9]+$")).all():
        return texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return text_array(texts)


def text_array(texts: Iterable[Any]) -> npt.NDArray[Any]:
    """Return texts as a numpy array of fixed width, or of objects if a few long texts would make that too large."""
    listed = texts.to_pylist() if isinstance(texts, pa.Array | pa.ChunkedArray) else [*texts]
    lengths = [*map(len, listed)]
    fits = 4 * max(lengths, default=0) * len(listed) <= max(_WIDE_BYTES, 4 * _WIDE_TIMES * sum(lengths))
    return np.array(listed, dtype=np.str_ if fits else object)


def text_list(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Return :func:`text_array` of values of any type."""
    return text_array([str(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)])


def numbered(parts: list[pa.DictionaryArray]) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return the (n,) codes of all texts, numbered by first appearance, and the distinct texts by code."""
    column = pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.large_string())).unify_dictionaries()
    codes = [part.indices.to_numpy(zero_copy_only=False) for part in column.chunks]
    names = column.chunk(0).dictionary if codes else pa.array([], pa.large_string())
    small = names.nbytes < 2**31
    # copies: Arrow's memory is read-only
    return np.concatenate([np.zeros(0, np.int32), *codes]), names.cast(pa.string()) if small else names


class Ids:
    """Looks up original ids.

    Args:
        tokens: (n,) original ids by number; entry 0 is padding and never a result.
    """

    def __init__(self, tokens: npt.NDArray[Any]) -> None:
        self.tokens = tokens

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self.tokens[1:].tolist(), dtype=object)

    def find(self, wanted: npt.NDArray[Any] | pa.Array | pa.ChunkedArray | list[str]) -> npt.NDArray[np.int64]:
        """Return the number of each id in ``wanted`` (m,), 0 for unknown ids."""
        values = wanted.to_pylist() if isinstance(wanted, pa.Array | pa.ChunkedArray) else wanted
        return np.asarray(self._index.get_indexer(pd.Index([str(value) for value in values], dtype=object)) + 1)
