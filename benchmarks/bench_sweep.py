"""A sweep of small trials, compared with the same runs started one after another from the shell.

make bench-sweep; options: python benchmarks/bench_sweep.py --trials=24 --dataset=ml-100k --data_path=DIR --output=FILE

Both train the same settings, epochs and seeds on the same cores. Each run of the shell is tested, but a sweep tests
only its winner; the ratio is therefore computed without the shell's test time. The overhead per trial is the wall time
of the search times the number of parallel trials, minus the time of the trials in their processes, divided by the
number of trials. It includes the start of Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from recbole_hyper.evaluation.results import versions
from recbole_hyper.evaluation.tables import table
from recbole_hyper.files import write_json


def main() -> None:
    """Run both and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--data_path", default=os.environ.get("RECBOLE_HYPER_DATA", "dataset"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--output", help="JSON file for the results")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    found = versions()
    device = platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {found[name]}" for name in ("python", "torch", "ray", "recbole"))
    print(f"{device}, {cores} cores, CPU; {packages}")
    rates = np.geomspace(1e-4, 1e-2, -(-arguments.trials // 2)).round(6).tolist()
    space = {"learning_rate": {"grid": rates}, "hidden_size": {"grid": [16, 32]}}
    keys = {
        "epochs": arguments.epochs,
        "data_path": str(Path(arguments.data_path).absolute()),
        "MAX_ITEM_LIST_LENGTH": 50,
        "n_layers": 1,
        "use_gpu": False,
    }
    folder = Path(tempfile.mkdtemp(prefix="bench-sweep-"))
    try:
        figures = measure(folder, space, keys, arguments.dataset, arguments.trials, cores)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table([{"measure": name, "value": value} for name, value in figures.items()]))
    if arguments.output:
        write_json(Path(arguments.output), {"cores": cores, "versions": found, "figures": figures})


def measure(
    folder: Path, space: dict[str, Any], keys: dict[str, Any], dataset: str, trials: int, cores: int
) -> dict[str, Any]:
    """Return the times of the sweep and of the shell's runs."""
    program = [sys.executable, "-m", "recbole_hyper"]
    (folder / "space.json").write_text(json.dumps(space))
    (folder / "space.json").rename(folder / "space.yaml")
    words = [f"--{key}={value}" for key, value in keys.items()]
    command = [*program, "sweep", "--model=SASRecCE", f"--dataset={dataset}", f"--space={folder / 'space.yaml'}"]
    start = perf_counter()
    _call([*command, f"--output_dir={folder / 'sweep'}", *words])
    sweep_seconds = perf_counter() - start
    outcome = json.loads((folder / "sweep" / "sweep.json").read_text())
    count = outcome["trials"]["finished"]
    search = outcome["seconds"]["search"]
    busy = outcome["seconds"]["trials"]
    shell_seconds = test_seconds = 0.0
    settings = [
        {"learning_rate": rate, "hidden_size": size}
        for rate in space["learning_rate"]["grid"]
        for size in space["hidden_size"]["grid"]
    ]
    for number, setting in enumerate(settings):
        own = [f"--{key}={value}" for key, value in setting.items()]
        start = perf_counter()
        _call([*program, "run", "--model=SASRecCE", f"--dataset={dataset}",
               f"--output_dir={folder / str(number)}", *words, *own])  # fmt: skip
        shell_seconds += perf_counter() - start
        test_seconds += json.loads((folder / str(number) / "result.json").read_text())["seconds"]["test"]
    return {
        "trials": count,
        "side by side": min(cores, count),
        "sweep, wall s": sweep_seconds,
        "  of which search s": search,
        "shell, sum of wall s": shell_seconds,
        "  of which test s": test_seconds,
        "sweep / shell without its test": sweep_seconds / (shell_seconds - test_seconds),
        "trial in its process, mean s": busy / count,
        "overhead per trial, s (Ray's start included)": (search * min(cores, count) - busy) / count,
    }


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    main()
