"""What an entry of a report is called: by what sets it apart from the others around it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.report.collect import TRIAL, Entry, protocol_text
from recbole_hyper.report.differences import canonical, differing, in_words, main_keys, usual


def settings_texts(entries: Sequence[Entry], without: str = "") -> dict[Path, str]:
    """Return by folder what sets each entry apart from the others of its model, data and protocol, in one line.

    What its sweep varies is named as well; for entries that nothing sets apart the main keys are. The key ``without``
    is never named: equal texts are then runs that differ in nothing but that key and the seed.
    """
    found = {}
    for group in _comparable(entries):
        settings = [_told_of(entry) for entry in group]
        keys = differing(settings)
        for entry, read in zip(group, settings, strict=True):
            values = {**entry.settings, **read}
            own = [] if without else [key for key in entry.settings if key not in keys]
            names = [*own, *keys] if own or keys or without else main_keys(str(entry.result.get("model")))
            shown = {key: values[key] for key in names if key in values and key != without}
            if not own and not keys:
                shown = {key: value for key, value in shown.items() if value is not None}
                if "curvature_origin" not in entry.result:
                    shown.pop("curvature", None)  # of a head that is not curved
            found[entry.folder] = in_words(shown)
    return found


def departures(entries: Sequence[Entry]) -> tuple[dict[str, str], dict[str, str]]:
    """Return by folder what sets each entry apart from what is usual among its model, data and protocol, and by folder
    what is usual there; both in one line.

    Nothing is usual among few entries: what sets them apart is then :func:`settings_texts`.
    """
    whole, own, common = settings_texts(entries), {}, {}
    for group in _comparable(entries):
        settings = [_told_of(entry) for entry in group]
        keys, shared = differing(settings), usual(settings)
        apart = [
            {key: read.get(key) for key in keys if canonical(read.get(key)) != canonical(shared.get(key))}
            for read in settings
        ]
        # four digits read better, where they are enough
        full, few = ([in_words(each, digits) for each in apart] for digits in (10, 4))
        words = few if len(set(few)) == len(set(full)) else full
        for entry, text in zip(group, words, strict=True):
            own[str(entry.folder)] = (text or "as usual") if shared else whole[entry.folder]
            common[str(entry.folder)] = in_words({key: value for key, value in shared.items() if value is not None})
    return own, common


def _comparable(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return the entries in groups of one model, data and protocol."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        name = *(str(entry.result.get(key)) for key in ("model", "dataset")), protocol_text(entry.result)
        groups.setdefault(name, []).append(entry)
    return list(groups.values())


def _told_of(entry: Entry) -> dict[str, Any]:
    return {**entry.read, "data": str(entry.result.get("data_fingerprint"))[:8]}


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return a label for each of a few entries in one figure: model, what sets it apart from others of its model, and
    data, protocol and seed where they differ; no label twice."""
    places = [[str(entry.result.get("dataset")), protocol_text(entry.result)] for entry in entries]
    apart = [number for number in (0, 1) if len({place[number] for place in places}) > 1]
    labels = []
    for entry, place in zip(entries, places, strict=True):
        alike = [other for other in entries if other.model == entry.model]
        keys = differing([other.read for other in alike])
        values = {**entry.settings, **entry.read}
        words = in_words({key: values[key] for key in dict.fromkeys([*entry.settings, *keys]) if key in values})
        seeds = {other.result.get("seed") for other in alike if other.kind != TRIAL}
        seed = f"seed {entry.result.get('seed')}" if len(seeds) > 1 and entry.kind != TRIAL else ""
        labels.append(", ".join(filter(None, [entry.model, words, seed, *(place[number] for number in apart)])))
    return [
        f"{label} ({entry.folder.name})" if labels.count(label) > 1 else label
        for label, entry in zip(labels, entries, strict=True)
    ]
