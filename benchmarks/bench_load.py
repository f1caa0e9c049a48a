"""From an .inter file to sequences: seconds and peak memory.

    python benchmarks/bench_load.py [--rows=20000000] [--folder=DIR] [--data=ml-1m.inter] [--output=FILE]
                                    [--rectools=PYTHON] [--replay=PYTHON]

The popularity of the generated users and items has a long tail (about one user and one item per 20 rows, at most a
million of each). In a third of the rows, the item follows from the user's item before. Every step is a separate
process; its peak memory includes the imports, which are listed too. The peers read the same file with pandas, as in
their examples; RecTools and RePlay run in the interpreters that the options name. RecBole's Dataset is left out above
30 million rows, for which 24 GiB are too little.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_inter(path: Path, rows: int, seed: int = 1) -> None:
    """Write ``rows`` interactions in time order; a third of them follow a hidden cycle over the items."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    draw = np.random.default_rng(seed)
    n_users = n_items = max(100, min(1_000_000, rows // 20))
    last = draw.integers(0, n_items, n_users)
    successor = draw.permutation(n_items)
    options = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(b"user_id:token\titem_id:token\ttimestamp:float\n")
        for start in range(0, rows, 1 << 20):
            count = min(1 << 20, rows - start)
            users = (n_users * draw.random(count) ** 2).astype(np.int64)
            items = (n_items * draw.random(count) ** 3).astype(np.int64)
            follows = draw.random(count) < 0.34
            items = np.where(follows, successor[last[users]], items)
            last[users] = items
            times = pa.array(1_000_000_000 + np.arange(start, start + count))
            names = [pc.binary_join_element_wise(letter, pa.array(codes).cast(pa.string()), "")
                     for letter, codes in (("u", users), ("i", items))]  # fmt: skip
            pacsv.write_csv(pa.table([*names, times], names=list("uit")), file, options)


def ours(path: Path) -> Callable[[], int]:
    from recbole_hyper.config import Config
    from recbole_hyper.runs.dataset import stored

    config = Config("SASRecCE", path.stem, config_dict={"data_path": str(path.parent.parent)})
    return lambda: len(stored(config).items)


def recbole(path: Path) -> Callable[[], int]:
    from recbole_hyper.config import Config
    from recbole_hyper.runs.dataset import FeatureDataset

    config = Config("SASRecCE", path.stem, config_dict={"data_path": str(path.parent.parent)})
    return lambda: len(FeatureDataset(config).store.items)


def _frame(path: Path) -> Any:
    import pandas as pd

    types = {"user_id": "str", "item_id": "str", "timestamp": "float64"}
    return pd.read_csv(path, sep="\t", names=list(types), dtype=types, skiprows=1)


def rectools(path: Path) -> Callable[[], int]:
    from rectools import Columns
    from rectools.dataset import Dataset

    names = {"user_id": Columns.User, "item_id": Columns.Item, "timestamp": Columns.Datetime}

    def read() -> int:
        frame = _frame(path).rename(columns=names).assign(**{Columns.Weight: 1.0})
        frame[Columns.Datetime] = frame[Columns.Datetime].astype("datetime64[s]")
        return len(Dataset.construct(frame).interactions.df)

    return read


def replay(path: Path) -> Callable[[], int]:
    from replay.data import Dataset, FeatureHint, FeatureInfo, FeatureSchema, FeatureType
    from replay.data.dataset_utils import DatasetLabelEncoder

    schema = FeatureSchema(
        [
            FeatureInfo("user_id", FeatureType.CATEGORICAL, FeatureHint.QUERY_ID),
            FeatureInfo("item_id", FeatureType.CATEGORICAL, FeatureHint.ITEM_ID),
            FeatureInfo("timestamp", FeatureType.NUMERICAL, FeatureHint.TIMESTAMP),
        ]
    )
    return lambda: len(DatasetLabelEncoder().fit_transform(Dataset(schema, _frame(path))).interactions)


def imports(path: Path) -> Callable[[], int]:
    import recbole_hyper.runs.dataset

    return lambda: int(recbole_hyper.runs.dataset is None)


STEPS = {"imports": imports, "ours": ours, "recbole": recbole, "rectools": rectools, "replay": replay}


def measured(step: str, path: Path, python: str = sys.executable) -> dict[str, Any]:
    """Run a step in a separate process; return its seconds, its peak memory and its number of rows."""
    command = [python, __file__, f"--step={step}", f"--folder={path}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        return {"failed": run.stderr.strip().splitlines()[-1] if run.stderr.strip() else run.returncode}
    return json.loads(run.stdout.strip().splitlines()[-1])


def table_of(path: Path, arguments: argparse.Namespace) -> dict[str, dict]:
    """Measure every way of reading ``path``."""
    rows = {"imports": measured("imports", path), "ours": measured("ours", path)}
    if path.stat().st_size < 900 << 20:
        rows["RecBole's Dataset"] = measured("recbole", path)
    for name in ("rectools", "replay"):
        if python := getattr(arguments, name):
            rows[name] = measured(name, path, python)
    for name, row in rows.items():
        text = "  ".join(f"{key} {value}" for key, value in row.items())
        print(f"{path.stem:>12} {name:20} {text}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=20_000_000)
    parser.add_argument("--folder", type=Path, help="folder that keeps the generated file; with --step: the file")
    parser.add_argument("--data", type=Path, help="your .inter file, such as ml-1m.inter")
    parser.add_argument("--rectools", help="Python interpreter with rectools")
    parser.add_argument("--replay", help="Python interpreter with replay-rec")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        read = STEPS[arguments.step](arguments.folder)  # imports are not measured
        start = time.perf_counter()
        held = read()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": round(seconds, 3), "peak_gb": round(peak / 1e9, 2), "rows": held}))
        return
    results: dict = {"load": round(os.getloadavg()[0], 1), "cores": os.cpu_count(), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.data:
            results[arguments.data.stem] = table_of(arguments.data.resolve(), arguments)
        if arguments.rows:
            name = f"rows-{arguments.rows}"
            path = (arguments.folder or Path(scratch)) / name / f"{name}.inter"
            if not path.is_file():
                write_inter(path, arguments.rows)
            results[name] = table_of(path, arguments)
    results["command"] = " ".join(["python", "benchmarks/bench_load.py", *sys.argv[1:]])
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
