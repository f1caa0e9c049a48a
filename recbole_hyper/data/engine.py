"""duckdb over Arrow tables in memory: no files, no network, one thread per call, bounded memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_MEMORY = "2GB"


class Error(ValueError):
    """duckdb cannot compute a statement or read a value; one line says why."""


@functools.cache
def _database() -> Any:
    import duckdb  # not for commands that read no table

    connection = duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY})
    for setting in ("enable_external_access", "autoload_known_extensions", "python_enable_replacements"):
        connection.execute(f"set {setting} = false")
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set lock_configuration = true")
    return connection


def query(sql: str, columns: Mapping[str, Any]) -> pa.Table:
    """Return the result of ``sql`` over the Arrow arrays ``columns``, which are the table ``rows``.

    Threads may call this at the same time. The rows keep their order. Error if duckdb cannot compute it.
    """
    import duckdb

    cursor = _database().cursor()
    try:
        cursor.register("rows", pa.table(dict(columns)))
        return cursor.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise Error(str(error).partition("\n")[0]) from error
    finally:
        cursor.close()


def syntax_tree(sql: str) -> dict[str, Any]:
    """Return duckdb's syntax tree of a statement, or an entry ``error_message``."""
    cursor = _database().cursor()
    sparse = "skip_default := true, skip_empty := true, skip_null := true"
    return json.loads(cursor.execute(f"select json_serialize_sql(?, {sparse})", [sql]).fetchone()[0])


def sql_of(tree: Mapping[str, Any]) -> str:
    """Return the statement of a syntax tree."""
    return str(_database().cursor().execute("select json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()[0])
