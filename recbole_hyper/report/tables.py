"""The tables of a report, and the labels of its entries."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper.evaluation.compare import add_tests
from recbole_hyper.evaluation.results import protocol_text
from recbole_hyper.report.collect import FINAL, RUN, TRIAL, Collection, Entry
from recbole_hyper.report.differences import differing, in_words


def settings_texts(entries: Sequence[Entry]) -> dict[Path, str]:
    """Return, by folder, the settings in which each entry differs from others of its model, data and protocol."""
    texts = {}
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        group_key = *(str(entry.result.get(key)) for key in ("model", "dataset")), protocol_text(entry.result)
        groups.setdefault(group_key, []).append(entry)
    for group in groups.values():
        settings = [{**e.settings, **e.read, "data": str(e.result.get("data_fingerprint"))[:8]} for e in group]
        keys = differing(settings)
        for entry, own in zip(group, settings, strict=True):
            texts[entry.folder] = in_words({key: own[key] for key in keys if key in own})
    return texts


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return a unique label per entry: model, differing settings, and the seed of a run."""
    texts, labels = settings_texts(entries), []
    for entry in entries:
        seed = "" if entry.kind == TRIAL else f"seed {entry.result.get('seed')}"
        labels.append(", ".join(filter(None, [entry.model, texts[entry.folder], seed])))
    return [
        f"{label} ({entry.folder.name})" if labels.count(label) > 1 else label
        for label, entry in zip(labels, entries, strict=True)
    ]


def leaderboard(collection: Collection) -> pd.DataFrame:
    """Return a row per tested configuration, with the mean and deviation of its test metrics over seeds.

    Rows are grouped by data, protocol and candidates, because only these can be compared, and sorted by the test value
    of the selection metric. Where the cases were saved, the difference from the best of a group is tested by that
    metric: columns p_value and over (see :func:`recbole_hyper.evaluation.compare.add_tests`).
    """
    tested = [entry for entry in collection.of(RUN, FINAL) if entry.result.get("test")]
    if not tested:
        return pd.DataFrame()
    settings = settings_texts(tested)
    # a copied run, or one repeated with the same seed, counts once
    groups: dict[str, dict[Any, Entry]] = {}
    for entry in tested:
        groups.setdefault(entry.identity, {})[entry.result.get("seed")] = entry
    rows: list[dict[str, Any]] = []
    folders: dict[str, list[Path]] = {}
    for seeds in (list(group.values()) for group in groups.values()):
        folder, first, metric = str(seeds[0].folder), seeds[0].result, seeds[0].valid_metric
        folders[folder] = [entry.folder for entry in seeds]
        tests = pd.DataFrame([entry.result["test"] for entry in seeds])
        rows.append(
            {
                "dataset": first.get("dataset"),
                "protocol": protocol_text(first),
                "model": first.get("model"),
                "settings": settings[seeds[0].folder],
                "epochs": _mean(entry.result.get("epochs") for entry in seeds),
                "selected by": metric,
                "valid": _mean(entry.score for entry in seeds),
                **{str(name): tests[name].mean() for name in tests},
                **{f"{name} std": tests[name].std() for name in tests if len(seeds) > 1},
                "seeds": len(seeds),
                **{name: _mean(entry.costs[name] for entry in seeds) for name in seeds[0].costs},
                "parameters": first.get("parameters"),
                # a head that is not curved ignores its curvature
                "curvature": first.get("curvature") if "curvature_origin" in first else None,
                "folder": folder,
                "_order": (-1 if first.get("valid_score_bigger", True) else 1) * _mean(tests.get(metric, ())),
                "_data": first.get("data_fingerprint"),
            }
        )
    comparable: dict[Any, dict[str, dict[str, Any]]] = {}
    for row in rows:
        # rows selected by different metrics, or on different data of one name, do not compare
        group_key = tuple(str(row[name]) for name in ("dataset", "protocol", "_data", "selected by"))
        comparable.setdefault(group_key, {})[row["folder"]] = row
    for (*_, metric), same in comparable.items():
        add_tests(same, metric, folders)
    frame = pd.DataFrame(rows).drop(columns=["difference", "low", "high", "note", "_data"], errors="ignore")
    return frame.sort_values(["dataset", "protocol", "_order"], kind="stable").drop(columns="_order")


def _mean(values: Iterable[float | None]) -> float:
    return float(pd.Series(list(values), dtype=float).mean())


def trial_table(collection: Collection) -> pd.DataFrame:
    """Return a row per trial: sweep, status, validation score, settings, costs, and why it failed."""
    rows = [
        {
            "sweep": sweep.folder.name,
            "trial": entry.folder.name,
            "model": entry.result.get("model"),
            "status": entry.status,
            "score": entry.score,
            **entry.settings,
            "epochs": entry.result.get("epochs"),
            **entry.costs,
            "reason": entry.reason,
        }
        for sweep in collection.sweeps
        for entry in sweep.trials
    ]
    return pd.DataFrame(rows)


def warnings_of(collection: Collection) -> list[str]:
    """Return what a reader should know before comparing rows."""
    notes = [*collection.problems]
    results = [entry.result for entry in collection.entries if entry.result]
    fingerprints: dict[str, set[str]] = {}
    for result in results:
        fingerprints.setdefault(str(result.get("dataset")), set()).add(str(result.get("data_fingerprint")))
    for name, values in sorted(fingerprints.items()):
        if len(values) > 1:
            notes.append(f"{name}: the runs do not use the same data ({len(values)} fingerprints); compare with care.")
    commits = {result.get("commit") for result in results}
    if len(commits) > 1:
        notes.append(f"The runs were made with {len(commits)} versions of the code.")
    for sweep in collection.sweeps:
        name = sweep.folder.name
        if sweep.outcome is None:
            notes.append(f"The sweep {name} is not finished.")
        elif failed := sweep.outcome.trials.get("failed", 0):
            notes.append(f"{failed} trials of the sweep {name} failed; the trial table has the reasons.")
    return notes
