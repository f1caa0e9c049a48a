"""Two trainings on one machine, each with a thread per processor: seconds per epoch, compared with one training alone.

    python benchmarks/bench_threads.py [--model=SASRecCE] [--epochs=4]

Measured with the limit of recbole_hyper.threads and with libgomp's default spinning. Two trainings that share the
processors fairly take twice as long as one.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIBGOMP_DEFAULT = "300000"


def start(model: str, epochs: int, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a run on ml-100k, which comes with recbole."""
    keys = [f"--model={model}", "--dataset=ml-100k", f"--epochs={epochs}", "--eval_step=0", f"--output_dir={folder}"]
    command = [sys.executable, "-m", "recbole_hyper", "run", *keys]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def epoch_seconds(folder: Path) -> float:
    """Return the median time of an epoch."""
    with (folder / "train.csv").open() as file:
        return statistics.median(float(row["train_seconds"]) for row in csv.DictReader(file))


def main() -> None:
    """Measure and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="SASRecCE")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for name, environment in (("limited", {}), ("libgomp's own", {"GOMP_SPINCOUNT": LIBGOMP_DEFAULT})):
            seconds = {}
            for count in (1, 2):
                folders = [Path(scratch) / f"{name}-{count}-{number}" for number in range(count)]
                runs = [start(arguments.model, arguments.epochs, folder, environment) for folder in folders]
                for run in runs:
                    if run.wait():
                        sys.exit(f"a run failed: {run.args}")
                seconds[count] = max(epoch_seconds(folder) for folder in folders)
            print(
                f"spinning {name}: an epoch alone {seconds[1]:.2f} s, beside another {seconds[2]:.2f} s, "
                f"{seconds[2] / seconds[1]:.1f} times"
            )


if __name__ == "__main__":
    main()
