"""The tables of a report, from the files of runs and sweeps, and what an entry is called in them and in figures."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper.evaluation.compare import add_tests
from recbole_hyper.evaluation.results import protocol_text
from recbole_hyper.report.collect import FINAL, RUN, TRIAL, Collection, Entry
from recbole_hyper.report.differences import differing, in_words
from recbole_hyper.sweep.trial import FINISHED


def settings_texts(entries: Sequence[Entry], without: str = "") -> dict[Path, str]:
    """Return in words, by folder, what sets each entry apart from the others of its model, data and protocol.

    The key ``without`` is never named: equal texts are then runs that differ in nothing but that key and the seed.
    """
    found = {}
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        place = *(str(entry.result.get(key)) for key in ("model", "dataset")), protocol_text(entry.result)
        groups.setdefault(place, []).append(entry)
    for group in groups.values():
        settings = [{**e.settings, **e.read, "data": str(e.result.get("data_fingerprint"))[:8]} for e in group]
        keys = [key for key in differing(settings) if key != without]
        for entry, own in zip(group, settings, strict=True):
            found[entry.folder] = in_words({key: own[key] for key in keys if key in own})
    return found


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return a label for each entry of a figure: model, what sets it apart from others of its model, and data, protocol
    and seed where they differ; no label twice."""
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


def leaderboard(collection: Collection) -> pd.DataFrame:
    """Return a row per tested configuration: test metrics as mean and deviation over its seeds.

    Rows are grouped by data, protocol and candidates, which alone can be compared, and sorted by the test value of the
    metric that the run was selected by. The difference to the best of a group is tested by that metric, where the cases
    were saved: columns p_value and over (see :func:`recbole_hyper.evaluation.compare.add_tests`).
    """
    tested = [entry for entry in collection.of(RUN, FINAL) if entry.result.get("test")]
    if not tested:
        return pd.DataFrame()
    words = settings_texts(tested)
    # a run that was copied or repeated with one seed counts once
    groups: dict[str, dict[Any, Entry]] = {}
    for entry in tested:
        groups.setdefault(entry.identity, {})[entry.result.get("seed")] = entry
    rows: list[dict[str, Any]] = []
    folders: dict[str, list[Path]] = {}
    for seeds in (list(group.values()) for group in groups.values()):
        folders[str(seeds[0].folder)] = [entry.folder for entry in seeds]
        first = seeds[0].result
        metric = seeds[0].valid_metric
        tests = pd.DataFrame([entry.result["test"] for entry in seeds])
        rows.append(
            {
                "dataset": first.get("dataset"),
                "protocol": protocol_text(first),
                "model": first.get("model"),
                "settings": words[seeds[0].folder],
                "epochs": _mean(entry.result.get("epochs") for entry in seeds),
                "selected by": metric,
                "valid": _mean(entry.score for entry in seeds),
                **{str(name): tests[name].mean() for name in tests},
                **{f"{name} std": tests[name].std() for name in tests if len(seeds) > 1},
                "seeds": len(seeds),
                **{name: _mean(entry.costs[name] for entry in seeds) for name in seeds[0].costs},
                "parameters": first.get("parameters"),
                # that of a head which is not curved says nothing
                "curvature": first.get("curvature") if "curvature_origin" in first else None,
                "folder": str(seeds[0].folder),
                "_order": (-1 if first.get("valid_score_bigger", True) else 1) * _mean(tests.get(metric, ())),
                "_data": first.get("data_fingerprint"),
            }
        )
    comparable: dict[Any, dict[str, dict[str, Any]]] = {}
    for row in rows:
        # neither validation scores of different metrics nor other data of one name compare
        of_row = tuple(str(row[name]) for name in ("dataset", "protocol", "_data", "selected by"))
        comparable.setdefault(of_row, {})[row["folder"]] = row
    for key, same in comparable.items():
        add_tests(same, key[-1], folders)
        for row in same.values():
            for name in ("difference", "low", "high", "note"):
                row.pop(name, None)
    frame = pd.DataFrame(rows)
    frame["epochs"] = frame["epochs"].convert_dtypes()
    return frame.sort_values(["dataset", "protocol", "_order"], kind="stable").drop(columns=["_order", "_data"])


def _mean(values: Iterable[float | None]) -> float:
    return float(pd.Series(list(values), dtype=float).mean())


def trial_table(collection: Collection) -> pd.DataFrame:
    """Return a row per trial: sweep, status, validation score, settings, costs, reason of a failure."""
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


def cost_table(collection: Collection, metric: str = "ndcg@10") -> pd.DataFrame:
    """Return validation ``metric``, training time and peak memory of every finished trial and run, per data and model.

    Entries without ``metric`` are left out. Final runs repeat their trial and are left out too.
    """

    def value(entry: Entry) -> float | None:
        return (entry.result.get("valid") or {}).get(metric)

    done = [entry for entry in collection.of(RUN, TRIAL) if entry.status == FINISHED]
    costs_by_run = [entry for entry in done if value(entry) is not None and None not in entry.costs.values()]
    words, curves = settings_texts(costs_by_run), settings_texts(costs_by_run, without="hidden_size")
    rows = [
        {
            "dataset": entry.result.get("dataset"),
            "protocol": protocol_text(entry.result),
            "model": entry.model,
            metric: value(entry),
            **entry.costs,
            "epochs": entry.result.get("epochs"),
            "hidden_size": size if isinstance(size := entry.read.get("hidden_size"), int) else None,
            "seed": entry.result.get("seed"),
            "settings": words[entry.folder],
            "curve": curves[entry.folder],
            "folder": str(entry.folder),
        }
        for entry in costs_by_run
    ]
    return pd.DataFrame(rows)


def pareto(frame: pd.DataFrame, cost: str, value: str) -> pd.DataFrame:
    """Return the rows that no other row beats: none costs at most as much and is worth more, or costs less and is worth
    as much. Sorted by cost; the first of equal rows."""
    ordered = frame.sort_values([cost, value], ascending=[True, False], kind="stable")
    best_before = ordered[value].cummax().shift(fill_value=-float("inf"))
    return ordered[ordered[value] > best_before]


def embedding_sizes(costs: pd.DataFrame, metric: str = "ndcg@10") -> pd.DataFrame:
    """Return the validation value of runs that differ in the embedding size alone, and whether it is their optimum.

    ``curve`` names what else sets runs of the model apart; only the runs of one curve can be compared by their size.
    The value is the mean over seeds. What was tried at one size only is left out.
    """
    if costs.empty or costs["hidden_size"].isna().all():
        return pd.DataFrame()
    keys = ["dataset", "protocol", "model", "curve"]
    # a run that was copied or repeated with one seed counts once
    once = costs.dropna(subset=["hidden_size"]).drop_duplicates([*keys, "hidden_size", "seed"])
    means = {metric: "mean", "epochs": "mean", "seed": "nunique"}
    best = once.groupby([*keys, "hidden_size"], as_index=False).agg(means)
    best = best[best.groupby(keys)["hidden_size"].transform("nunique") > 1].rename(columns={"seed": "seeds"})
    best["hidden_size"] = best["hidden_size"].astype(int)
    # of equal values the smallest size
    best["optimum"] = best.index.isin(best.groupby(keys)[metric].idxmax())
    best["epochs"] = best["epochs"].astype(float).convert_dtypes()
    return best.rename(columns={metric: f"valid {metric}"}).reset_index(drop=True)


def environment_table(collection: Collection) -> pd.DataFrame:
    """Return one row per distinct environment and data: versions, commit, fingerprint, counts, and how many runs."""
    rows: dict[str, dict[str, Any]] = {}
    for result in (entry.result for entry in collection.entries if entry.result):
        row = {
            "dataset": result.get("dataset"),
            "data fingerprint": result.get("data_fingerprint"),
            **{name: result.get(f"n_{name}") for name in ("users", "items", "interactions")},
            "commit": (result.get("commit") or "-")[:12],
            **(result.get("versions") or {}),
        }
        rows.setdefault(json.dumps(row, sort_keys=True), {"runs": 0, **row})["runs"] += 1
    return pd.DataFrame(list(rows.values()))


def warnings_of(collection: Collection) -> list[str]:
    """Return warnings that a reader needs before comparing rows."""
    notes = [*collection.problems]
    results = [entry.result for entry in collection.entries if entry.result]
    prints: dict[str, set[str]] = {}
    for result in results:
        prints.setdefault(str(result.get("dataset")), set()).add(str(result.get("data_fingerprint")))
    for name, names in sorted(prints.items()):
        if len(names) > 1:
            notes.append(f"{name}: the runs do not use the same data ({len(names)} fingerprints); compare with care.")
    commits = {result.get("commit") for result in results}
    if len(commits) > 1:
        notes.append(f"The runs were made with {len(commits)} versions of the code.")
    for sweep in collection.sweeps:
        name, failed = sweep.folder.name, sweep.outcome.get("trials", {}).get("failed", 0)
        if not sweep.outcome:
            notes.append(f"The sweep {name} is not finished.")
        elif failed:
            notes.append(f"{failed} trials of the sweep {name} failed; see the reasons in the trial table.")
    return notes
