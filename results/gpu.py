"""Write results/gpu.md from results/bench_gpu.json, which ``make bench-gpu`` writes.

python results/gpu.py
"""

import json
import math
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HEAD = """# On a GPU

Written by `python results/gpu.py` from `bench_gpu.json` (`make bench-gpu`). Times of kernels are forward and backward,
in milliseconds; the error is that of the gradients against float64, relative to their norm; the peak is beside the
inputs. Steps and epochs are on generated data of the size of MovieLens-1M: 6,040 histories of 165 items on average, and
3,416 items. Seconds of a run include reading, the first calls of the GPU and the test, not the imports. The default
model of the H200 is that of before, without reranking; that of the H100 reranks.
"""
GOALS = """
## Goals

Each goal was set for an H100, and for the default model of before. The products of an H200 are as fast, and its memory
is faster.

"""
BEAUTY = {"dataset": "amazon-beauty-sequences"}
#: what is wanted, the goal, and where it is: section, row, column or columns to divide
WANTED: tuple[tuple[str, float, str, dict[str, Any], str], ...] = (
    ("Amazon Beauty, default model: whole run, s", 15, "runs", BEAUTY, "seconds"),
    ("MovieLens-1M, default model: whole run, s", 20, "runs", {"dataset": "ml-1m"}, "seconds"),
    ("MovieLens-1M, default model: 20 epochs, s", 10, "runs", {"dataset": "ml-1m"}, "train_s"),
    ("MovieLens-1M, default model: 5 validations, s", 1, "runs", {"dataset": "ml-1m"}, "valid_s"),
    ("Amazon Beauty, default model: validation by training", 0.1, "runs", BEAUTY, "valid_s/train_s"),
    ("epoch of SASRecCE, s", 0.55, "epochs", {"model": "SASRecCE"}, "second_s"),
    ("epoch of HSASRecCE, s", 0.7, "epochs", {"model": "HSASRecCE"}, "second_s"),
    ("step of gSASRec, ms", 10, "steps", {"model": "gSASRec", "cuda_graphs": True}, "ms"),
    *(
        (f"exact cross-entropy, {items:,} items, {head}, {text}, ms", goal, "kernels",
         {"method": f"Triton, {head.lower()}, {name}", "items": items}, "ms")
        for items, text, name, goals in (
            (262_144, "TF32", "high", (15, 20)),
            (262_144, "float32", "highest", (35, 45)),
            (1_000_000, "TF32", "high", (60, 75)),
        )
        for head, goal in zip(("Euclidean", "Poincare"), goals, strict=True)
    ),
)  # fmt: skip
COLUMNS = {
    "kernels": ("method", "rows", "items", "width", "ms", "peak_mb", "error"),
    "steps": ("model", "cuda_graphs", "ms", "replays"),
    "epochs": ("model", "first_s", "second_s"),
    "runs": ("model", "dataset", "seconds", "train_s", "valid_s", "test_s", "ndcg@10", "hit@10"),
    "equal": ("model", "cpu", "device", "within_1e-4"),
}


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 0.1 else f"{value:,.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(one)}" for name, one in value.items())
    return (
        "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )


def goals(entries: list[dict[str, Any]]) -> str:
    """Return the table of the goals beside what each device reached."""
    devices = [entry["device"].removeprefix("cuda (").partition(",")[0] for entry in entries]
    lines = [f"| | goal | {' | '.join(devices)} |", f"|---|---|{'---|' * len(devices)}"]
    for text, goal, section, row, column in WANTED:
        cells = [cell(reached(entry, section, row, column)) for entry in entries]
        if any(cells):
            lines.append(f"| {text} | {goal} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def reached(entry: dict[str, Any], section: str, row: dict[str, Any], column: str) -> float | None:
    """Return what a device measured for a goal, None if it did not."""
    for found in entry["sections"].get(section, []):
        if row.items() <= found.items():
            value, *divisors = (found[name] for name in column.split("/"))
            return value / math.prod(divisors)
    return None


def page(entries: list[dict[str, Any]]) -> str:
    """Return the page of all devices."""
    # entries of earlier versions have a "when"
    entries = [one for one in entries if "when" not in one]
    parts = [HEAD, GOALS, goals(entries)]
    for entry in entries:
        commit = entry.get("commit")
        when = "this version" if commit is None else f"at {commit[:7]}"
        parts.append(f"\n## {entry['device']}\n\n{when}, torch {entry['torch']}\n")
        for section, rows in entry["sections"].items():
            columns = COLUMNS[section]
            parts.append(f"\n### {section}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
            for row in rows:
                cells = [cell(row.get(name)) for name in columns]
                if "failed" in row:
                    cells[columns.index("ms") if "ms" in columns else 1] = "does not run"
                parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    (HERE / "gpu.md").write_text(page(json.loads((HERE / "bench_gpu.json").read_text())))
