"""The table and the figure of the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from recbole_hyper.files import replaced

# the result of a peer in bench_peers.json: its facts, "curve", "chosen", "valid" and "test", or "failed"
Result = Mapping[str, Any]
QUALITY = "ndcg@10"
# the quality to reach by default, as a share of the best peer's validation score
SHARE = 0.9


def seconds_of_epoch(result: Result) -> tuple[float, bool]:
    """Return the seconds of an epoch, and whether they are scaled from a part of an epoch.

    They are the median of whole epochs, without the first one (a warm-up) if there are others.
    """
    epochs = result["epochs"]
    if epochs:
        return float(median(epochs[1:] or epochs)), False
    return result["train_seconds"] * result["steps_per_epoch"] / result["steps"], True


def minutes_to(curve: Sequence[Mapping[str, float]], quality: float) -> float | None:
    """Return the minutes of training until validation first reaches ``quality``, None for never."""
    return next((point["seconds"] / 60 for point in curve if point[QUALITY] >= quality), None)


def default_quality(results: Sequence[Result]) -> float:
    """Return the quality that peers have to reach: a share of the best validation score."""
    best = [point[QUALITY] for result in results if "failed" not in result for point in result["curve"]]
    return round(SHARE * max(best), 4) if best else 0.0


def row_of(result: Result, quality: float) -> dict[str, str]:
    """Return the cells of a peer's row."""
    row = {"peer": result["label"]}
    if "failed" in result:
        return row | {"version": f"not run: {result['failed']}"}
    seconds, scaled = seconds_of_epoch(result)
    reached = minutes_to(result["curve"], quality)
    return row | {
        "version": result["version"],
        "s / epoch": f"{seconds:.2f}" + (" (scaled)" if scaled else ""),
        "targets": f"{result['targets_per_epoch']:,}",
        "epochs": f"{result['steps'] / result['steps_per_epoch']:.1f}",
        "peak MiB": f"{result['peak_memory_bytes'] / 2**20:,.0f}",
        "NDCG@10 valid": f"{result['valid'][QUALITY]:.4f}",
        "at min": f"{result['chosen']['seconds'] / 60:.2f}",
        "NDCG@10 test": f"{result['test'][QUALITY]:.4f}",
        "HR@10 test": f"{result['test']['hit@10']:.4f}",
        f"min to {quality:g}": "-" if reached is None else f"{reached:.2f}",
    }


def markdown(results: Sequence[Result], quality: float) -> str:
    """Return the table of all peers, and notes on how they differ."""
    rows = [row_of(result, quality) for result in results]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(row.get(name, '-').replace('|', '/') for name in columns)} |" for row in rows]
    notes = [f"* {result['label']}: {result['notes']}." for result in results if result.get("notes")]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def at_equal_seconds(results: Sequence[Result]) -> str:
    """Return the table of the best validation NDCG@10 until equal seconds: an eighth, a quarter, half and all of them.

    All is the time that every peer has had. A cell is "-" where no list was written until then.
    """
    drawn = [result for result in results if "failed" not in result]
    if not drawn:
        return ""
    whole = min(result["curve"][-1]["seconds"] for result in drawn)
    times = [whole / 8, whole / 4, whole / 2, whole]
    columns = ["peer", *(f"{time:.0f} s" for time in times)]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for result in drawn:
        until = [[point[QUALITY] for point in result["curve"] if point["seconds"] <= time] for time in times]
        cells = [f"{max(values):.4f}" if values else "-" for values in until]
        lines.append(f"| {result['label'].replace('|', '/')} | {' | '.join(cells)} |")
    return "\n".join(["Validation NDCG@10 after equal seconds of training:", "", *lines])


def figure(results: Sequence[Result], settings: Mapping[str, Any], file: Path) -> bool:
    """Plot validation NDCG@10 against seconds of training; return False if no peer has a curve."""
    drawn = [result for result in results if "failed" not in result]
    if not drawn:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    chart, axes = plt.subplots(figsize=(8.6, 3.8), layout="constrained")
    for result in drawn:
        seconds = [point["seconds"] for point in result["curve"]]
        values = [point[QUALITY] for point in result["curve"]]
        rises = " (still rises)" if values[-1] == max(values) > values[0] else ""
        axes.plot(
            seconds, values, marker="o", markersize=2, linewidth=1.3,
            label=f"{result['label']}{rises}", linestyle="-" if result["peer"].startswith("ours") else "--",
        )  # fmt: skip
    label = f"seconds of training on {settings['dataset']}, {settings['threads']} threads"
    title = f"{settings['dataset']} (data {settings['data_fingerprint'][:12]}), validation"
    axes.set(xscale="log", xlabel=label, ylabel="NDCG@10", ylim=(0, None), title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    chart.legend(frameon=False, loc="outside right center", fontsize=7)
    with replaced(file) as part:
        chart.savefig(part, dpi=140, format=file.suffix[1:])
    plt.close(chart)
    return True
