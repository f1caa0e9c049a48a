"""Log a finished run to MLflow: its parameters, the metrics of every epoch and of the test, and its folder."""

import csv
import logging
import math
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

logger = logging.getLogger("recbole_hyper")

_WEIGHTS = ("model.safetensors", "refit/model.safetensors")
# files of the folder that MLflow gets; the checkpoint and the data stay
_FILES = ("README.md", "config.yaml", "result.json", "train.csv", "run.log", *_WEIGHTS)
SECONDS = 20.0  # for an answer of the server; MLflow's own default is 2 minutes, seven times over


def tracking_uri(folder: Path) -> str | None:
    """Return where the run in ``folder`` is logged, checked before it trains; None is MLflow's own choice.

    MLflow reads ``MLFLOW_TRACKING_URI``. If the server there does not answer, that is a warning, and the run is logged
    to a local store beside its folder.
    """
    server = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not server.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(f"{server.rstrip('/')}/health", timeout=SECONDS):
            return None
    except urllib.error.HTTPError:  # it answers, perhaps to users with a password
        return None
    except (OSError, ValueError) as error:
        store = (folder.absolute().parent / "mlruns").as_uri()
        logger.warning("MLflow's server %s does not answer (%s): the run will be logged to %s", server, error, store)
        return store


def log_to_mlflow(config: Any, result: dict[str, Any], folder: Path, uri: str | None = None) -> str | None:
    """Log a run, with the model card as its description, and return MLflow's id of it.

    ``uri`` is that of :func:`tracking_uri`; the experiment is ``MLFLOW_EXPERIMENT_NAME``, by default the data set. If
    the store fails, or a server does not answer in ``SECONDS``, that is a warning, and the result is None: the run in
    ``folder`` is complete.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", f"{SECONDS:.0f}")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        return _logged(config, result, folder, uri)
    except Exception as error:  # a run of hours is not lost because a server is away
        logger.warning("the run was not logged to MLflow (%s: %s); its folder is complete", type(error).__name__, error)
        return None


def _logged(config: Any, result: dict[str, Any], folder: Path, uri: str | None) -> str:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    client, name = MlflowClient(uri), os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(result["dataset"])
    experiment = client.get_experiment_by_name(name)
    number = client.create_experiment(name) if experiment is None else experiment.experiment_id
    run = client.create_run(number, run_name=f"{result['model']}, seed {result['seed']}").info.run_id
    try:
        now = int(folder.joinpath("result.json").stat().st_mtime * 1000)
        params = [Param(key, str(value)[:500]) for key, value in sorted(config.plain().items()) if value is not None]
        metrics = [Metric(key, value, now, epoch) for key, value, epoch in _metrics(result, folder)]
        tags = [RunTag(name, str(result[name])) for name in ("dataset", "data_fingerprint")]
        tags.append(RunTag("mlflow.note.content", folder.joinpath("README.md").read_text(encoding="utf-8")[:5000]))
        client.log_batch(run, metrics, params, tags)
        for file in _FILES:
            if (folder / file).is_file():
                client.log_artifact(run, str(folder / file), str(Path(file).parent) if "/" in file else None)
    except BaseException:
        client.set_terminated(run, "FAILED")
        raise
    client.set_terminated(run)
    return run


def _metrics(result: dict[str, Any], folder: Path) -> list[tuple[str, float, int]]:
    """Return (name, value, epoch) of train.csv, and the final metrics at the best epoch; MLflow has no @ in names."""
    rows: list[tuple[str, float, int]] = []
    with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows += [(key, float(value), int(row["epoch"])) for key, value in row.items() if value and key != "epoch"]
    best = max(0, int(result.get("best_epoch") or 0))
    for part in ("valid", "test"):
        rows += [(f"best_{part}_{key}", float(value), best) for key, value in (result.get(part) or {}).items()]
    return [(key.replace("@", "_at_"), value, epoch) for key, value, epoch in rows if math.isfinite(value)]
