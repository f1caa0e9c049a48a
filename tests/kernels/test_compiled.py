"""Kernels are compiled once for a user, wherever the package lies, and that time is nobody's training."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_hyper.kernels import clock, compiled
from recbole_hyper.kernels.clock import COMPILING
from recbole_hyper.kernels.ranks import rank_rows

COMPILES = """
import json
import numpy as np
from recbole_hyper.kernels import compiled
from recbole_hyper.kernels.clock import COMPILING, Stopwatch
from recbole_hyper.kernels.tables import core

assert compiled.folder() == COMPILING.place
watch = Stopwatch()
found = core(np.zeros(3, np.int32), np.array([0, 2, 2], np.int32), 1, 3, 0, 2)
print(json.dumps([found.tolist(), COMPILING.seconds, watch.seconds(), COMPILING.place]))
"""


def python(code: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled_by(**environment: str) -> tuple[float, float, str]:
    """Return the seconds of compiling and of the rest when a kernel is called in a process, and where it is kept."""
    found, seconds, rest, folder = json.loads(python(COMPILES, **environment))
    assert found == [False, True, True]
    return seconds, rest, folder


def test_kernels_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, rest, folder = compiled_by(XDG_CACHE_HOME=str(tmp_path))
    assert seconds > 0.1
    assert rest > 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder == clock.default_folder()
    assert list((tmp_path / "recbole_hyper" / "kernels").rglob("tables.core*.nbc"))
    assert compiled_by(XDG_CACHE_HOME=str(tmp_path))[0] == 0


def test_the_place_that_the_user_chose_is_taken(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    assert compiled_by(NUMBA_CACHE_DIR=str(chosen), XDG_CACHE_HOME=str(tmp_path / "cache"))[2] == str(chosen)
    assert list(chosen.rglob("tables.core*.nbc"))
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_by(XDG_CACHE_HOME="/proc/none")
    made: list[dict[str, Any]] = []

    def njit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        made.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(compiled, "njit", njit)
    monkeypatch.setattr(COMPILING, "place", "somewhere")
    assert compiled.compiled(nogil=True)(len)([1, 2]) == 2
    assert made == [{"cache": True, "nogil": True}, {"nogil": True}]
    assert COMPILING.place == ""


def test_other_packages_keep_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    before, seen = numba.config.CACHE_DIR, []
    monkeypatch.setattr(compiled, "folder", lambda: str(tmp_path))
    monkeypatch.setattr(compiled, "njit", lambda *_, **__: seen.append(numba.config.CACHE_DIR))
    compiled.compiled()(len)
    assert seen == [str(tmp_path)]
    assert before == numba.config.CACHE_DIR


def test_torch_keeps_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    seen = []
    targets, offsets, hidden = np.ones(2, np.int64), np.zeros(3, np.int64), np.zeros(0, np.int64)
    try:
        torch.set_num_threads(1)
        rank_rows(np.zeros((2, 4), np.float32), targets, offsets, hidden.astype(np.int32), hidden, 1)
        monkeypatch.setattr(compiled, "compiled", lambda **_: lambda function: function)
        compiled.threaded()(lambda: seen.append(torch.get_num_threads()))()
        assert seen == [1]
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


SMALL = """
import sys
from pathlib import Path
from recbole_hyper import load, run
from recbole_hyper.config import Config
from recbole_hyper.runs.dataset import stored
from recbole_hyper.data.tables.prepare.pipeline import prepare

folder = Path(sys.argv[1])
lines = [f"u{n % 9},i{n % 23},{n}" for n in range(99)]
(folder / "x.csv").write_text('user,item,"time"\\n' + "\\n".join(lines))
changes = {"filter": "k_core", "min_user": 2, "min_item": 2, "duplicates": "last"}
prepare("x", source=folder / "x.csv", output=folder, changes=changes)
store = stored(Config("Pop", "x", config_dict={"data_path": str(folder)}))
assert len(store.items) > 50
small = {"epochs": 1, "hidden_size": 16, "n_layers": 1, "MAX_ITEM_LIST_LENGTH": 8}
for model, keys in {"FMLPRecMemory": small, "HSASRecCE": small, "EASER": {}}.items():
    keys = {**keys, "data_path": str(folder), "use_gpu": False, "show_progress": False}
    run(model, "x", config_dict={**keys, "output_dir": str(folder / model)})
    assert len(load(folder / model).recommend(users=["u1"], k=1)) == 1
assert "numba" not in sys.modules
"""


def test_a_first_small_run_compiles_nothing(tmp_path: Path) -> None:
    """From a raw file to recommendations."""
    python(SMALL.replace("sys.argv[1]", repr(str(tmp_path))), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert not (tmp_path / "cache" / "recbole_hyper" / "kernels").exists()
