"""Interactions that a caller gives as a frame: the same filters, ids and order as of a file with these rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.atomic import PAD, DataError
from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.data.prepare.frames import interactions_of, names_of
from recbole_hyper.data.reading import make_store
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.data.table import Table, encoded
from recbole_hyper.errors import ConfigError

_WHERE = "the frame"


def check_given(config: Any) -> None:
    """Raise ConfigError for keys that ask for more of a frame than user, item and time."""
    source = Source.of(config)
    fields = [source.user_field, source.item_field, source.time_field]
    read = f"{', '.join(fields)} alone are read"
    if missing := sorted(set(source.val_interval) - set(fields)):
        raise ConfigError(f"val_interval names {missing[0]!r}, but of a frame {read}; drop rows from the frame instead")
    if set(source.load_col) != {"inter"} or set(source.load_col["inter"]) - {*fields, "*"}:
        raise ConfigError(f"load_col={dict(source.load_col)!r}: of a frame {read}; leave load_col out")
    for key in ("alias_of_user_id", "alias_of_item_id"):
        if config[key]:
            raise ConfigError(f"{key} needs atomic files; users and items of a frame share no ids")


def given_store(config: Any, frame: Any) -> SequenceStore:
    """Return the sequences of a pandas or polars DataFrame or an Arrow table, filtered as the configuration says.

    The columns are those that USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD name, else those found by their names.
    ConfigError: see :func:`check_given`; DataError for columns and values that are missing, and nothing left.
    """
    check_given(config)
    source = Source.of(config)
    try:
        table = interactions_of(frame, _columns(source, frame))
    except PrepareError as error:
        text, option, _ = str(error).partition("; name ")
        hint = "; the keys USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD name columns" if option else ""
        raise DataError(f"interactions: {text}{hint}") from error
    for name in ("user_id", "item_id"):
        if (row := pc.index(table[name], PAD).as_py()) >= 0:
            raise DataError(f"interactions: {_WHERE}, row {row} (from 0): {PAD!r} is RecBole's name for padding, no id")
    tokens = {source.user_field: encoded(table["user_id"]), source.item_field: encoded(table["item_id"])}
    numbers = {source.time_field: np.asarray(table["timestamp"].to_numpy(), dtype=np.float64)}
    del table
    store = make_store(source, Table(tokens, numbers), (None, None), _WHERE)
    pa.default_memory_pool().release_unused()
    return store


def _columns(source: Source, frame: Any) -> Mapping[str, str]:
    """Return the columns that the configuration names, as far as the frame has them."""
    names = {str(name) for name in names_of(frame)}
    fields = {"user_id": source.user_field, "item_id": source.item_field, "timestamp": source.time_field}
    return {field: column for field, column in fields.items() if column in names}
