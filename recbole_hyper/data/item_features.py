"""Columns of an .item file as arrays over the item ids of a store."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import scipy.sparse

from recbole_hyper.data.sequences import binary_matrix, read_texts, write_array, write_texts
from recbole_hyper.data.source import Source
from recbole_hyper.data.tables.atomic import cleaned, typed_header
from recbole_hyper.data.tables.ids import Ids, as_text, single, text_array
from recbole_hyper.data.tables.times import to_seconds
from recbole_hyper.errors import DataError, did_you_mean
from recbole_hyper.files import read_json, write_json

logger = logging.getLogger("recbole_hyper")

_META = "columns.json"
TOKENS = ("token", "token_seq")


@dataclass(frozen=True)
class ItemColumn:
    """One column."""

    name: str
    kind: str  # token, token_seq, float or float_seq, as in the header
    # tokens: (n_items, longest) int32 codes from 1; numbers: (n_items, width) float32. 0 where an item has no value;
    # row 0 is padding
    values: npt.NDArray
    size: int  # tokens: number of codes, including 0; numbers: width
    # tokens: (size - 1,) text of each code from 1; numbers: (2,) float64, the subtracted mean and the divisor
    meaning: npt.NDArray

    @property
    def of_tokens(self) -> bool:
        """Whether the values are codes of tokens."""
        return self.kind in TOKENS

    def extended(self, column: pa.ChunkedArray, separator: str) -> ItemColumn:
        """Return this column with the (m,) values of ``column`` appended, which ``prepare --items`` may read too.

        Sequences are lists, or texts with ``separator``, ``|``, ``;`` or ``,`` between. Unknown tokens count as
        missing, with a warning. DataError for an invalid number, or sequences of numbers of another length.
        """
        nested = pa.types.is_nested(column.type)
        if nested and not self.kind.endswith("_seq"):
            raise DataError(f"the feature {self.name!r} of type {self.kind} needs one value for each item, not a list")
        values = (as_text(single(column)) if self.of_tokens and not nested else column).to_pandas().astype(object)
        parts, rows, places = _parts(self._as_written(values, separator))
        if self.of_tokens:
            entries = pd.Index(np.asarray(self.meaning)).get_indexer(pd.Index(parts.astype(str))) + 1
            width = max(self.values.shape[1], int(places.max(initial=-1)) + 1)
            if unknown := int((entries == 0).sum()):
                logger.warning("new items: %d values of %s are unknown and count as missing", unknown, self.name)
        else:
            numbers = pd.to_numeric(parts, errors="coerce").to_numpy(dtype=np.float64)
            if self.kind == "float" and not np.isfinite(numbers).all():
                seconds, dated = to_seconds(pa.array(parts.astype(str), pa.string()), "iso")
                numbers = seconds if dated.all() else numbers
            lengths, width = np.bincount(rows, minlength=1), self.values.shape[1]
            if wrong := [*rows[~np.isfinite(numbers)], *np.flatnonzero(~np.isin(lengths, (0, width)))]:
                text = f"row {wrong[0] + 1} has {column[int(wrong[0])].as_py()!r}"
                raise DataError(f"the feature {self.name!r} needs {width} finite numbers for each new item; {text}")
            entries = (numbers - self.meaning[0]) / self.meaning[1]
            if np.abs(entries).max(initial=0.0) > np.finfo(np.float32).max:
                raise DataError(f"the feature {self.name!r} has numbers that are too large for float32; scale them")
        table = np.zeros((len(self.values) + len(values), width), dtype=self.values.dtype)
        table[: len(self.values), : self.values.shape[1]] = self.values
        table[len(self.values) + rows, places] = entries
        return replace(self, values=table)

    def _as_written(self, values: pd.Series, separator: str) -> pd.Series:
        """Return the values, also those of a table that ``prepare`` reads, as an atomic file has them."""
        if not self.kind.endswith("_seq"):
            known = set(np.asarray(self.meaning).tolist()) if self.of_tokens else {}
            new = values.map(lambda text: text if text in known else cleaned([text], " ")[0], na_action="ignore")
            return new if self.of_tokens else values
        if all(isinstance(value, str) for value in values.dropna()):
            mark = next((m for m in "|;," if values.str.contains(m, regex=False).any()), separator)
            values = values.map(lambda text: text.strip("[]").split(mark), na_action="ignore")
        return values.map(lambda entries: cleaned(entries, "_"), na_action="ignore")


@dataclass(frozen=True)
class ItemFeatures:
    """Columns of equal length, a row per item id."""

    columns: tuple[ItemColumn, ...]

    @property
    def n_items(self) -> int:
        """Number of item ids, padding included."""
        return len(self.columns[0].values)

    def extended(self, table: pa.Table, separator: str) -> ItemFeatures:
        """Return these features with the rows of ``table`` appended; DataError for a missing column."""
        if missing := [column.name for column in self.columns if column.name not in table.column_names]:
            has = ", ".join(table.column_names)
            raise DataError(f"new items need the features {', '.join(missing)}; the table has {has}")
        return ItemFeatures(tuple(column.extended(table[column.name], separator) for column in self.columns))

    def fingerprint(self) -> str:
        """Return a digest of the names, types and values."""
        digest = hashlib.sha256()
        for column in self.columns:
            digest.update(f"\n{column.name} {column.kind} {column.size} {column.values.shape}\n".encode())
            digest.update(np.ascontiguousarray(column.values).data.cast("B"))
        return digest.hexdigest()[:32]

    def save(self, folder: Path) -> None:
        """Write an .npy file per column, and their names and types last."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, column in enumerate(self.columns):
            write_array(folder / f"{number}.npy", column.values)
            write_texts(folder, f"{number}-meaning", column.meaning)
        meta = [{"name": column.name, "kind": column.kind, "size": column.size} for column in self.columns]
        write_json(folder / _META, {"columns": meta})

    @classmethod
    def load(cls, folder: Path) -> ItemFeatures:
        """Read what :meth:`save` wrote."""
        columns = []
        for number, entry in enumerate(read_json(folder / _META)["columns"]):
            values = np.load(folder / f"{number}.npy", allow_pickle=False)
            columns.append(ItemColumn(**entry, values=values, meaning=read_texts(folder, f"{number}-meaning")))
        return cls(tuple(columns))


def feature_columns(source: Source, names: Sequence[str], key: str = "selected_features") -> dict[str, str]:
    """Return name and type of some columns of the .item file; ``key`` is the configuration key with their names."""
    path = source.path("item")
    if not path.is_file():
        raise DataError(f"{key}={list(names)}: {path} does not exist; features are columns of this file")
    columns = typed_header(path, source.field_separator, source.encoding)
    if columns.get(source.item_field) != "token":
        raise DataError(f"{path} has no column {source.item_field}:token (ITEM_ID_FIELD), which names a line's item")
    known = [name for name in columns if name != source.item_field]
    for name in names:
        if name not in known:
            hint = did_you_mean(repr(name), map(repr, known), n=1)
            features = ", ".join(known) or "none"
            raise DataError(f"{key}: {path} has no feature {name!r}{hint}; its features: {features}")
    if len(set(names)) < len(names):
        raise DataError(f"{key}={list(names)} names a feature twice; remove one")
    return {name: columns[name] for name in names}


def read_item_features(
    source: Source, names: Sequence[str], item_tokens: npt.NDArray[np.str_], *, standardize: bool
) -> ItemFeatures:
    """Read columns of the .item file for the (n_items,) original ids ``item_tokens``; entry 0 is padding.

    If an id has two lines, the first counts; an item without a line has no values. ``standardize`` scales float columns
    to mean 0 and standard deviation 1 over the items with a value. DataError as in :func:`feature_columns` and
    ``read_atomic``, and if no item has a line, a column has fewer than two distinct values, or sequences of numbers
    differ in length.
    """
    kinds = feature_columns(source, names)
    path = source.path("item")
    frame = source.read(path, {source.item_field: "token", **kinds}, ids=(source.item_field,))
    frame = frame.drop_duplicates([source.item_field])
    numbers = Ids(item_tokens).find(frame[source.item_field].to_numpy(dtype=object))
    frame, numbers = frame[numbers > 0], numbers[numbers > 0]
    if frame.empty:
        raise DataError(f"{path} has no line of any of the {len(item_tokens) - 1} items of the interactions")
    order = np.argsort(numbers)  # number tokens in the order of the item ids, not of the file
    frame, columns = frame.iloc[order], []
    for name, kind in kinds.items():
        try:
            columns.append(_encoded(frame[name], name, kind, numbers[order], len(item_tokens), standardize))
        except ValueError as error:
            raise DataError(f"{path}: the feature {name!r} {error}; remove it from selected_features") from error
    return ItemFeatures(tuple(columns))


def diversity_tokens(
    source: Source, names: Sequence[str], item_tokens: npt.NDArray[np.str_]
) -> scipy.sparse.csr_matrix:
    """Return the (n_items, T) binary matrix of the tokens of ``names``, the columns of ``diversity_features``.

    DataError for a missing column, or a column of numbers.
    """
    key = "diversity_features"
    for name, kind in feature_columns(source, names, key).items():
        if kind not in TOKENS:
            raise DataError(f"{key}: {name} is of type {kind}; distances need columns of type token or token_seq")
    columns = read_item_features(source, names, item_tokens, standardize=False).columns
    codes = ((column.values, column.values > 0, column.size) for column in columns)
    matrices = [binary_matrix(values[valid], valid.sum(axis=1), size) for values, valid, size in codes]
    return scipy.sparse.hstack(matrices, format="csr")


def _parts(values: pd.Series) -> tuple[pd.Series, npt.NDArray, npt.NDArray]:
    """Return the entries of a column (of its sequences) that are not missing, and the row and place of each."""
    parts = values.reset_index(drop=True).explode().dropna()
    parts = parts[parts != ""]
    return parts, parts.index.to_numpy(), parts.groupby(level=0).cumcount().to_numpy()


def _encoded(
    values: pd.Series, name: str, kind: str, rows: npt.NDArray[np.int64], n_items: int, standardize: bool
) -> ItemColumn:
    """Return the values of the items ``rows`` as a column; ValueError says what is wrong with them."""
    parts, lines, places = _parts(values)
    width = max(1, int(places.max(initial=-1)) + 1)
    entries: npt.NDArray
    if kind in TOKENS:  # codes in order of first appearance
        codes, distinct = pd.factorize(parts.astype(object))
        if len(distinct) < 2:
            raise ValueError(f"has {len(distinct)} value{'s' * (len(distinct) != 1)} over all items")
        entries, size, meaning = np.asarray(codes + 1, dtype=np.int32), len(distinct) + 1, text_array(distinct)
    else:
        numbers = parts.to_numpy(dtype=np.float64)
        lengths = np.bincount(lines, minlength=len(values))
        if len(widths := np.unique(lengths[lengths > 0])) > 1:
            other = np.flatnonzero((lengths > 0) & (lengths != lengths[lengths > 0][0]))[0]
            line = int(values.index[other]) + 2
            raise ValueError(f"has sequences of {len(widths)} lengths (the first of another length is at line {line})")
        if len(numbers) <= width or (numbers.reshape(-1, width) == numbers[:width]).all():
            raise ValueError("has fewer than two distinct values")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = (numbers.mean(), numbers.std()) if kind == "float" and standardize else (0.0, 1.0)
            entries = (numbers - mean) / deviation
        meaning = np.array([mean, deviation])
        if not np.isfinite(meaning).all() or np.abs(entries).max() > np.finfo(np.float32).max:
            raise ValueError("has numbers that are too large for float32")
        entries, size = entries.astype(np.float32), width
    table = np.zeros((n_items, width), dtype=entries.dtype)
    table[rows[lines], places] = entries
    return ItemColumn(name, kind, table, size, meaning)
