"""Processor time of README's first model on a machine without compiled kernels, here and in another checkout, in turns.

    python benchmarks/bench_first_run.py [--before=CHECKOUT] [--turns=2] [--output=results/bench_first_run.json]

Each run is a process with an empty cache folder, one thread and README's ten lines. ``cold`` is its processor time,
``compile`` the seconds in which it compiled, ``kernels`` the number of files in its cache; ``next`` is the same run
again, with what the first one cached.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
AFTER = """
import json as _json, resource as _resource
_own, _children = (_resource.getrusage(who) for who in (_resource.RUSAGE_SELF, _resource.RUSAGE_CHILDREN))
from recbole_hyper.kernels.clock import COMPILING
print(_json.dumps({"seconds": round(sum(u.ru_utime + u.ru_stime for u in (_own, _children)), 1),
                   "compile": round(COMPILING.seconds, 1), "ndcg": result["test"]["ndcg@10"]}))
"""


def measured(checkout: Path, cache: Path) -> dict[str, Any]:
    """Run README's ten lines with the package of ``checkout``."""
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert found, "README has no Python"
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(cache)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", found[1] + AFTER], cwd=folder, env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return {**json.loads(done.stdout.splitlines()[-1]), "kernels": sum(1 for _ in cache.rglob("*.nbc"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before, "now": HERE} if arguments.before else {"now": HERE}
    results: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version(), "threads": 1, "runs": []}
    for _ in range(arguments.turns):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as cache:
                cold, again = (measured(checkout.resolve(), Path(cache)) for _ in range(2))
            row = {"checkout": name, "cold": cold.pop("seconds"), "next": again["seconds"], **cold}
            results["runs"].append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
