"""Write results/gpu.md from results/bench_gpu.json, which ``make bench-gpu`` writes.

python results/gpu.py
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HEAD = """# On a GPU

Written by `python results/gpu.py` from `bench_gpu.json` (`make bench-gpu`). Times of kernels are forward and backward,
in milliseconds; the error is that of the gradients against float64, relative to their norm; the peak is beside the
inputs. **Figures of this version on a GPU are missing**: those of the H100 were measured before it, and are what it has
to beat.
"""
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


def page(entries: list[dict[str, Any]]) -> str:
    """Return the page of all devices."""
    parts = [HEAD]
    for entry in entries:
        parts.append(f"\n## {entry['device']}\n\n{entry.get('when', 'this version')}, torch {entry['torch']}\n")
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
