"""What a run saves besides its metrics: versions and commit, the rank of every case, and what the protocol did."""

import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.evaluation.tables import table
from recbole_hyper.files import replaced
from recbole_hyper.matmul import product_library
from recbole_hyper.processes import package_version
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.types import Cases, Ranks, Split

# a count of a split, and the share of repeats above which a result warns
REPEATED, REPEATS = "targets that repeat an item of their history", 0.05
DRAWN = re.compile(r"(?:uni|pop)(\d+)")  # a mode that draws candidates
PACKAGES = ("recbole-hyper", "recbole", "torch", "numpy", "pandas", "scipy", "geoopt", "ray")


def cases_frame(cases: Cases, ranks: Ranks, item_counts: Counter, user_counts: Counter) -> pd.DataFrame:
    """Return a row per case: user_id, item_id, position (length of the history), timestamp, rank, n_candidates.

    Columns item_count and user_count are the numbers of training interactions of the target and of the user.
    """
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
    """Return a counter of ids as a (size,) array."""
    counts = np.zeros(size, dtype=np.int64)
    counts[list(counter)] = list(counter.values())
    return counts


def versions() -> dict[str, str]:
    """Return what a result depends on: Python, platform, package versions, and the library of CPU matrix products."""
    system = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    return {**system, **{name: package_version(name) for name in PACKAGES}, "cpu products": product_library()}


def commit() -> str | None:
    """Return the commit of the checkout that this package runs from, with "+" if files were changed since.

    None if the package is not part of a checkout, as a copy that was installed inside another project's.
    """
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
    """Return one line on what was run and how targets were ranked, without the seed."""
    texts = protocol_text(result), repeats_text(result), not_new_text(result)
    return f"{model_text(result)} on {result['dataset']}: {''.join(texts)}"


def model_text(result: Mapping[str, Any]) -> str:
    """Return the model with the parts that are not its own: "SASRecCE with encoder=gru"."""
    others = ", ".join(f"{key}={name}" for key, name in (result.get("other_parts") or {}).items())
    return f"{result['model']} with {others}" if others else str(result["model"])


def protocol_text(result: Mapping[str, Any], part: str = "") -> str:
    """Return protocol, candidates and seen items: "leave-one-out, full ranking, seen items excluded".

    ``part`` ("valid" or "test") chooses whose candidates to name, if they differ.
    """
    mode = (result.get("eval_args") or {}).get("mode", "full")
    candidates = candidates_text(mode.get(part, "full") if part and isinstance(mode, Mapping) else mode)
    seen = "seen items excluded" if result.get("exclude_seen", True) else "seen items are candidates"
    return f"{result.get('protocol', '?')}, {candidates}, {seen}"


def repeats_text(result: Mapping[str, Any], part: str = "test") -> str:
    """Return a warning if over 5 % of the targets are in their own history and so never recommended; else ""."""
    counts = result.get("protocol_counts") or {}
    name = {"valid": "validation"}.get(part, part)
    cases, repeated = counts.get(f"{name} cases"), counts.get(f"{name} {REPEATED}")
    if not result["exclude_seen"] or not cases or not repeated or repeated / cases <= REPEATS:
        return ""
    return (
        f" ({repeated / cases:.0%} of the {part} targets are in their own history and can never be hit; "
        "--repeatable=True ranks them)"
    )


def not_new_text(result: Mapping[str, Any]) -> str:
    """Return a warning if the model, or the one that it started from, was trained on some of its cases; else ""."""
    seen = result.get("cases_not_new") or {}
    names = {"valid": "validation", "test": "test"}
    parts = [f"{seen[part]} of {result.get(f'n_{part}_cases', '?')} {names[part]}" for part in names if seen.get(part)]
    if not parts:
        return ""
    return f" ({' and '.join(parts)} cases are not new: earlier training had them or newer data; metrics are too high)"


def epochs_text(result: Mapping[str, Any]) -> str:
    """Return the best epoch and the range of epochs, counted from 0 as in train.csv and in RecBole."""
    best = result.get("best_epoch")
    if result.get("fitted_in_one_step"):
        return "fitted in one step"
    return "no epoch" if best is None or best < 0 else f"best epoch {best} of 0 to {result['epochs'] - 1}"


def metrics_table(result: Mapping[str, Any]) -> str:
    """Return a table of the validation and test metrics, with their intervals if the result has any."""
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
    """Return train_seconds (refit included, validation not) and peak_memory_mib (of training)."""
    seconds = result.get("seconds") or {}
    peak = (result.get("peak_memory_bytes_per_phase") or {}).get("train") or result.get("peak_memory_bytes")
    train = None if seconds.get("train") is None else seconds["train"] + seconds.get("refit", 0.0)
    return {"train_seconds": train, "peak_memory_mib": None if peak is None else peak / 2**20}


def candidates_text(mode: Any) -> str:
    """Describe the candidates by the ``mode`` of eval_args, such as "99 drawn candidates (uni99)"."""
    if isinstance(mode, Mapping):
        texts = {part: candidates_text(mode.get(part, "full")) for part in ("valid", "test")}
        same = texts["valid"] == texts["test"]
        return texts["test"] if same else f"{texts['valid']} in validation, {texts['test']} in the test"
    if str(mode) == "full":
        return "full ranking"
    drawn = DRAWN.fullmatch(str(mode))
    return f"{drawn[1]} drawn candidates ({mode})" if drawn else f"candidates of {mode}"


def report_rows(split: Split) -> list[dict[str, Any]]:
    """Return a row per part: interactions or cases, users, items, first and last time; of cases, candidates as well."""
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


def protocol_report(split: Split) -> str:
    """Return as text what the protocol did: :func:`report_rows`, and its counts."""
    columns = ["part", "interactions", "users", "items", "from", "to", "candidates", "history, median"]
    counts = dict(split.counts)
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
