"""A run in MLflow: parameters, metrics of every epoch, files."""

from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import run
from tests.training.common import settings


def test_a_run_is_logged(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    from examples.log_to_mlflow import log_run

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'store'}")
    result = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=3))
    log_run(tmp_path / "run")
    client = MlflowClient()
    (logged,) = client.search_runs([client.get_experiment_by_name("random").experiment_id])
    assert logged.info.status == "FINISHED"
    assert logged.data.params["hidden_size"] == str(result["config"]["hidden_size"])
    assert logged.data.metrics["best_test_ndcg_at_10"] == result["test"]["ndcg@10"]
    assert logged.data.tags["mlflow.note.content"].startswith("# SASRecCE on random")
    table = pd.read_csv(tmp_path / "run" / "train.csv")
    history = {one.step: one.value for one in client.get_metric_history(logged.info.run_id, "train_loss")}
    assert history == pytest.approx(table["train_loss"].to_dict())
    files = {one.path for one in client.list_artifacts(logged.info.run_id)}
    assert {"README.md", "config.yaml", "result.json", "train.csv", "model.safetensors"} <= files
