"""Read finished runs and sweeps from their folders; nothing is computed anew."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from recbole_hyper.sweep.driver import ASKED, OUTCOME
from recbole_hyper.sweep.trial import FINISHED, RECORD, read_history, read_record

RUN, TRIAL, FINAL = "run", "trial", "final"
# what a report consists of, beside its tables
PAGE, FIGURES = "report.html", "figures"
# keys that say where and how a run was made, not what it is
PLACE_KEYS = {
    "output_dir", "resume", "checkpoint_dir", "data_path", "n_threads", "show_progress", "seed", "gpu_id", "use_gpu",
    "fit_cache", "max_rank", "state", "config_files", "save_cases", "log_tensorboard", "checkpoint_step",
}  # fmt: skip


class ReportError(ValueError):
    """Folders that cannot be reported on; the message says what was looked for."""


@dataclass(frozen=True)
class Entry:
    """One run, one trial of a sweep, or one tested run of a sweep's winner.

    Attributes:
        folder: its folder.
        kind: "run", "trial" or "final".
        sweep: name of the sweep's folder; "" for a run.
        status: "finished", or how a trial ended else.
        settings: values of the keys that the sweep varies; empty for a run.
        result: content of result.json; empty where there is none.
        score: best validation score.
        history: rows of train.csv.
        reason: why a trial failed.
    """

    folder: Path
    kind: str
    sweep: str
    status: str
    settings: dict[str, Any]
    result: dict[str, Any]
    score: float | None
    history: list[dict[str, float]] = field(default_factory=list)
    reason: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration."""
        return self.result.get("config", {})

    @property
    def identity(self) -> str:
        """A text that is equal for runs that differ in nothing but seed and place."""
        content = {key: value for key, value in self.config.items() if key not in PLACE_KEYS}
        content["of"] = [self.result.get(key) for key in ("model", "dataset", "data_fingerprint")]
        content["protocol"] = protocol_text(self.result)
        return json.dumps(content, sort_keys=True, default=str)

    @property
    def train_seconds(self) -> float | None:
        """Wall time of training, without validation."""
        return self.result.get("seconds", {}).get("train")

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
    """Everything that was found."""

    entries: list[Entry]
    sweeps: list[Sweep]
    images: list[Path]

    def of(self, *kinds: str) -> list[Entry]:
        """Return the entries of these kinds."""
        return [entry for entry in self.entries if entry.kind in kinds]


def collect(folders: Sequence[str | Path]) -> Collection:
    """Find runs (``result.json``) and sweeps (``sweep.yaml``) in and below ``folders``.

    Figures of the curvature are found too, but not those that an earlier report drew.

    Raises:
        ReportError: a folder that does not exist, or nothing found.
    """
    entries: list[Entry] = []
    sweeps: list[Sweep] = []
    images: list[Path] = []
    for start in folders:
        root = Path(start)
        if not root.is_dir():
            raise ReportError(f"{str(start)!r} is no folder; give folders of runs or sweeps, or one above them")
        for place, below, files in os.walk(root):
            below[:] = sorted(name for name in below if not (name == FIGURES and PAGE in files))
            folder = Path(place)
            images += [
                folder / name
                for name in sorted(files)
                if name.endswith((".svg", ".png")) and ("curvature" in name or "delta" in name)
            ]
            if ASKED in files:
                sweep, found = _sweep(folder)
                sweeps.append(sweep)
                entries += found
                below.clear()
            elif "result.json" in files and "config.yaml" in files:
                result = _json(folder / "result.json")
                entries.append(
                    Entry(folder, RUN, "", FINISHED, {}, result, result.get("best_valid_score"), read_history(folder))
                )
                below.clear()
    entries = list({entry.folder.resolve(): entry for entry in entries}.values())
    if not entries:
        raise ReportError(
            f"no run was found in {', '.join(map(str, folders))}: result.json (of a run) or {ASKED} (of a sweep) is "
            "looked for in these folders and all below"
        )
    return Collection(entries, sweeps, images)


def _sweep(folder: Path) -> tuple[Sweep, list[Entry]]:
    asked = yaml.safe_load((folder / ASKED).read_text(encoding="utf-8")) or {}
    outcome = _json(folder / OUTCOME)
    entries = []
    for path in sorted((folder / "trials").glob(f"*/{RECORD}")):
        record = read_record(path.parent)
        if record is None:
            continue
        entries.append(
            Entry(
                path.parent,
                TRIAL,
                folder.name,
                record.status,
                dict(record.settings),
                _json(path.parent / "result.json"),
                record.score,
                read_history(path.parent),
                record.reason,
            )
        )
    best = (outcome.get("best") or {}).get("settings", {})
    for path in sorted((folder / "best").glob("*/result.json")):
        result = _json(path)
        entries.append(
            Entry(
                path.parent,
                FINAL,
                folder.name,
                FINISHED,
                dict(best),
                result,
                result.get("best_valid_score"),
                read_history(path.parent),
            )
        )
    return Sweep(folder, asked, outcome), entries


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _is_constant(domains: Any) -> bool:
    if isinstance(domains, dict):
        domains = [domains]
    if not isinstance(domains, list) or not all(isinstance(entry, dict) for entry in domains):
        return True
    return len(domains) == 1 and set(domains[0]) == {"value"}


# --- tables ----------------------------------------------------------------------------------------------------------
def leaderboard(collection: Collection) -> pd.DataFrame:
    """Return a row per configuration that was tested: test metrics as mean and deviation over its seeds.

    Rows are grouped by data, protocol and candidates, which alone can be compared, and sorted by the test value of the
    metric that the run was selected by.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in collection.of(RUN, FINAL):
        if entry.result.get("test"):
            groups.setdefault(entry.identity, []).append(entry)
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
                "settings": settings_text(seeds[0]),
                "selected by": metric,
                "valid": pd.Series([entry.score for entry in seeds], dtype=float).mean(),
                **{str(name): tests[name].mean() for name in tests},
                **{f"{name} std": tests[name].std() for name in tests if len(seeds) > 1},
                "seeds": len(seeds),
                "train seconds": pd.Series([entry.train_seconds for entry in seeds], dtype=float).mean(),
                "peak MiB": pd.Series([entry.train_memory for entry in seeds], dtype=float).mean() / 2**20,
                "parameters": first.get("parameters"),
                "curvature": first.get("curvature"),
                "folder": str(seeds[0].folder),
                "_order": tests[metric].mean() if metric in tests else float("nan"),
                "_bigger": bool(first.get("valid_score_bigger", True)),
            }
        )
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    frame["_order"] = frame["_order"].where(~frame["_bigger"], -frame["_order"])
    return frame.sort_values(["dataset", "protocol", "_order"], kind="stable").drop(columns=["_order", "_bigger"])


def trial_table(collection: Collection) -> pd.DataFrame:
    """Return a row per trial: sweep, status, validation score, settings, costs, reason of a failure."""
    rows = []
    for entry in collection.of(TRIAL):
        rows.append(
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
        )
    return pd.DataFrame(rows)


def cost_table(collection: Collection, metric: str = "ndcg@10") -> pd.DataFrame:
    """Return validation ``metric``, training time and peak memory of every finished trial and run, per data and model.

    Entries without ``metric`` are left out. Final runs repeat their trial and are left out too.
    """
    rows = []
    for entry in collection.of(RUN, TRIAL):
        value = (entry.result.get("valid") or {}).get(metric)
        if entry.status != FINISHED or value is None or entry.train_seconds is None or not entry.train_memory:
            continue
        rows.append(
            {
                "dataset": entry.result.get("dataset"),
                "protocol": protocol_text(entry.result),
                "model": model_name(entry),
                metric: value,
                "train seconds": entry.train_seconds,
                "peak MiB": entry.train_memory / 2**20,
                "hidden_size": entry.config.get("hidden_size"),
                "settings": settings_text(entry),
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
    """Return the best validation value of every model at every embedding size, and whether that size is the optimum.

    Models that were tried at one size only are left out.
    """
    if costs.empty or costs["hidden_size"].isna().all():
        return pd.DataFrame()
    keys = ["dataset", "protocol", "model"]
    best = costs.dropna(subset=["hidden_size"]).groupby([*keys, "hidden_size"], as_index=False)[metric].max()
    best = best[best.groupby(keys)["hidden_size"].transform("nunique") > 1].copy()
    best["hidden_size"] = best["hidden_size"].astype(int)
    # of equal values the smallest size
    best["optimum"] = best.index.isin(best.groupby(keys)[metric].idxmax())
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
            "users": result.get("n_users"),
            "items": result.get("n_items"),
            "interactions": result.get("n_interactions"),
            "commit": (result.get("commit") or "-")[:12],
            **{name: version for name, version in (result.get("versions") or {}).items()},
        }
        key = json.dumps(row, sort_keys=True)
        rows.setdefault(key, {"runs": 0, **row})["runs"] += 1
    return pd.DataFrame(list(rows.values()))


def warnings_of(collection: Collection) -> list[str]:
    """Return what a reader must know before comparing rows."""
    notes = []
    by_name: dict[str, set[str]] = {}
    for entry in collection.entries:
        if entry.result:
            by_name.setdefault(str(entry.result.get("dataset")), set()).add(str(entry.result.get("data_fingerprint")))
    for name, prints in sorted(by_name.items()):
        if len(prints) > 1:
            notes.append(f"{name}: the runs do not use the same data ({len(prints)} fingerprints); compare with care.")
    commits = {entry.result.get("commit") for entry in collection.entries if entry.result}
    if len(commits) > 1:
        notes.append(f"The runs were made with {len(commits)} versions of the code.")
    for sweep in collection.sweeps:
        counts = sweep.outcome.get("trials", {})
        failed = counts.get("failed", 0)
        if not sweep.outcome:
            notes.append(f"The sweep {sweep.folder.name} is not finished.")
        elif failed:
            notes.append(
                f"{failed} trials of the sweep {sweep.folder.name} failed; the reasons stand in the trial table."
            )
    return notes


def protocol_text(result: dict[str, Any]) -> str:
    """Return split and candidates in words."""
    modes = (result.get("eval_args") or {}).get("mode", "full")
    names = sorted(set(modes.values())) if isinstance(modes, dict) else [str(modes)]
    candidates = ", ".join("all items" if name == "full" else str(name) for name in names)
    seen = "seen excluded" if result.get("exclude_seen", True) else "seen included"
    return f"{result.get('protocol', '?')}; {candidates}; {seen}"


def settings_text(entry: Entry) -> str:
    """Return the settings of a trial, or the parts of a run, in one line."""
    if entry.settings:
        return ", ".join(f"{key}={short(value)}" for key, value in entry.settings.items())
    names = ("hidden_size", "n_layers", "learning_rate", "train_batch_size", "n_negatives", "curvature")
    return ", ".join(f"{key}={short(entry.config[key])}" for key in names if entry.config.get(key) is not None)


def model_name(entry: Entry) -> str:
    """Return the model, with its loss where a sweep varies the loss."""
    name = str(entry.result.get("model"))
    return f"{name} ({entry.settings['loss_type']})" if "loss_type" in entry.settings else name


def short(value: Any) -> str:
    """Return a value in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
