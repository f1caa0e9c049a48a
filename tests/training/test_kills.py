"""Runs that are killed with SIGKILL go on to the bit: anywhere in training, and inside the write of a file."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SMALL

ROOT = Path(__file__).parents[2]
WANTED = {"killed": -signal.SIGKILL, "resumed": 0, "equal": True, "left": []}
POINTS = ("before", "half", "written", "renamed")
# 5 epochs of 2 steps; validated are the second epoch, the fourth and, as it is the last, the fifth, each of which is
# better than the one before
KEYS = {**SMALL, "epochs": 5, "eval_step": 2, "learning_rate": 0.01, "exclude_seen": False}
KEYS |= {"n_threads": 1, "use_gpu": False, "show_progress": False}

FEW = [["step", 8], ["validation", 3]]
FEW += [["write", "checkpoint.pt", 2, "half"], ["write", "model.safetensors", 2, "renamed"]]
IN_CHECKPOINTS = [
    ["write", name, number, point]
    for name, numbers in (("checkpoint.pt", (1, 3, 4)), ("model.safetensors", (1, 3)))
    for number in numbers
    for point in POINTS
]
IN_OTHER_FILES = [["write", name, 1, point] for name in ("config.yaml", "train.csv", "result.json") for point in POINTS]
MANY = [
    *(["step", number] for number in range(1, 11)),
    *(["validation", number] for number in (1, 2, 3)),
    *IN_CHECKPOINTS,
    *IN_OTHER_FILES,
    *(["write", "train.csv", number, point] for number in (2, 3, 5, 8) for point in POINTS),
]


# a checkpoint behind every step; dropout, negatives, an average and a rate that validation lowers go on inside epochs
INSIDE = {
    "checkpoint_minutes": 1e-9,
    "ema_decay": 0.9,
    "lr_plateau": {"factor": 0.5, "patience": 0},
    "loss_type": "bce",
}
INSIDE |= {"train_windows": "random", "refit": True, "eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}}


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen]:
    """The process whose forks are killed: it imports torch once for all tests."""
    command = [sys.executable, "-m", "tests.training.killed_runs"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def kill_and_resume(killer: subprocess.Popen, cycle: Path, tmp_path: Path) -> Callable[..., None]:
    """Return what kills runs on "cycle" and resumes them; ``about`` is what is asked of killed_runs.py besides."""

    def check(kills: list[list], *, about: Any = None, **more: Any) -> None:
        keys = {**KEYS, "data_path": str(cycle), **more}
        asked = {"folder": str(tmp_path), "keys": keys, "kills": kills, **(about or {})}
        print(json.dumps(asked), file=killer.stdin, flush=True)
        answers = json.loads(killer.stdout.readline())
        wrong = [(kill, answer) for kill, answer in zip(kills, answers, strict=True) if answer != WANTED]
        assert not wrong

    return check


IN_EPOCHS = [
    *(["step", number] for number in range(1, 15)),
    *(["write", "checkpoint.pt", number, point] for number in range(1, 12) for point in POINTS),
]
# the steps of two trials, a checkpoint behind each, and the files of a sweep
SPACE = {"weight_decay": {"grid_search": [0.0, 0.01]}}
OF_SWEEPS = {"epochs": 3, "checkpoint_minutes": 1e-9}
IN_SWEEPS = [
    *(["step", number] for number in range(1, 13)),
    *(["write", "checkpoint.pt", number, point] for number in (2, 7) for point in POINTS),
    *(["write", "result.json", 1, point] for point in POINTS),
]
IN_WARM_STARTS = [
    *(["step", number] for number in range(1, 11)),
    *(["write", "model.safetensors", 1, point] for point in POINTS),
    *(["write", "checkpoint.pt", number, point] for number in (1, 3) for point in POINTS),
]
# dropout and negatives of both workers; a step of the first or the second, a file, and, at the 14th step, in the refit
OF_WORKERS = {"about": {"workers": 2}, **INSIDE, "hidden_dropout_prob": 0.2}
IN_WORKERS = [
    *(["step", number, rank] for number in (1, 2, 5, 8, 10, 14) for rank in (0, 1)),
    ["validation", 1],
    *(["write", "checkpoint.pt", number, point] for number in (2, 5, 9) for point in ("half", "renamed")),
    *(["write", "model.safetensors", 1, point] for point in ("written", "renamed")),
]


def test_a_killed_run_resumes_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    kill_and_resume(FEW)


@pytest.mark.parametrize("keys", [{}, {"encoder": "fmlp", "loss_type": "ce", "n_threads": 2}], ids=str)
def test_a_run_killed_inside_an_epoch_resumes_to_the_bit(keys, kill_and_resume) -> None:
    of_fmlp = {"label_smoothing": 0.1, "attn_dropout_prob": None} if keys else {}
    kill = ["step", 4] if keys else ["write", "checkpoint.pt", 3, "renamed"]
    kill_and_resume([kill], **INSIDE | keys | of_fmlp)


@pytest.mark.slow
def test_runs_killed_anywhere_inside_epochs_resume_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    assert len(IN_EPOCHS) >= 58
    kill_and_resume(IN_EPOCHS, **INSIDE)


@pytest.mark.slow
def test_runs_killed_anywhere_resume_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    assert len(MANY) >= 60
    kill_and_resume(MANY)


@pytest.mark.slow
def test_sweeps_killed_anywhere_resume_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    kill_and_resume(IN_SWEEPS, about={"space": SPACE}, **OF_SWEEPS)


@pytest.mark.slow
def test_warm_starts_killed_anywhere_resume_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    kill_and_resume(IN_WARM_STARTS, about={"warm": True}, **INSIDE)


def test_a_killed_run_of_two_workers_resumes_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    kill_and_resume([["step", 4, 1]], **OF_WORKERS)


@pytest.mark.slow
def test_runs_of_two_workers_killed_anywhere_resume_to_the_bit(kill_and_resume: Callable[..., None]) -> None:
    kill_and_resume(IN_WORKERS, **OF_WORKERS)
