"""Read finished runs and sweeps from their folders; nothing is computed anew."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper.files import read_json
from recbole_hyper.report.differences import canonical, differing, in_words, main_keys, read_settings, unique, usual
from recbole_hyper.report.reading import read_result
from recbole_hyper.sweep.driver import ASKED, OUTCOME, read_asked
from recbole_hyper.sweep.trial import FINISHED, RECORD, read_history, read_record

RUN, TRIAL, FINAL = "run", "trial", "final"
# what a report consists of, beside its tables
PAGE, FIGURES = "report.html", "figures"


class ReportError(ValueError):
    """Folders that cannot be reported on; the message says what was looked for."""


@dataclass(frozen=True)
class Entry:
    """One run, one trial of a sweep, or one tested run of a sweep's winner."""

    folder: Path
    kind: str  # "run", "trial" or "final"
    sweep: str  # name of the sweep's folder; "" for a run
    status: str  # "finished", or how a trial ended else
    settings: dict[str, Any]  # values of the keys that the sweep varies; empty for a run
    result: dict[str, Any]  # content of result.json; empty where there is none
    score: float | None  # best validation score
    history: list[dict[str, float]]  # rows of train.csv
    reason: str = ""  # why a trial failed

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration."""
        return self.result.get("config", {})

    @property
    def identity(self) -> str:
        """A text that is equal for runs that differ in nothing but seed and place."""
        of = [self.result.get(key) for key in ("model", "dataset", "data_fingerprint")]
        return canonical([of, protocol_text(self.result), self.read])

    @property
    def read(self) -> dict[str, Any]:
        """The part of the configuration that decides what the model learns."""
        return read_settings(str(self.result.get("model")), self.config)

    @property
    def train_seconds(self) -> float | None:
        """Wall time of training, without validation."""
        return (self.result.get("seconds") or {}).get("train")

    @property
    def train_memory(self) -> int | None:
        """Peak memory of the process while it trained, in bytes."""
        phases = self.result.get("peak_memory_bytes_per_phase") or {}
        return phases.get("train") or self.result.get("peak_memory_bytes")


@dataclass(frozen=True)
class Sweep:
    """What a sweep was asked for, and its outcome (empty before its end)."""

    folder: Path
    asked: dict[str, Any]
    outcome: dict[str, Any]

    @property
    def keys(self) -> list[str]:
        """Keys that the space varies."""
        space = self.asked.get("space", {})
        return [key for key, domains in space.items() if not _is_constant(domains)]


@dataclass(frozen=True)
class Collection:
    """Everything that was found, and a line for each file that was left out."""

    entries: list[Entry]
    sweeps: list[Sweep]
    images: list[Path]
    problems: list[str] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Entry]:
        """Return the entries of these kinds."""
        return [entry for entry in self.entries if entry.kind in kinds]

    def trials_of(self, sweep: Sweep) -> list[Entry]:
        """Return the trials of one sweep."""
        return [entry for entry in self.of(TRIAL) if entry.folder.parent.parent == sweep.folder]


def collect(folders: Sequence[str | Path]) -> Collection:
    """Find runs (``result.json``) and sweeps (``sweep.yaml``) in and below ``folders``; ReportError without any.

    Figures of the curvature are found too, but not those that an earlier report drew.
    """
    entries: list[Entry] = []
    sweeps: list[Sweep] = []
    images: list[Path] = []
    problems: list[str] = []
    for start in folders:
        root = Path(start)
        if not root.is_dir():
            raise ReportError(f"{str(start)!r} is no folder; give folders of runs or sweeps, or one above them")
        for place, below, files in os.walk(root):
            below[:] = sorted(name for name in below if not (name == FIGURES and PAGE in files))
            folder = Path(place)
            pictures = sorted(name for name in files if name.endswith((".svg", ".png")))
            images += [folder / name for name in pictures if "curvature" in name or "delta" in name]
            if ASKED in files:
                below.clear()
                try:
                    sweep, found = _sweep(folder, problems)
                except (ValueError, OSError) as error:
                    problems.append(_one_line(error))
                    continue
                sweeps.append(sweep)
                entries += found
            elif "result.json" in files and "config.yaml" in files:
                below.clear()
                entries += _entry(folder, RUN, "", {}, problems)
    entries = list({entry.folder.resolve(): entry for entry in entries}.values())
    if not entries:
        raise ReportError(
            f"no run was found in {', '.join(map(str, folders))}: result.json (of a run) or {ASKED} (of a sweep) is "
            "looked for in these folders and all below" + "".join(f"; {line}" for line in problems[:5])
        )
    return Collection(entries, sweeps, images, list(dict.fromkeys(problems)))


def _entry(folder: Path, kind: str, sweep: str, settings: dict[str, Any], problems: list[str]) -> list[Entry]:
    """Return the run in ``folder``; nothing, and a line in ``problems``, where its result cannot be read."""
    try:
        return [run_entry(folder, kind, sweep, settings)]
    except (ValueError, OSError) as error:
        problems.append(_one_line(error))
        return []


def run_entry(folder: Path, kind: str = RUN, sweep: str = "", settings: dict[str, Any] | None = None) -> Entry:
    """Return the finished run in ``folder``; ValueError, which names the file, where its result cannot be read."""
    result = read_result(folder / "result.json")
    score = result.get("best_valid_score")
    return Entry(folder, kind, sweep, FINISHED, settings or {}, result, score, read_history(folder))


def _sweep(folder: Path, problems: list[str]) -> tuple[Sweep, list[Entry]]:
    asked = read_asked(folder)
    outcome = _outcome(folder / OUTCOME)
    entries: list[Entry] = []
    for path in sorted((folder / "trials").glob(f"*/{RECORD}")):
        record = read_record(path.parent)
        if record is None:
            problems.append(f"left out: {path} is no record of a trial")
            continue
        result: dict[str, Any] = {}
        try:
            result = read_result(path.parent / "result.json")
        except FileNotFoundError:
            pass  # a trial that did not finish
        except (ValueError, OSError) as error:
            problems.append(_one_line(error))
            continue
        own = (record.status, dict(record.settings), result, record.score, read_history(path.parent), record.reason)
        entries.append(Entry(path.parent, TRIAL, folder.name, *own))
    best = (outcome.get("best") or {}).get("settings", {})
    for path in sorted((folder / "best").glob("*/result.json")):
        entries += _entry(path.parent, FINAL, folder.name, dict(best), problems)
    return Sweep(folder, asked, outcome), entries


def _outcome(path: Path) -> dict[str, Any]:
    """Read sweep.json; empty before the end of the sweep, ValueError for anything else."""
    if not path.is_file():
        return {}
    content = read_json(path)
    best = {} if content.get("best") is None else content["best"]
    mappings = [content.get("trials", {}), best, best.get("settings", {}) if isinstance(best, dict) else {}]
    if not all(isinstance(value, dict) for value in mappings):
        raise ValueError(f"{path} is no outcome of a sweep")
    return content


def _one_line(error: Exception) -> str:
    return f"left out: {' '.join(str(error).split())[:300]}"


def _is_constant(domains: Any) -> bool:
    if isinstance(domains, dict):
        domains = [domains]
    if not isinstance(domains, list) or not all(isinstance(entry, dict) for entry in domains):
        return True
    return len(domains) == 1 and set(domains[0]) == {"value"}


# --- tables ----------------------------------------------------------------------------------------------------------
def leaderboard(collection: Collection) -> pd.DataFrame:
    """Return a row per tested configuration: test metrics as mean and deviation over its seeds.

    Rows are grouped by data, protocol and candidates, which alone can be compared, and sorted by the test value of the
    metric that the run was selected by.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in collection.of(RUN, FINAL):
        if entry.result.get("test"):
            groups.setdefault(entry.identity, []).append(entry)
    words = settings_texts([entry for found in groups.values() for entry in found])
    rows = []
    for found in groups.values():
        # a run that was copied or repeated with one seed counts once
        seeds = list({entry.result.get("seed"): entry for entry in found}.values())
        first = seeds[0].result
        metric = str(first.get("config", {}).get("valid_metric", "")).lower()
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
                "train seconds": _mean(entry.train_seconds for entry in seeds),
                "peak MiB": _mean(entry.train_memory for entry in seeds) / 2**20,
                "parameters": first.get("parameters"),
                # that of a head which is not curved says nothing
                "curvature": first.get("curvature") if "curvature_origin" in first else None,
                "folder": str(seeds[0].folder),
                "_order": tests[metric].mean() if metric in tests else float("nan"),
                "_bigger": bool(first.get("valid_score_bigger", True)),
            }
        )
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    frame["epochs"] = frame["epochs"].convert_dtypes()  # whole where they are
    frame["_order"] = frame["_order"].where(~frame["_bigger"], -frame["_order"])
    return frame.sort_values(["dataset", "protocol", "_order"], kind="stable").drop(columns=["_order", "_bigger"])


def _mean(values: Iterable[float | None]) -> float:
    return float(pd.Series(list(values), dtype=float).mean())


def trial_table(collection: Collection) -> pd.DataFrame:
    """Return a row per trial: sweep, status, validation score, settings, costs, reason of a failure."""
    rows = [
        {
            "sweep": entry.sweep,
            "trial": entry.folder.name,
            "model": entry.result.get("model"),
            "status": entry.status,
            "score": entry.score,
            **entry.settings,
            "epochs": entry.result.get("epochs"),
            "train seconds": entry.train_seconds,
            "peak MiB": None if entry.train_memory is None else entry.train_memory / 2**20,
            "reason": entry.reason,
        }
        for entry in collection.of(TRIAL)
    ]
    return pd.DataFrame(rows)


def cost_table(collection: Collection, metric: str = "ndcg@10") -> pd.DataFrame:
    """Return validation ``metric``, training time and peak memory of every finished trial and run, per data and model.

    Entries without ``metric`` are left out. Final runs repeat their trial and are left out too.
    """
    found = []
    for entry in collection.of(RUN, TRIAL):
        value = (entry.result.get("valid") or {}).get(metric)
        if entry.status == FINISHED and value is not None and entry.train_seconds is not None and entry.train_memory:
            found.append((entry, value, entry.train_memory))
    words = settings_texts([entry for entry, _, _ in found])
    curves = settings_texts([entry for entry, _, _ in found], without="hidden_size")
    rows = []
    for entry, value, memory in found:
        rows.append(
            {
                "dataset": entry.result.get("dataset"),
                "protocol": protocol_text(entry.result),
                "model": model_name(entry),
                metric: value,
                "train seconds": entry.train_seconds,
                "peak MiB": memory / 2**20,
                "epochs": entry.result.get("epochs"),
                "hidden_size": size if isinstance(size := entry.read.get("hidden_size"), int) else None,
                "seed": entry.result.get("seed"),
                "settings": words[entry.folder],
                "curve": curves[entry.folder],
                "folder": str(entry.folder),
            }
        )
    return pd.DataFrame(rows)


def pareto(frame: pd.DataFrame, cost: str, value: str) -> pd.DataFrame:
    """Return the rows that no other row beats: none costs at most as much and is worth more, or costs less and is worth
    as much. Sorted by cost; of equal rows the first is kept."""
    ordered = frame.sort_values([cost, value], ascending=[True, False], kind="stable")
    kept, best = [], -float("inf")
    for index, worth in zip(ordered.index, ordered[value], strict=True):
        if worth > best:
            kept.append(index)
            best = worth
    return frame.loc[kept]


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
    for entry in collection.entries:
        result = entry.result
        if not result:
            continue
        row = {
            "dataset": result.get("dataset"),
            "data fingerprint": result.get("data_fingerprint"),
            **{name: result.get(f"n_{name}") for name in ("users", "items", "interactions")},
            "commit": (result.get("commit") or "-")[:12],
            **(result.get("versions") or {}),
        }
        key = json.dumps(row, sort_keys=True)
        rows.setdefault(key, {"runs": 0, **row})["runs"] += 1
    return pd.DataFrame(list(rows.values()))


def warnings_of(collection: Collection) -> list[str]:
    """Return what a reader must know before comparing rows."""
    notes = [*collection.problems]
    results = [entry.result for entry in collection.entries if entry.result]
    by_name: dict[str, set[str]] = {}
    for result in results:
        by_name.setdefault(str(result.get("dataset")), set()).add(str(result.get("data_fingerprint")))
    for name, prints in sorted(by_name.items()):
        if len(prints) > 1:
            notes.append(f"{name}: the runs do not use the same data ({len(prints)} fingerprints); compare with care.")
    commits = {result.get("commit") for result in results}
    if len(commits) > 1:
        notes.append(f"The runs were made with {len(commits)} versions of the code.")
    for sweep in collection.sweeps:
        counts = sweep.outcome.get("trials", {})
        failed = counts.get("failed", 0)
        if not sweep.outcome:
            notes.append(f"The sweep {sweep.folder.name} is not finished.")
        elif failed:
            notes.append(
                f"{failed} trials of the sweep {sweep.folder.name} failed; see the reasons in the trial table."
            )
    return notes


def protocol_text(result: dict[str, Any]) -> str:
    """Return split and candidates in words."""
    modes = (result.get("eval_args") or {}).get("mode", "full")
    names = sorted({str(mode) for mode in modes.values()}) if isinstance(modes, dict) else [str(modes)]
    candidates = ", ".join("all items" if name == "full" else str(name) for name in names)
    seen = "seen excluded" if result.get("exclude_seen", True) else "seen included"
    return f"{result.get('protocol', '?')}; {candidates}; {seen}"


def settings_texts(entries: Sequence[Entry], without: str = "") -> dict[Path, str]:
    """Return by folder what sets each entry apart from the others of its model, data and protocol, in one line.

    What its sweep varies is named as well; for entries that nothing sets apart the main keys are. The key ``without``
    is never named: equal texts are then runs that differ in nothing but that key and the seed.
    """
    found = {}
    for (model, *_), group in _comparable(entries).items():
        settings = [_told_of(entry) for entry in group]
        keys = differing(settings)
        for entry, read in zip(group, settings, strict=True):
            values = {**entry.settings, **read}
            own = [] if without else [key for key in entry.settings if key not in keys]
            names = [*own, *keys] if own or keys or without else main_keys(model)
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
    for group in _comparable(entries).values():
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


def _comparable(entries: Sequence[Entry]) -> dict[tuple[str, ...], list[Entry]]:
    """Return the entries by model, data and protocol."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        name = tuple(str(entry.result.get(key)) for key in ("model", "dataset"))
        groups.setdefault((*name, protocol_text(entry.result)), []).append(entry)
    return groups


def _told_of(entry: Entry) -> dict[str, Any]:
    return {**entry.read, "data": str(entry.result.get("data_fingerprint"))[:8]}


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return a label for each of a few entries in one figure: model, what sets it apart from others of its model, and
    data, protocol and seed where they differ; no label twice."""
    places = [[str(entry.result.get("dataset")), protocol_text(entry.result)] for entry in entries]
    apart = [number for number in (0, 1) if len({place[number] for place in places}) > 1]
    labels = []
    for entry, place in zip(entries, places, strict=True):
        alike = [other for other in entries if model_name(other) == model_name(entry)]
        keys = differing([other.read for other in alike])
        values = {**entry.settings, **entry.read}
        words = in_words({key: values[key] for key in dict.fromkeys([*entry.settings, *keys]) if key in values})
        seeds = {other.result.get("seed") for other in alike if other.kind != TRIAL}
        seed = f"seed {entry.result.get('seed')}" if len(seeds) > 1 and entry.kind != TRIAL else ""
        labels.append(", ".join(filter(None, [model_name(entry), words, seed, *(place[number] for number in apart)])))
    return unique(labels, [entry.folder.name for entry in entries])


def model_name(entry: Entry) -> str:
    """Return the model, with its loss where a sweep varies the loss."""
    name = str(entry.result.get("model"))
    return f"{name} ({entry.settings['loss_type']})" if "loss_type" in entry.settings else name


def short(value: Any) -> str:
    """Return a value in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
