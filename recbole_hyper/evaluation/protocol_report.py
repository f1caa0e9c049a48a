"""What a protocol did with the data, as tables: counts, dates and losses."""

from typing import Any

import numpy as np

from recbole_hyper.evaluation.tables import table
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.types import Split


def report_rows(split: Split) -> list[dict[str, Any]]:
    """Return a row per part: interactions or cases, users, items, first and last time, and candidates if sampled."""
    store = split.store
    rows: list[dict[str, Any]] = [
        _part("all", store.row_of, store.items, store.times),
        _trained("train", split, split.train_lengths),
    ]
    if split.refit_lengths is not None:
        rows.append(_trained("train + valid (refit)", split, split.refit_lengths))
    for name, cases in (("valid", split.valid), ("test", split.test)):
        row = _part(name, cases.rows, cases.targets, cases.times)
        known = split.candidates(name)
        if len(cases):
            sampled = None if cases.candidates is None else cases.candidates.shape[1] + 1
            row["candidates"] = sampled or (store.n_items - 1 if known is None else int(known.sum()))
            row["history, median"] = float(np.median(cases.ends - cases.starts))
        rows.append(row)
    return rows


def lost(split: Split) -> dict[str, int]:
    """Return how many users and items of the data no part uses."""
    store = split.store
    used_rows = np.zeros(store.n_rows, dtype=bool)
    used_items = np.zeros(store.n_items, dtype=bool)
    lengths = split.train_lengths if split.refit_lengths is None else split.refit_lengths
    used_rows[lengths > 0] = True
    used_items[store.items[store.prefix_index(lengths)]] = True
    for cases in (split.valid, split.test):
        used_rows[cases.rows] = True
        used_items[cases.targets] = True
    return {
        "users in no part": len(store.user_tokens) - 1 - int(used_rows.sum()),
        "items in no part": store.n_items - 1 - int(used_items.sum()),
    }


def protocol_report(split: Split) -> str:
    """Return the tables of :func:`report_rows`, of the protocol's own counts and of :func:`lost` as text."""
    columns = ["part", "interactions", "users", "items", "from", "to", "candidates", "history, median"]
    counts = {**split.counts, **lost(split)}
    title = counts.pop("protocol", "protocol")
    lines = [{"count": name, "value": str(value)} for name, value in counts.items()]
    return f"\nProtocol: {title}\n{table(report_rows(split), columns)}\n\n{table(lines)}\n"


def _trained(name: str, split: Split, lengths: np.ndarray) -> dict[str, Any]:
    store, index = split.store, split.store.prefix_index(lengths)
    return _part(name, np.repeat(np.arange(store.n_rows), lengths), store.items[index], store.times[index])


def _part(name: str, rows: np.ndarray, items: np.ndarray, times: np.ndarray) -> dict[str, Any]:
    return {
        "part": name,
        "interactions": len(items),
        "users": int(np.unique(rows).size),
        "items": int(np.unique(items).size),
        "from": date(float(times.min())) if len(times) else None,
        "to": date(float(times.max())) if len(times) else None,
    }
