"""Reads a table with the columns that only ``prepare`` understands: steps that order ties, quantities and orders."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data import guess
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.formats import FIELDS, Format, Layout, find
from recbole_hyper.data.ids import as_text
from recbole_hyper.data.interactions import Interactions, joined
from recbole_hyper.data.parsers import Rows
from recbole_hyper.data.prepare.cleaning import Cleaning
from recbole_hyper.data.tables import Table, open_table, with_points
from recbole_hyper.data.time_columns import make_one, time_columns
from recbole_hyper.data.times import guessed_time_format, to_numbers, to_seconds
from recbole_hyper.errors import DataError

# names of a column of quantities, which may have returns
_QUANTITIES = ("quantity", "qty", "units")


@dataclasses.dataclass(frozen=True)
class Reader:
    """An open table and its further columns."""

    table: Table
    ordering: tuple[str, ...]  # columns that order equal times, the first of them before the others
    basket: str | None  # column of orders
    quantity: str | None  # column of quantities
    returns: bool  # whether negative quantities cancel purchases, as the user named their column

    @property
    def form(self) -> Format:
        """The format, with the columns of the times as the user would write them."""
        columns = dict(self.table.form.columns or {})
        if self.ordering:
            columns["timestamp"] = "+".join((columns["timestamp"], *self.ordering))
        return dataclasses.replace(self.table.form, columns=columns or None)

    def read(self, blocks: Iterator[Rows], say: Callable[[str], None]) -> Interactions:
        """Join the blocks and apply the further columns; DataError, with the line, for an invalid value."""
        kept: dict[str, list[pa.Array]] = {name: [] for name in filter(None, (*self.ordering, self.basket))}
        quantities: list[Any] = []

        def noted() -> Iterator[Rows]:
            for block in blocks:
                for name, parts in kept.items():
                    parts.append(block.columns[guess.OTHER + name])
                if self.quantity:
                    quantities.append(self._quantities(block))
                yield block

        data = joined(noted())
        columns = {name: pa.chunked_array(parts).combine_chunks() for name, parts in kept.items() if parts}
        if quantities:
            data.quantities = np.concatenate(quantities)
        if self.basket and len(data):
            moved = data.group_baskets(_numbered(self.basket, columns[self.basket]))
            if moved:
                say(f"{moved:,} orders begin at the time of the user's order before them; each was moved to 1 after it")
        if self.ordering and len(data):
            data.take(np.lexsort([_key(name, columns[name]) for name in self.ordering][::-1]))
        if data.quantities is not None and not self.returns:
            if negative := int((data.quantities < 0).sum()):
                say(f"{negative:,} rows have a {self.quantity} below 0: these are returns, but they count as "
                    f"purchases; --returns={self.quantity} cancels both")  # fmt: skip
            data.quantities = None
        return data

    def _quantities(self, block: Rows) -> Any:
        values = block.columns[f"{guess.OTHER}{self.quantity}"]
        values = with_points(as_text(values)) if self.table.form.separator == ";" else values
        numbers, good = to_numbers(values)
        if self.returns and not good.all():
            row = int(np.argmin(good))
            value = as_text(values)[row].as_py()
            raise DataError(f"--returns={self.quantity}: {value!r} in line {block.lines[row]} is not a number")
        return numbers


def open_source(
    file: SourceFile, format: str, layout: Layout, cleaning: Cleaning, others: Collection[str], order: str
) -> Reader:
    """Open a file with all columns that ``cleaning`` and a condition (``others``) need; raises as ``open_table``."""
    form = find(format).set(layout, format)
    names, ordering = list[str](), list[str]()
    if "columns" in form.own:
        named = guess.named(file, form)
        names = list(named.names)
        several = time_columns((layout.columns or {}).get("timestamp"), names) if order == "time" else []
        if several:
            second = dataclasses.replace(named, columns={"timestamp": several[1]})
            if not make_one(several, guess.sample(file, second, ["timestamp"])["timestamp"]):
                first, *ordering = several
                layout = dataclasses.replace(layout, columns={**(layout.columns or {}), "timestamp": first})
    quantity = cleaning.returns or next((name for name in names if name.lower() in _QUANTITIES), None)
    columns = [*others, *ordering, *filter(None, (quantity, cleaning.basket))]
    fields = [name for name in FIELDS if order == "time" or name != "timestamp"]
    rated = cleaning.threshold is not None or "rating" in (layout.columns or {})
    table = open_table(
        file,
        layout,
        format=format,
        fields=fields,
        optional=() if rated and cleaning.threshold is None else ("rating",),
        others=tuple(dict.fromkeys(columns)),
    )
    table = dataclasses.replace(table, blank_ratings=not rated and bool(table.form.own))
    return Reader(table, tuple(ordering), cleaning.basket, quantity, bool(cleaning.returns))


def _key(name: str, values: pa.Array) -> Any:
    """Return numbers (n,) with the order of a column; DataError for values that are neither numbers nor times."""
    numbers, good = to_seconds(values, "steps")
    if not good.all() and not pa.types.is_temporal(values.type):
        numbers, good = to_seconds(values, guessed_time_format(values.slice(0, 10_000), name) or "iso")
    if not good.all():
        value = as_text(values)[int(np.argmin(good))].as_py()
        raise DataError(f"--columns=timestamp=...+{name}: {value!r} is neither a number nor a time")
    return numbers


def _numbered(column: str, values: pa.Array) -> Any:
    """Return a number (n,) for each order id; DataError for a missing one."""
    texts = as_text(values)
    blank = pc.equal(pc.fill_null(pc.utf8_trim_whitespace(texts), ""), "")
    if count := pc.sum(blank).as_py():
        raise DataError(f"--basket={column}: {count:,} rows have no order; leave them out by --where, or drop --basket")
    return pd.factorize(texts.to_pandas())[0]
