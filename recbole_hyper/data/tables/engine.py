"""duckdb over Arrow tables in memory: no files, no network, one thread per call, bounded memory and time."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from recbole_hyper.errors import DataError

_MEMORY = "2GB"


class Error(ValueError):
    """duckdb cannot compute a statement or read a value; one line says why."""


class TooSlowError(DataError):
    """A statement took longer than it may."""


_running: set[Any] = set()


@functools.cache
def _database() -> Any:
    import duckdb  # not for commands that read no table

    connection = duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY})
    for setting in (
        *("enable_external_access", "autoload_known_extensions", "python_enable_replacements"),
        *("ieee_floating_point_ops", "error_on_division_by_zero"),  # a division by zero is null
    ):
        connection.execute(f"set global {setting} = false")
    connection.execute("set global TimeZone = 'UTC'")
    connection.execute("set global max_expression_depth = 100")  # Python reads no deeper syntax tree
    connection.execute("set lock_configuration = true")
    return connection


def query(sql: str, columns: Mapping[str, Any], seconds: float | None = None) -> pa.Table:
    """Return the result of ``sql`` over the Arrow arrays ``columns``, which are the table ``rows``.

    Threads may call this at the same time. The rows keep their order. Error if duckdb cannot compute it, TooSlowError
    after ``seconds`` or :func:`interrupt`.
    """
    import duckdb

    if seconds is not None and seconds <= 0:
        raise TooSlowError("no time was left for it")
    cursor = _database().cursor()
    timer = threading.Timer(seconds or 0.0, cursor.interrupt)
    timer.daemon = True
    try:
        cursor.register("rows", pa.table(dict(columns)))
        if seconds is not None:
            _running.add(cursor)
            timer.start()
        return cursor.sql(sql).to_arrow_table()
    except duckdb.InterruptException as error:
        raise TooSlowError(f"it takes more than {seconds:.2g} seconds, and was stopped") from error
    except duckdb.Error as error:
        raise Error(str(error).partition("\n")[0]) from error
    finally:
        timer.cancel()
        _running.discard(cursor)
        cursor.close()


def interrupt() -> None:
    """Stop all statements that have a bound of time, for a program that ends."""
    for cursor in tuple(_running):
        cursor.interrupt()


def syntax_tree(sql: str) -> dict[str, Any]:
    """Return duckdb's syntax tree of a statement, or an entry ``error_message``."""
    short = "skip_default := true, skip_empty := true, skip_null := true"
    return json.loads(query(f"select json_serialize_sql(c0, {short}) from rows", {"c0": pa.array([sql])})[0][0].as_py())


def sql_of(tree: Mapping[str, Any]) -> str:
    """Return the statement of a syntax tree."""
    text = pa.array([json.dumps(tree)])
    return str(query("select json_deserialize_sql(c0) from rows", {"c0": text})[0][0])
