"""Texts that are lists of items (and times), ``1,2`` or ``[1, 2]``: FILE.csv TARGET.csv MARK COLUMN..."""

import sys

import duckdb

source, target, mark, *columns = sys.argv[1:]
signs = "'[]\"'' '"
lists = ", ".join(f"unnest(string_split({name}, '{mark}')) as {name}" for name in columns)
trimmed = ", ".join(f"trim({name}, {signs}) as {name}" for name in columns)
rows = f"select * exclude ({', '.join(columns)}), {lists} from read_csv('{source}', all_varchar = true)"
duckdb.sql(f"copy (select * replace ({trimmed}) from ({rows})) to '{target}'")
