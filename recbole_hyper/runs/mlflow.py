"""Log a finished run to MLflow: its parameters, the metrics of every epoch and of the test, and its folder."""

import csv
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger("recbole_hyper")

# files of the folder that MLflow gets; the checkpoint and the data stay
_FILES = ("README.md", "config.yaml", "result.json", "train.csv", "run.log", "model.safetensors")
SECONDS = 20.0  # for an answer of the server; MLflow's own default is 2 minutes, seven times over


def log_to_mlflow(result: Mapping[str, Any], folder: Path) -> None:
    """Log a run, with the model card as its description, to ``MLFLOW_TRACKING_URI``.

    The experiment is ``MLFLOW_EXPERIMENT_NAME``, by default the data set. If the server fails, or does not answer in
    ``SECONDS``, that is a warning, and the run is logged to a local store beside its folder.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", f"{SECONDS:.0f}")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    server = mlflow.get_tracking_uri()
    try:
        _log(mlflow, result, folder)
    except Exception as error:  # a run of hours is not lost because a server is away
        mlflow.set_tracking_uri((folder.absolute().parent / "mlruns").as_uri())
        logger.warning("MLflow failed (%s); the run is logged to %s", error, mlflow.get_tracking_uri())
        _log(mlflow, result, folder)
    finally:
        mlflow.set_tracking_uri(server)


def _log(mlflow: Any, result: Mapping[str, Any], folder: Path) -> None:
    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(result["dataset"]))
    card, best = (folder / "README.md").read_text(encoding="utf-8"), max(0, int(result.get("best_epoch") or 0))
    tags = {name: str(result[name]) for name in ("dataset", "data_fingerprint")}
    name = f"{result['model']}, seed {result['seed']}"
    with mlflow.start_run(run_name=name, nested=True, tags=tags, description=card[:5000]):
        mlflow.log_params({key: str(value)[:500] for key, value in result["config"].items() if value is not None})
        with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                _log_metrics(mlflow, row, int(row.pop("epoch")))
        for part in ("valid", "test"):
            _log_metrics(mlflow, {f"best_{part}_{key}": value for key, value in result[part].items()}, best)
        for name in _FILES:
            if (folder / name).is_file():
                mlflow.log_artifact(str(folder / name))


def _log_metrics(mlflow: Any, values: Mapping[str, Any], epoch: int) -> None:
    """Log what is a number; MLflow has no @ in names."""
    numbers = {key.replace("@", "_at_"): float(value) for key, value in values.items() if value not in ("", None)}
    mlflow.log_metrics(numbers, step=epoch)
