"""Metrics by segment: length of the history, popularity of the target, new or known users, or a column of the items."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.atomic import typed_header
from recbole_hyper.data.tables.table import read_columns
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.pairs import read_cases
from recbole_hyper.evaluation.statistics import case_values, intervals
from recbole_hyper.evaluation.tables import Table, is_metric

Labels = npt.NDArray[np.str_]

_LENGTHS, _COUNTS = (1, 5, 10, 20, 50, 100), (1, 5, 20, 100, 500)  # the smallest value of each segment
_SMALL = 30  # labels with fewer cases are joined
_OTHER = "other"
FEW_USERS = 100  # below this number, BCa intervals cover less than they say


def segment_table(
    cases: pd.DataFrame, names: Sequence[str], metrics: Sequence[str], *, items: Path | None = None
) -> list[dict[str, Any]]:
    """Return a row per segment: by, segment, cases, users, each metric, and its 95 % interval (``<metric> low``, high).

    ``cases`` are the saved cases of a run (cases_test.parquet), ``items`` is the .item file of the data. ``names`` are
    history_length, item_popularity (training interactions of the target), user.new, or item.COLUMN; if an item has
    several values, its cases are in the segment of each. ``metrics`` that are not means over cases are left out.
    ConfigError for an unknown segment or column.
    """
    check_segments(names, items)
    rows = []
    for name in names:
        for label, index in _segments(name, cases, items):
            part = cases.iloc[index]
            ranks, users = part["rank"].to_numpy(dtype=np.int64), part["user_id"].to_numpy(dtype=str)
            row: dict[str, Any] = {"by": name, "segment": label, "cases": len(part), "users": len(np.unique(users))}
            for metric, (low, high) in intervals(ranks, users, metrics).items():
                values = case_values(metric, ranks)
                assert values is not None  # a metric with an interval is a mean over cases
                row |= {metric: float(values.mean()), f"{metric} low": low, f"{metric} high": high}
            rows.append(row)
    return rows


def segments_of_models(
    folders: Mapping[str, Sequence[Path]], names: Sequence[str], metric: str, *, items: Path, part: str = "test"
) -> Table:
    """Return a row per segment and model; ``folders`` are the runs of each model, one per seed.

    The cases of all seeds are pooled; the intervals cover users. Raises as :func:`segment_table`.
    """
    rows = []
    for name, runs in folders.items():
        cases = pd.concat([read_cases(folder, part) for folder in runs], ignore_index=True)
        rows += [{"model": name, **row} for row in segment_table(cases, names, [metric], items=items)]
    order = list(dict.fromkeys((row["by"], row["segment"]) for row in rows))
    rows.sort(key=lambda row: order.index((row["by"], row["segment"])))
    note = f"{metric} by segment; 95 % intervals over users of these trained models, cases of all seeds pooled."
    if any(row["users"] < FEW_USERS for row in rows):
        note += (
            f" Intervals of segments with fewer than {FEW_USERS} users are too narrow: with 30 users they cover 91 %."
        )
    return replace(segments_text(rows, ("by", "segment", "model", "cases")), note=note)


def segments_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ("by", "segment", "cases")) -> Table:
    """Return a table of the rows of :func:`segment_table`: metrics at the largest cut-off, with their intervals."""
    metrics = [name for name in rows[0] if is_metric(name)]
    cut = max((name.rpartition("@")[2] for name in metrics), key=int, default="")
    shown = [name for name in metrics if name.endswith(f"@{cut}")]
    for name in shown:
        rows = [{**row, f"{name}, 95 %": f"{row[f'{name} low']:.4f} to {row[f'{name} high']:.4f}"} for row in rows]
    heads = [head for name in shown for head in (name, f"{name}, 95 %")]
    return Table(rows, [*columns, *heads], forms=dict.fromkeys(shown, ".4f"))


def check_segments(names: Sequence[str], items: Path | None = None) -> None:
    """Raise ConfigError for an unknown segment, or for a column of items if the file ``items`` does not exist."""
    for name in names:
        if name.startswith("item.") and items is not None and not items.is_file():
            raise ConfigError(f"segment {name}: {items} does not exist")
        if name not in SEGMENTS and not (name.startswith("item.") and len(name) > 5):
            raise ConfigError(
                f"segment {name!r} is unknown; known: {', '.join(SEGMENTS)}, item.<column of the .item file>"
            )


def _segments(name: str, cases: pd.DataFrame, items: Path | None) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the label of each segment that has cases, and the positions of its cases."""
    if name.startswith("item."):
        yield from _by_column(cases, items, name.removeprefix("item."))
        return
    labels, order = SEGMENTS[name](cases)
    for label in order:
        index = np.flatnonzero(labels == label)
        if len(index):
            yield label, index


def _binned(values: npt.NDArray[np.int64], edges: Sequence[int], zero: str) -> tuple[Labels, list[str]]:
    """Return the label of each value, such as "5 to 9", and all labels in order."""
    order = [zero, *(f"{first} to {end - 1}" for first, end in pairwise(edges)), f"{edges[-1]} and more"]
    return np.array(order)[np.searchsorted(edges, values, side="right")], order


def _by_column(cases: pd.DataFrame, items: Path | None, column: str) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    if items is None:
        raise ConfigError(f"segment item.{column} needs an .item file")
    kinds = typed_header(items)
    identity, *known = kinds
    if column not in known:
        listed = ", ".join(f"item.{name}" for name in known)
        raise ConfigError(f"segment item.{column}: {items} has no such column; it has {listed}")
    table = read_columns(SourceFile(items))
    values = pd.Series(table[column].to_pylist(), index=table[identity].cast(pa.string()).to_pylist())
    own = values[~values.index.duplicated()].reindex(cases["item_id"]).fillna("").to_numpy()
    several = kinds.get(column, "").endswith("_seq")
    lists = pd.Series([text.split(" ") if several else [text] for text in own]).explode()
    sizes = lists.value_counts()
    rare = set(sizes.index[sizes < _SMALL]) if len(sizes) > 10 else set()
    lists = lists.map(lambda text: _OTHER if text in rare else text or "none")
    groups = {str(label): part.index.unique().to_numpy() for label, part in lists.groupby(lists)}
    yield from sorted(groups.items(), key=lambda entry: (entry[0] == _OTHER, -len(entry[1])))


SEGMENTS: dict[str, Callable[[pd.DataFrame], tuple[Labels, list[str]]]] = {
    "history_length": lambda cases: _binned(cases["position"].to_numpy(), _LENGTHS, "0"),
    "item_popularity": lambda cases: _binned(cases["item_count"].to_numpy(), _COUNTS, "not trained on"),
    "user.new": lambda cases: (np.where(cases["user_count"].to_numpy() == 0, "new", "known"), ["known", "new"]),
}
