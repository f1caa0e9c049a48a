"""A reader per way of writing interactions down; each yields raw chunks of columns.

Arguments that readers share:
    stream: the decompressed bytes.
    malformed: told of every line that cannot be read; the builder, which checks the values, tells it of the others.
    keys: key of each field user_id, item_id, timestamp and, optionally, rating.
    columns: name of the column of each field, likewise.
    time_format: see ``values.to_seconds``.
    block_bytes: size of a chunk before parsing.
"""
