"""Log finished runs to MLflow: parameters, the metrics of every epoch and of the test, and the files of the folder.

    pip install mlflow-skinny
    MLFLOW_TRACKING_URI=http://server:5000 python examples/log_to_mlflow.py saved/shop

The model card is the description. The experiment is MLFLOW_EXPERIMENT_NAME, by default the data set.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow

# the checkpoint and the data stay
FILES = ("README.md", "config.yaml", "result.json", "train.csv", "run.log", "model.safetensors")


def log_run(folder: Path) -> None:
    """Log the run in a folder."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    card, best = (folder / "README.md").read_text(encoding="utf-8"), max(0, result["best_epoch"])
    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or result["dataset"])
    tags = {name: str(result[name]) for name in ("dataset", "data_fingerprint")}
    with mlflow.start_run(run_name=f"{result['model']}, seed {result['seed']}", tags=tags, description=card[:5000]):
        mlflow.log_params({key: str(value)[:500] for key, value in result["config"].items() if value is not None})
        with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                log_metrics(row, int(row.pop("epoch")))
        for part in ("valid", "test"):
            log_metrics({f"best_{part}_{name}": value for name, value in result[part].items()}, best)
        for name in FILES:
            if (folder / name).is_file():
                mlflow.log_artifact(str(folder / name))


def log_metrics(values: Mapping[str, Any], epoch: int) -> None:
    """Log the values that are numbers; MLflow has no @ in names."""
    numbers = {name.replace("@", "_at_"): float(value) for name, value in values.items() if value not in ("", None)}
    mlflow.log_metrics(numbers, step=epoch)


if __name__ == "__main__":
    for run in sys.argv[1:]:
        log_run(Path(run))
