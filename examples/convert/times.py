"""Times in several columns, in ticks or days, or an order of equal times: FILE.csv TARGET.csv EXPRESSION [ORDER]

The column ``time`` gets an expression of duckdb, such as "Date || ' ' || Time", "make_date(year, month, day)",
"make_timestamp((ticks - 621355968000000000) // 10)", or "timestamp '1899-12-30' + to_seconds(day * 86400)" for a
spreadsheet; rows are sorted by ORDER, such as "date, step".
"""

import sys

import duckdb

source, target, moment, *order = sys.argv[1:]
rows = f"select *, {moment} as time from read_csv('{source}') {'order by ' + order[0] if order else ''}"
duckdb.sql(f"copy ({rows}) to '{target}'")
