"""Reading and preparing generated files here and in another checkout, in turns: processor seconds on one thread.

    python benchmarks/bench_turns.py --before=CHECKOUT [--rows 1000000 5000000] [--turns=3] [--output=FILE]

The files are those of bench_load and bench_prepare. Each step is a separate process; the first
turn has no compiled kernels. Peak memory includes the imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
STEPS = """
import resource, sys, time
from pathlib import Path

import recbole_hyper

folder, step = Path(sys.argv[1]), sys.argv[2]
assert Path(recbole_hyper.__file__).is_relative_to(sys.argv[3]), recbole_hyper.__file__
if step == "load":
    from recbole_hyper.config import Config
    from recbole_hyper.runs.dataset import stored

    read, given = stored, [Config("SASRecCE", "rows", config_dict={"data_path": str(folder)})]
    options = {}
else:
    from recbole_hyper.data.tables.prepare.pipeline import prepare

    core = {"filter": "k_core", "min_user": 5, "min_item": 5, "duplicates": "first"}
    read, given = prepare, ["ratings"]
    options = {"source": folder / "ratings.csv", "output": folder / "out", "changes": core, "overwrite": True}
    options["format"] = "amazon-ratings-2014"
start = time.process_time()
read(*given, **options)
print(round(time.process_time() - start, 2), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    results = []
    for rows in arguments.rows:
        print(f"{rows:,} rows")
        results.append({"rows": rows, **in_turns(arguments.before.resolve(), rows, arguments.turns)})
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1) + "\n")


def in_turns(before: Path, rows: int, turns: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return processor seconds and peak MB of each step and checkout, a number for each turn."""
    import bench_load
    import bench_prepare

    found: dict[str, dict[str, dict[str, list[float]]]] = {"processor seconds": {}, "peak MB": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bench_load.write_inter(folder / "rows" / "rows.inter", rows)
        bench_prepare.write_csv(folder / "ratings.csv", rows)
        for _ in range(turns):
            for step in ("load", "prepare"):
                for name, checkout in {"before": before, "now": HERE}.items():
                    cache = folder / name
                    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
                    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(cache)}
                    # -P: the current folder may be a checkout too
                    command = [sys.executable, "-P", "-c", STEPS, scratch, step, str(checkout)]
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                    for what, value in zip(found, done.stdout.split()[-2:], strict=True):
                        found[what].setdefault(step, {}).setdefault(name, []).append(float(value))
                print(step, *(f"{what} {values[step]}" for what, values in found.items()), flush=True)
    return found


if __name__ == "__main__":
    main()
