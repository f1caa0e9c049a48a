"""What an entry of a report is called: by what sets it apart from the others around it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.evaluation.results import protocol_text
from recbole_hyper.report.collect import TRIAL, Entry
from recbole_hyper.report.differences import differing, in_words


def settings_texts(entries: Sequence[Entry], without: str = "") -> dict[Path, str]:
    """Return by folder what sets each entry apart from the others of its model, data and protocol, in one line; "" for
    an entry that nothing sets apart.

    The key ``without`` is never named: equal texts are then runs that differ in nothing but that key and the seed.
    """
    found = {}
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        place = *(str(entry.result.get(key)) for key in ("model", "dataset")), protocol_text(entry.result)
        groups.setdefault(place, []).append(entry)
    for group in groups.values():
        settings = [_settings_of(entry) for entry in group]
        keys = [key for key in differing(settings) if key != without]
        for entry, own in zip(group, settings, strict=True):
            found[entry.folder] = in_words({key: own[key] for key in keys if key in own})
    return found


def _settings_of(entry: Entry) -> dict[str, Any]:
    return {**entry.settings, **entry.read, "data": str(entry.result.get("data_fingerprint"))[:8]}


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return a label for each of a few entries in one figure: model, what sets it apart from others of its model, and
    data, protocol and seed where they differ; no label twice."""
    places = {entry.folder: (str(entry.result.get("dataset")), protocol_text(entry.result)) for entry in entries}
    apart = [number for number, values in enumerate(zip(*places.values(), strict=True)) if len(set(values)) > 1]
    labels = []
    for entry in entries:
        alike = [other for other in entries if other.model == entry.model]
        values = {**entry.settings, **entry.read}
        keys = dict.fromkeys([*entry.settings, *differing([other.read for other in alike])])
        words = in_words({key: values[key] for key in keys if key in values})
        seeds = {other.result.get("seed") for other in alike if other.kind != TRIAL}
        seed = f"seed {entry.result.get('seed')}" if len(seeds) > 1 and entry.kind != TRIAL else ""
        labels.append(", ".join(filter(None, [entry.model, words, seed, *(places[entry.folder][n] for n in apart)])))
    return [
        f"{label} ({entry.folder.name})" if labels.count(label) > 1 else label
        for label, entry in zip(labels, entries, strict=True)
    ]
