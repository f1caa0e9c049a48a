"""Several processes train what one trains: the arithmetic without Ray, and the whole run with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import torch
from safetensors.torch import load_file

from recbole_hyper.config import ConfigError
from recbole_hyper.runs.load import load
from recbole_hyper.runs.run import run
from tests.raising import refused
from tests.training.several import same_training, settings


@pytest.mark.slow
def test_two_workers_on_ray(random_data: Path, tmp_path: Path) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "one", n_threads=1))
    # in no file: every worker maps what the first process holds
    rows = pd.read_csv(random_data / "random" / "random.inter", sep="\t")
    rows.columns = [name.partition(":")[0] for name in rows]
    keys = settings(tmp_path / "nothing", tmp_path / "two", num_workers=2)
    result = run("SASRecCE", "random", interactions=rows, config_dict=keys)
    assert result["workers"] == 2
    same_training(tmp_path / "one", tmp_path / "two")
    assert not (tmp_path / "two" / "shared").exists()
    assert not load(tmp_path / "two").differences


@pytest.mark.parametrize(
    ("before", "now"),
    [(1, 2), (2, 1)],
)
def test_a_resume_on_another_number_of_workers_is_refused(
    random_data: Path, tmp_path: Path, before: int, now: int
) -> None:
    keys = settings(random_data, tmp_path / "run", epochs=1)
    run("SASRecCE", "random", config_dict=keys)
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("num_workers: 1", f"num_workers: {before}"))
    said = rf"num_workers: {before} before, {now} now.*continue it unchanged with 'recbole-hyper run --resume=True"
    with pytest.raises(ConfigError, match=said):
        run("SASRecCE", "random", config_dict={**keys, "num_workers": now, "resume": True, "epochs": 2})


def test_a_model_of_one_step_is_refused(random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "output_dir": str(tmp_path / "run"), "num_workers": 2}
    with refused(ConfigError, "fitted", "process"):
        run("Pop", "random", config_dict=keys)


RUN = """
import json, sys
from recbole_hyper import run
try:
    run("SASRecBCE", "random", config_dict=json.loads(sys.stdin.read()))
except RuntimeError as error:
    sys.exit(str(error))
"""


def killed(keys: dict[str, Any], rows: int) -> str:
    """Run, kill one worker once train.csv has so many ``rows``, and return what the run said of that."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(process.communicate(json.dumps(keys))[1]))
    reader.start()
    table = Path(keys["output_dir"]) / "train.csv"
    while process.poll() is None and (not table.is_file() or len(table.read_text().splitlines()) <= rows):
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child for child in children if "TrainWorker" in "".join(child.cmdline())]
    workers[rows % 2].kill()
    reader.join()
    assert process.returncode == 1
    return said[0].strip().splitlines()[-1]


@pytest.mark.slow
def test_a_killed_run_on_two_workers_resumes_to_the_bit(random_data: Path, tmp_path: Path) -> None:
    """Dropout and negatives of both workers, an average, and a refit, from checkpoints inside the epochs."""
    keys = {"num_workers": 2, "epochs": 12, "n_threads": 1, "hidden_dropout_prob": 0.2, "ema_decay": 0.9}
    keys |= {"refit": True, "eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}, "stopping_step": 20}
    keys |= {"checkpoint_minutes": 1e-9}
    whole = run("SASRecBCE", "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    for rows in (2, 5, 8, 11):
        said = killed(settings(random_data, tmp_path / "parts", **keys, resume=rows > 2), rows)
        assert re.fullmatch(r"training on 2 workers failed: a worker was killed.*--output_dir=\S+parts'", said)
        assert not (tmp_path / "parts" / ".workers").exists()
    parts = run(config_dict={"output_dir": str(tmp_path / "parts"), "resume": True})
    assert parts["workers"] == parts["config"]["num_workers"] == 2
    for key in ("valid", "test", "best_epoch", "epochs", "refit_epochs"):
        assert parts[key] == whole[key]
    for name in ("model.safetensors", "refit/model.safetensors"):
        one, other = (load_file(tmp_path / folder / name) for folder in ("whole", "parts"))
        assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())


def test_cluster_that_is_not_there(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", num_workers=2, ray_address="127.0.0.1:9")
    with refused(ConfigError, "127.0.0.1:9"):
        run("SASRecCE", "random", config_dict=keys)
