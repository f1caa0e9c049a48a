"""The origin of a result, the rank of every case, what a protocol did with the data, and the metrics of a run."""

import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.evaluation.tables import table
from recbole_hyper.files import replaced
from recbole_hyper.matmul import product_library
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.types import Cases, Ranks, Split

# a count of a split, and the share of such targets that a result mentions
REPEATED, REPEATS = "targets that repeat an item of their history", 0.05
PACKAGES = ("recbole-hyper", "recbole", "torch", "numpy", "pandas", "scipy", "geoopt", "ray")


def cases_frame(cases: Cases, ranks: Ranks, item_counts: Counter, user_counts: Counter) -> pd.DataFrame:
    """Return a row per case: user_id, item_id, position (length of history), timestamp, rank, n_candidates, and the
    training interactions of its target and user (item_count, user_count)."""
    store = cases.store
    items, users = cases.targets, store.users[cases.rows]
    return pd.DataFrame(
        {
            "user_id": store.user_tokens[users],
            "item_id": store.item_tokens[items],
            "position": cases.ends - cases.starts,
            "timestamp": cases.times,
            "rank": ranks.ranks,
            "n_candidates": ranks.n_candidates,
            "item_count": counted(item_counts, len(store.item_tokens))[items],
            "user_count": counted(user_counts, len(store.user_tokens))[users],
        }
    )


def write_cases(path: Path, frame: pd.DataFrame) -> None:
    """Write the rows of :func:`cases_frame` as parquet."""
    with replaced(path) as part:
        frame.to_parquet(part, index=False)


def counted(counter: Counter, size: int) -> npt.NDArray[np.int64]:
    """Return the (size,) counts of the ids 0 .. size - 1."""
    counts = np.zeros(size, dtype=np.int64)
    counts[list(counter)] = list(counter.values())
    return counts


def versions() -> dict[str, str]:
    """Return the versions of python, platform and packages, and the library of CPU products: what decides a result."""
    system = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    return {**system, **{name: package_version(name) for name in PACKAGES}, "cpu products": product_library()}


def package_version(name: str = PACKAGES[0]) -> str:
    """Return the version of an installed package, of this one unless another is named."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def commit() -> str | None:
    """Return the commit of the checkout that this package runs from ("+" when changed); None outside one, and for a
    copy of the package inside the checkout of something else."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        head = git("rev-parse", "HEAD")
        return head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def headline(result: Mapping[str, Any]) -> str:
    """Return what was run and how it was ranked, in a line without the seed."""
    return f"{result['model']} on {result['dataset']}: {protocol_text(result)}{repeats_text(result)}"


def protocol_text(result: Mapping[str, Any], part: str = "") -> str:
    """Return split, candidates (of a ``part`` if given) and seen items: "leave-one-out, full ranking, seen items
    excluded"."""
    mode = (result.get("eval_args") or {}).get("mode", "full")
    candidates = candidates_text(mode.get(part, "full") if part and isinstance(mode, Mapping) else mode)
    seen = "seen items excluded" if result.get("exclude_seen", True) else "seen items are candidates"
    return f"{result.get('protocol', '?')}, {candidates}, {seen}"


def repeats_text(result: Mapping[str, Any], part: str = "test") -> str:
    """Return a warning where more than 5 % of the targets are in their own history and so are never recommended."""
    counts = result.get("protocol_counts") or {}
    name = {"valid": "validation"}.get(part, part)
    cases, repeated = counts.get(f"{name} cases"), counts.get(f"{name} {REPEATED}")
    if not result["exclude_seen"] or not cases or not repeated or repeated / cases <= REPEATS:
        return ""
    return (
        f" ({repeated / cases:.0%} of the {part} targets are in their own history, and excluded items are never hit: "
        "--repeatable=True ranks them)"
    )


def epochs_text(result: Mapping[str, Any]) -> str:
    """Return which epoch is the best and which there were, counted from 0 as in train.csv and in RecBole."""
    best = result.get("best_epoch")
    return "no epoch" if best is None or best < 0 else f"best epoch {best} of 0 to {result['epochs'] - 1}"


def metrics_table(result: Mapping[str, Any]) -> str:
    """Return the metrics of validation and test as a table, with their intervals where the result has some."""
    parts = [part for part in ("valid", "test") if result.get(part)]
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for part in parts for name in result[part]):
        rows.append({"metric": name})
        for part in parts:
            rows[-1][part] = result[part].get(name)
            if bounds := result.get(f"{part}_intervals"):
                pair = bounds.get(name)
                rows[-1][f"{part} interval"] = "{:.4f} to {:.4f}".format(*pair) if pair else None
    return table(rows) if rows else ""


def costs(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Return train_seconds (with a refit, without validation) and peak_memory_mib (in training) of a result."""
    seconds = result.get("seconds") or {}
    peak = (result.get("peak_memory_bytes_per_phase") or {}).get("train") or result.get("peak_memory_bytes")
    train = None if seconds.get("train") is None else seconds["train"] + seconds.get("refit", 0.0)
    return {"train_seconds": train, "peak_memory_mib": None if peak is None else peak / 2**20}


def candidates_text(mode: Any) -> str:
    """Return what targets are ranked among, from the ``mode`` of eval_args: "99 drawn candidates (uni99)"."""
    if isinstance(mode, Mapping):
        texts = {part: candidates_text(mode.get(part, "full")) for part in ("valid", "test")}
        same = texts["valid"] == texts["test"]
        return texts["test"] if same else f"{texts['valid']} in validation, {texts['test']} in the test"
    if str(mode) == "full":
        return "full ranking"
    drawn = re.fullmatch(r"(?:uni|pop)(\d+)", str(mode))
    return f"{drawn[1]} drawn candidates ({mode})" if drawn else f"candidates of {mode}"


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
