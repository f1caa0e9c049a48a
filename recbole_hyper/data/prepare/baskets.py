"""Reads a table with the columns that only ``prepare`` understands: those of conditions, and of orders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data import guess
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.formats import FIELDS, Layout
from recbole_hyper.data.ids import as_text
from recbole_hyper.data.interactions import Interactions, joined
from recbole_hyper.data.parsers import Rows
from recbole_hyper.data.prepare.cleaning import Cleaning
from recbole_hyper.data.tables import Table, open_table
from recbole_hyper.errors import DataError


def open_source(
    file: SourceFile, format: str, layout: Layout, cleaning: Cleaning, others: Collection[str], order: str
) -> Table:
    """Open a file with all columns that ``cleaning`` and a condition (``others``) need; raises as ``open_table``."""
    fields = [name for name in FIELDS if order == "time" or name != "timestamp"]
    others = tuple(dict.fromkeys([*others, *filter(None, [cleaning.basket])]))
    rated = cleaning.threshold is not None
    return open_table(file, layout, format=format, fields=fields, optional=() if rated else ("rating",), others=others)


def read(blocks: Iterator[Rows], basket: str | None, say: Callable[[str], None]) -> Interactions:
    """Join the blocks; all rows of a user's order, by the column ``basket``, get one time."""
    orders: list[pa.Array] = []

    def noted() -> Iterator[Rows]:
        for block in blocks:
            if basket:
                orders.append(as_text(block.columns[guess.OTHER + basket]))
            yield block

    data = joined(noted())
    if basket and len(data):
        names = pa.chunked_array(orders)
        if count := pc.sum(pc.equal(pc.fill_null(pc.utf8_trim_whitespace(names), ""), "")).as_py():
            raise DataError(f"--basket={basket}: {count:,} rows have no order; leave them out by --where")
        if moved := data.group_baskets(pd.factorize(names.to_pandas())[0]):
            say(f"{moved:,} orders begin at the time of the user's order before them; each was moved to 1 after it")
    return data
