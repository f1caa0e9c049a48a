"""A reader per way of writing interactions down; each yields raw chunks of columns."""
