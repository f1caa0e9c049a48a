"""The cache folder of kernels, and the clock of their compilation."""

from pathlib import Path
from time import sleep
from typing import Any

import pytest

from recbole_hyper import run
from recbole_hyper.kernels import clock
from recbole_hyper.kernels.clock import COMPILING, CompileClock
from recbole_hyper.training.loop import Loop
from tests.conftest import SMALL


def test_other_sources_have_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(clock, "__file__", str(tmp_path / "clock.py"))
    before = clock.default_folder()
    (tmp_path / "b.py").write_text("x = 2\n")
    assert clock.default_folder() != before
    monkeypatch.setattr(clock, "cache_folder", lambda: Path("~nobody-of-this-name").expanduser())
    assert clock.default_folder() == ""


def test_one_kernel_inside_another_counts_once() -> None:
    clock = CompileClock()
    clock.start()
    clock.start()
    sleep(0.05)
    clock.stop()
    assert clock.seconds == 0
    clock.stop()
    assert 0.05 <= clock.seconds < 0.5


def test_compiling_is_not_billed_as_training(random_data, tmp_path, monkeypatch) -> None:
    """Two steps of the first epoch compile for a thousand seconds each, by the clock of compilation alone."""
    keys = {**SMALL, "data_path": str(random_data)}
    before = COMPILING.seconds
    warm = run("SASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "warm")})
    assert ("compile" in warm["seconds"]) == (COMPILING.seconds > before)
    step, left = Loop.train_step, [2]

    def slow(self: Loop, *arguments: Any) -> None:
        if left[0]:
            left[0] -= 1
            COMPILING.seconds += 1000.0
        step(self, *arguments)

    monkeypatch.setattr(COMPILING, "seconds", COMPILING.seconds)
    monkeypatch.setattr(Loop, "train_step", slow)
    result = run("SASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "cold")})
    seconds = result["seconds"]
    assert 2000 <= seconds["compile"] < 2500
    # no second of those passed, so that a phase which leaves them out has less than none
    assert -2000 <= seconds["train"] < -1000
    assert min(seconds[phase] for phase in ("load", "valid", "test")) >= 0
