"""Several processes of torchrun train what one trains, and are refused where they cannot."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import load, run
from recbole_hyper.config import ConfigError
from recbole_hyper.runs import claim
from recbole_hyper.training import progress
from recbole_hyper.training.checkpoint import CheckpointError
from tests.raising import refused
from tests.training.several import same_training, settings


@pytest.mark.slow
def test_two_processes_of_torchrun(random_data: Path, tmp_path: Path) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "one", n_threads=1))
    keys = settings(random_data, tmp_path / "two", model="SASRecCE", dataset="random", n_threads=1)
    words = [f"--{key}={value}" for key, value in keys.items()]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "-m", "recbole_hyper", "run"]
    done = subprocess.run([*start, *words], capture_output=True, text=True, check=True)
    same_training(tmp_path / "one", tmp_path / "two")
    # the process of rank 0 alone prints
    assert done.stdout.count("result.json") == 1
    assert load(tmp_path / "two").differences == []


def test_a_resume_with_another_number_of_processes_is_refused(random_data, tmp_path, monkeypatch) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=1))
    monkeypatch.setattr(progress, "world", lambda: (0, 2))
    with refused(CheckpointError, "1 processes", "not 2"):
        run(config_dict={"output_dir": str(tmp_path / "run"), "resume": True, "epochs": 2})


def test_a_model_of_one_step_is_refused(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"data_path": str(random_data), "output_dir": str(tmp_path / "run")}
    monkeypatch.setattr(claim, "world", lambda: (0, 2))
    with refused(ConfigError, "Pop", "torchrun"):
        run("Pop", "random", config_dict=keys)
