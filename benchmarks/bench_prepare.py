"""Time and memory of `prepare` and of its k-core on generated data.

    python benchmarks/bench_prepare.py [--rows=30000000] [--folder=DIR] [--output=results/bench_prepare.json]

The raw file is an Amazon ratings csv (user,item,rating,time; tokens of 14 and 10 characters). The popularity of its
users and items has a long tail, so that the 5-core takes many rounds. Two things are measured, each in a separate
process:

* k-core alone: ours on int32 codes, compared with the usual pandas loop (groupby sizes until nothing changes);
* everything: csv to atomic file, with 5-core and repeats dropped.

Kernels are loaded on a few rows first; the very first run compiles them, which takes some seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TARGET_SECONDS, TARGET_BYTES = 25, 3e9


def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows,) codes of users and items with long tails: about one user per 6 rows and one item per 20."""
    generator = np.random.default_rng(7)
    users = (rows // 6 * generator.random(rows, np.float32) ** 3).astype(np.int32)
    items = (rows // 20 * generator.random(rows, np.float32) ** 4).astype(np.int32)
    return users, items


def write_csv(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    users, items = draw(rows)
    generator = np.random.default_rng(8)
    schema = pa.schema([("u", pa.string()), ("i", pa.string()), ("r", pa.int8()), ("t", pa.int32())])
    with pacsv.CSVWriter(
        path, schema, write_options=pacsv.WriteOptions(include_header=False, quoting_style="none")
    ) as w:
        for start in range(0, rows, 1 << 20):
            part = slice(start, start + (1 << 20))
            count = len(users[part])
            columns = [
                pc.binary_join_element_wise("A", pc.utf8_lpad(pa.array(users[part]).cast(pa.string()), 13, "0"), ""),
                pc.binary_join_element_wise("B", pc.utf8_lpad(pa.array(items[part]).cast(pa.string()), 9, "0"), ""),
                pa.array(generator.integers(1, 6, count), pa.int8()),
                pa.array(generator.integers(1_000_000_000, 1_500_000_000, count), pa.int32()),
            ]
            w.write_batch(pa.record_batch(columns, schema=schema))


def pandas_k_core(users: np.ndarray, items: np.ndarray, fewest: int) -> np.ndarray:
    """Return the mask of the k-core by the usual loop: count by groupby and drop, until nothing changes."""
    import pandas as pd

    frame = pd.DataFrame({"u": users, "i": items})
    while True:
        good = (frame.groupby("u").i.transform("size") >= fewest) & (frame.groupby("i").u.transform("size") >= fewest)
        if good.all():
            mask = np.zeros(len(users), bool)
            mask[frame.index] = True
            return mask
        frame = frame[good]


def step(name: str, rows: int, folder: Path) -> dict[str, float]:
    """Run one measurement in this process."""
    started = 0.0
    result: dict[str, float] = {}
    if name == "raw file":
        started = time.perf_counter()
        write_csv(folder / "ratings.csv", rows)
    elif name in ("k-core", "pandas k-core"):
        from recbole_hyper.data.tables.filters import k_core

        users, items = draw(rows)
        k_core(users[:9], items[:9], min_user=2, min_item=2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        started = time.perf_counter()
        mask = k_core(users, items, min_user=5, min_item=5) if name == "k-core" else pandas_k_core(users, items, 5)
        result |= {"kept": int(mask.sum()), "memory_before": before}
    else:
        from recbole_hyper.data.tables.prepare.pipeline import prepare

        def prepared(source: Path, fewest: int) -> Any:
            changes = {"filter": "k_core", "min_user": fewest, "min_item": fewest, "duplicates": "first"}
            return prepare(
                source.stem, source=source, format="amazon-ratings-2014", changes=changes, output=folder / "out"
            )

        (folder / "few.csv").write_text("A1REVIEWER0001,B00AAAAAAA,5.0,1\nA1REVIEWER0001,B00AAAAAAB,5.0,2\n")
        prepared(folder / "few.csv", 1)
        started = time.perf_counter()
        done = prepared(folder / "ratings.csv", 5)
        result |= {"kept": done.statistics.interactions, "steps": done.steps}  # type: ignore[dict-item]
    seconds = time.perf_counter() - started
    return {**result, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(step(arguments.step, arguments.rows, arguments.folder)))
        return
    import pandas as pd
    import pyarrow as pa

    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    versions = {"python": platform.python_version(), "numpy": np.__version__, "pandas": pd.__version__}
    head = {"rows": arguments.rows, "cpu": platform.machine(), "cores": os.cpu_count(), "threads": threads}
    # other work on the machine slows everything down
    head["load"] = round(os.getloadavg()[0], 1)
    head |= versions | {"pyarrow": pa.__version__}
    print("  ".join(f"{key} {value}" for key, value in head.items()))
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name in ("k-core", "pandas k-core", "raw file", "prepare"):
            command = [sys.executable, __file__, f"--rows={arguments.rows}", f"--folder={folder}", f"--step={name}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results[name] = json.loads(done.stdout)
        size = (Path(folder) / "ratings.csv").stat().st_size
    ours, pandas = results["k-core"], results["pandas k-core"]
    if ours["kept"] != pandas["kept"]:
        raise SystemExit(f"the k-cores differ: {ours['kept']} and {pandas['kept']} rows")
    print(f"\n{'':<16}{'seconds':>9}{'x pandas':>10}{'peak GB':>9}{'rows kept':>13}")
    for name, ratio in (("k-core", ours["seconds"] / pandas["seconds"]), ("pandas k-core", 1.0), ("prepare", None)):
        row = results[name]
        shown = "" if ratio is None else f"{ratio:.2f}"
        print(f"{name:<16}{row['seconds']:>9.1f}{shown:>10}{row['peak'] / 1e9:>9.2f}{row['kept']:>13,}")
    whole = results["prepare"]
    print(f"\nprepare: {size / 1e6:.0f} MB of csv, {arguments.rows / whole['seconds'] / 1e6:.2f} million rows a second")
    met = whole["seconds"] <= TARGET_SECONDS and whole["peak"] <= TARGET_BYTES
    print(f"target for 30 million rows: {TARGET_SECONDS} s, {TARGET_BYTES / 1e9:.0f} GB: {'met' if met else 'not met'}")
    if arguments.output:
        arguments.output.write_text(json.dumps({**head, "raw_bytes": size, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
