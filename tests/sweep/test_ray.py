"""Sweeps on Ray: the same outcome as in one process, through kill -9, dead workers, asha and a time budget."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_hyper.cluster import cluster
from recbole_hyper.errors import ConfigError
from recbole_hyper.sweep import sweep, trial, workers
from recbole_hyper.sweep.trial import read_history, read_record
from tests.raising import refused

pytestmark = pytest.mark.slow

SPACE = {"learning_rate": {"grid_search": [0.001, 0.003, 0.01, 0.03]}, "hidden_size": {"grid_search": [8, 16]}}


@pytest.fixture(scope="module")
def ray_cluster() -> Any:
    with cluster(None) as ray, pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers.Options, "alone", False)  # also with one trial at a time
        yield ray


def config(keys: dict[str, Any], folder: Path, **more: Any) -> dict[str, Any]:
    return {**{key: keys[key] for key in keys if key not in SPACE}, "output_dir": str(folder), **more}


def on_ray(
    keys: dict[str, Any], folder: Path, space: Any = SPACE, *, resume: bool = False, **options: Any
) -> dict[str, Any]:
    return sweep("SASRecCE", "tiny", space=space, config_dict=config(keys, folder, resume=resume), **options)


def scores(folder: Path) -> dict[str, float]:
    return pd.read_csv(folder / "trials.csv").set_index("name").score.to_dict()


def serially(patch: pytest.MonkeyPatch, keys: dict[str, Any], folder: Path, **options: Any) -> dict[str, Any]:
    """Run the same sweep in this process."""
    with patch.context() as inside:
        inside.setattr(workers.Options, "alone", True)
        return on_ray(keys, folder, **options)


def test_ray_equals_one_process(ray_cluster: Any, keys: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = on_ray(keys, tmp_path / "ray")
    here = serially(monkeypatch, keys, tmp_path / "here")
    assert there["trials"] == {"finished": 8}
    assert scores(tmp_path / "ray") == scores(tmp_path / "here")
    assert there["best"]["name"] == here["best"]["name"]
    assert there["test"] == here["test"]


def test_asha_stops_the_worse_ones(ray_cluster: Any, keys: dict, tmp_path: Path) -> None:
    # a rate of 1e-9 learns nothing: its trials, which come last, fall behind
    space = {"learning_rate": {"grid_search": [0.03, 0.01, 1e-9, 2e-9]}, "n_layers": {"grid_search": [1, 2]}}
    options = {**keys, "epochs": 12, "stopping_step": 12}
    kept = {key: value for key, value in options.items() if key not in space}
    outcome = sweep(
        "SASRecCE", "tiny", space=space, scheduler="asha", max_concurrent=1,
        config_dict={**kept, "output_dir": str(tmp_path / "s")},
    )  # fmt: skip
    frame = pd.read_csv(tmp_path / "s" / "trials.csv")
    assert outcome["trials"]["stopped"] >= 1
    assert (frame.epochs[frame.status == "stopped"] < 12).all()
    assert outcome["best"]["settings"]["learning_rate"] >= 0.01
    assert "asha" in frame.reason[frame.status == "stopped"].iloc[0]


def test_time_budget(ray_cluster: Any, keys: dict, tmp_path: Path) -> None:
    space = {"learning_rate": {"grid_search": [0.01, 0.02]}}
    long = {**keys, "epochs": 100_000, "stopping_step": 100_000, "output_dir": str(tmp_path / "s")}
    start = time.monotonic()
    with refused(ConfigError, "none of 2 trials finished", trial.OUT_OF_TIME, "--resume=True"):
        sweep("SASRecCE", "tiny", space=space, time_budget=30, config_dict=long)
    assert time.monotonic() - start < 120
    folders = list((tmp_path / "s" / "trials").iterdir())
    assert {record.status for record in map(read_record, folders) if record} == {"unfinished"}
    assert any(map(read_history, folders))


def test_ray_starts_a_killed_trial_again(ray_cluster: Any, keys: dict, tmp_path: Path) -> None:
    plan_space = {"learning_rate": {"grid_search": [0.01, 0.02]}}
    long = {**keys, "epochs": 30, "stopping_step": 30}
    killer = subprocess.Popen(
        [sys.executable, "-c", KILL_WORKER, str(tmp_path / "s" / "trials")], stdout=subprocess.PIPE, text=True
    )
    try:
        swept = sweep("SASRecCE", "tiny", space=plan_space, max_concurrent=1, config_dict=config(long, tmp_path / "s"))
        killed = killer.communicate(timeout=60)[0].strip()
    finally:
        killer.kill()
    assert swept["trials"] == {"finished": 2}
    record = read_record(tmp_path / "s" / "trials" / killed)
    assert record is not None
    assert record.epochs == 30
    log = (tmp_path / "s" / "trials" / killed / "run.log").read_text()
    assert int(log.rpartition("resuming at epoch ")[2].split()[0]) > 0


def test_a_trial_that_kills_its_process_has_failed(ray_cluster, keys, tmp_path, monkeypatch) -> None:
    original = workers._start

    def deadly(plan: Any, asha: Any) -> Any:
        run = original(plan, asha)

        def start(trial: Any) -> Any:
            if trial.number == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return run(trial)

        return start

    monkeypatch.setattr(workers, "_start", deadly)
    outcome = on_ray(keys, tmp_path / "s", {"learning_rate": {"grid_search": [0.01, 0.02]}}, max_concurrent=1)
    assert outcome["trials"] == {"failed": 1, "finished": 1}
    assert pd.read_csv(tmp_path / "s" / "trials.csv").reason[0].startswith("its process died 3 times: ")


def test_ray_ends_for_want_of_memory(ray_cluster, keys, tmp_path, monkeypatch) -> None:
    """An error of Ray in the driver."""
    from ray import exceptions

    def short_of_memory(*arguments: Any) -> None:
        try:
            raise exceptions.OutOfMemoryError("1 worker(s) were killed due to the node running low on memory")
        except exceptions.OutOfMemoryError as error:
            raise RuntimeError(f"Caught unexpected exception: {error}") from error

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_start", short_of_memory)
        with refused(ConnectionError, "--resume=True", "max_concurrent"):
            on_ray(keys, tmp_path / "s", {"learning_rate": {"grid_search": [0.01, 0.02]}})
    outcome = on_ray(keys, tmp_path / "s", {"learning_rate": {"grid_search": [0.01, 0.02]}}, resume=True)
    assert outcome["trials"] == {"finished": 2}


# waits for a trial that has the checkpoint of an epoch and kills the process that holds its lock
KILL_WORKER = """
import os, pathlib, signal, sys, time
import psutil
folder = pathlib.Path(sys.argv[1])
while True:
    for path in folder.glob("*/checkpoint.pt"):
        for process in psutil.process_iter():
            try:
                if any(file.path == str(path.parent / ".lock") for file in process.open_files()):
                    process.send_signal(signal.SIGKILL)
                    print(path.parent.name)
                    sys.exit()
            except (psutil.Error, OSError):
                pass
    time.sleep(0.05)
"""

COMMAND = """
import sys
from recbole_hyper.cli import main
sys.exit(main(sys.argv[1:]))
"""


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}


def started(space: str, keys: dict[str, Any], folder: Path, *words: str, **options: Any) -> subprocess.Popen:
    """Start a sweep in a separate process, over the content of a space."""
    file = folder.with_name("space.yaml")
    file.write_text(space, encoding="utf-8")
    asked = ["sweep", "--model=SASRecCE", "--dataset=tiny", f"--space={file}", *words]
    asked += [f"--{key}={value}" for key, value in keys.items()]
    return subprocess.Popen([sys.executable, "-c", COMMAND, *asked], cwd=folder.parent, env=ENVIRONMENT, **options)


def wait_for(process: subprocess.Popen, folder: Path, pattern: str, count: int) -> None:
    """Return as soon as there are so many files in ``folder``, the process has ended, or four minutes are over."""
    end = time.monotonic() + 240
    while len(list(folder.glob(pattern))) < count and time.monotonic() < end and process.poll() is None:
        time.sleep(0.02)


def test_kill_at_half_and_resume(keys: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = serially(monkeypatch, keys, tmp_path / "whole")
    folder = tmp_path / "cut"
    space = "learning_rate: {grid_search: [0.001, 0.003, 0.01, 0.03]}\nhidden_size: {grid_search: [8, 16]}\n"
    process = started(space, config(keys, folder), folder)
    wait_for(process, folder, "trials/*/result.json", 5)  # two of them may have no record yet
    process.send_signal(signal.SIGKILL)
    process.wait()
    records = [(path, read_record(path.parent)) for path in folder.glob("trials/*/trial.json")]
    before = {path: path.stat().st_mtime_ns for path, record in records if record and record.status == "finished"}
    assert 3 <= len(before) < 8
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "sweep", "--resume=True", f"--output_dir={folder}"],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert scores(folder) == scores(tmp_path / "whole")
    for path, changed in before.items():
        assert path.stat().st_mtime_ns == changed, f"{path.parent.name} was repeated"
    assert whole["best"]["name"] in done.stdout
    assert trial.read_record(folder / "trials" / whole["best"]["name"]).score == whole["best"]["score"]


@pytest.mark.parametrize("scheduler", ["none", "asha"])
def test_ctrl_c_ends_the_search_and_tests_nothing(scheduler: str, keys: dict, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    space = "learning_rate: {grid_search: [0.001, 0.003, 0.01]}\nepochs: {grid_search: [1, 100000]}\n"
    settings = {key: value for key, value in config(keys, folder, stopping_step=100_000).items() if key != "epochs"}
    words = (f"--scheduler={scheduler}", "--max_concurrent=1")
    process = started(space, settings, folder, *words, stdout=subprocess.PIPE, text=True)
    wait_for(process, folder, "trials/*/checkpoint.pt", 1)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert f"continue with --resume=True --output_dir={folder}" in printed
    assert not (folder / "sweep.json").exists()
    assert not (folder / "best").exists()
    records = [read_record(path) for path in (folder / "trials").iterdir()]
    assert {record.status for record in records if record} <= {"finished", "unfinished"}
