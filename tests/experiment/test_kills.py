"""A comparison whose driver and runs are killed: the same command continues, and the table is that of no kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from tests.conftest import SMALL

STANDS_IN = """
import runpy, time
from recbole_hyper import cli
cli.main = lambda: time.sleep(60)
runpy.run_module("recbole_hyper", run_name="__main__")
"""


def test_a_run_ends_when_the_pipe_of_its_driver_closes() -> None:
    environment = {**os.environ, "RECBOLE_HYPER_ENDS_WITH_INPUT": "1"}
    process = subprocess.Popen([sys.executable, "-c", STANDS_IN], stdin=subprocess.PIPE, env=environment)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.4)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("command", "finished"), [("compare", 0), ("compare", 2), ("seeds", 0), ("seeds", 1)])
def test_killed_experiments_continue(command: str, finished: int, random_data: Path, tmp_path: Path) -> None:
    keys = {
        **SMALL,
        "data_path": str(random_data),
        "use_gpu": False,
        "epochs": 4,
        "topk": [5],
        "valid_metric": "NDCG@5",
    }
    words = ["compare", "--models=Pop,SASRecCE", "--max_concurrent=1"] if command == "compare" else ["run"]
    words += [f"--{key}={value}" for key, value in keys.items()]
    words += [] if command == "compare" else ["--model=SASRecCE"]
    asked = [sys.executable, "-m", "recbole_hyper", *words, "--dataset=random", "--seeds=1,2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    cut = tmp_path / "cut"
    process = subprocess.Popen([*asked, f"--output_dir={cut}"], env=environment, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 200
    # the epochs of the run that is killed
    epochs = f"**/seed-{finished + 1 if command == 'seeds' else 1 if finished else '*'}/train.csv"
    while time.monotonic() < end and process.poll() is None:
        done = len(list(cut.rglob("seed-*/result.json")))
        if done >= finished and (list(cut.glob(epochs)) or (command == "compare" and not finished)):
            break
        time.sleep(0.05)
    running = psutil.Process(process.pid).children(recursive=True)
    for one in [*(running if finished else []), psutil.Process(process.pid)]:
        one.send_signal(signal.SIGKILL)
    process.wait()
    assert not psutil.wait_procs(running, timeout=20)[1]  # a run ends with its driver
    for folder in (cut, tmp_path / "whole"):
        subprocess.run([*asked, f"--output_dir={folder}"], env=environment, check=True, stdout=subprocess.DEVNULL)
    tables = [pd.read_csv(folder / f"{command}.csv") for folder in (cut, tmp_path / "whole")]
    measured = ["train_seconds", "total_seconds", "peak_memory_mib"]
    pd.testing.assert_frame_equal(*(table.drop(columns=measured, errors="ignore") for table in tables))
