"""A run in MLflow: parameters, metrics of every epoch, files; a server that is away loses nothing."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import run
from recbole_hyper.config import ConfigError
from recbole_hyper.runs import mlflow
from tests.training.common import settings


def test_a_run_is_logged(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'store'}")
    result = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=3, loggers="mlflow"))
    client = MlflowClient()
    experiment = client.get_experiment_by_name("random")
    (logged,) = client.search_runs([experiment.experiment_id])
    assert logged.info.status == "FINISHED"
    assert logged.data.params["hidden_size"] == str(result["config"]["hidden_size"])
    assert logged.data.params["model"] == "SASRecCE"
    assert logged.data.metrics["best_test_ndcg_at_10"] == result["test"]["ndcg@10"]
    assert logged.data.tags["mlflow.note.content"].startswith("---\nlibrary_name: recbole_hyper")
    table = pd.read_csv(tmp_path / "run" / "train.csv")
    for column, name in (("train_loss", "train_loss"), ("valid_ndcg@10", "valid_ndcg_at_10")):
        history = {one.step: one.value for one in client.get_metric_history(logged.info.run_id, name)}
        assert history == pytest.approx(table[column].dropna().to_dict())
    files = {one.path for one in client.list_artifacts(logged.info.run_id)}
    assert {"README.md", "config.yaml", "result.json", "train.csv", "model.safetensors"} <= files


def test_a_silent_server_is_a_warning(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run waited for minutes: MLflow tries seven times, and waits for two minutes each time."""
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    for name in ("TIMEOUT", "MAX_RETRIES"):
        monkeypatch.delenv(f"MLFLOW_HTTP_REQUEST_{name}", raising=False)
    monkeypatch.setattr(mlflow, "SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        run("Pop", "random", config_dict=settings(random_data, tmp_path / "run", loggers="mlflow"))
    assert time.monotonic() - start < 60
    assert "MLflow failed" in (tmp_path / "run" / "run.log").read_text()
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("random")
    assert [one.info.status for one in client.search_runs([experiment.experiment_id])] == ["FINISHED"]


def test_other_loggers_are_refused_before_the_data_are_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run("Pop", "nowhere", config_dict={"loggers": "mflow", "output_dir": str(tmp_path / "run")})
    assert "loggers='mflow'" in str(error.value)
