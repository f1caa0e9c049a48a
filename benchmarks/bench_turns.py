"""Reading and preparing a generated file here and in another checkout, in turns: processor seconds on one thread.

    python benchmarks/bench_turns.py --before=CHECKOUT [--rows=1000000] [--turns=3] [--output=results/bench_turns.json]

The files are those of bench_load and bench_prepare. Each step is a separate process, with an empty cache of data; the
first turn has no compiled kernels either.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
STEPS = """
import sys, time
from pathlib import Path

folder, step = Path(sys.argv[1]), sys.argv[2]
if step == "load":
    from recbole_hyper.config import Config
    from recbole_hyper.data.dataset import stored

    read, given = stored, [Config("SASRecCE", "rows", config_dict={"data_path": str(folder)})]
    options = {}
else:
    from recbole_hyper.data.prepare.pipeline import prepare

    core = {"filter": "k_core", "min_user": 5, "min_item": 5, "duplicates": "first"}
    read, given = prepare, ["ratings"]
    options = {"source": folder / "ratings.csv", "output": folder / "out", "changes": core, "overwrite": True}
    options["format"] = "amazon-ratings-2014"
start = time.process_time()
read(*given, **options)
print(round(time.process_time() - start, 2))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    import bench_load
    import bench_prepare

    seconds: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bench_load.write_inter(folder / "rows" / "rows.inter", arguments.rows)
        bench_prepare.write_csv(folder / "ratings.csv", arguments.rows)
        for _ in range(arguments.turns):
            for step in ("load", "prepare"):
                for name, checkout in {"before": arguments.before.resolve(), "now": HERE}.items():
                    cache = folder / name
                    for stored in cache.glob("recbole_hyper/*"):
                        if stored.name != "kernels":
                            shutil.rmtree(stored)
                    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
                    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(cache)}
                    command = [sys.executable, "-c", STEPS, scratch, step]
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                    seconds.setdefault(step, {}).setdefault(name, []).append(float(done.stdout.split()[-1]))
                print(step, seconds[step], flush=True)
    if arguments.output:
        result = {"rows": arguments.rows, "processor seconds": seconds}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
