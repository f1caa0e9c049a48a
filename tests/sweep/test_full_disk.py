"""A full disk ends a sweep with one error, whoever wrote; its trials stay unfinished, and a resume runs them."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from recbole_hyper.errors import NoSpaceError
from recbole_hyper.sweep import trial
from recbole_hyper.sweep.trial import Plan, Trial, read_record, run_trial
from recbole_hyper.training import checkpoint
from tests.raising import refused
from tests.sweep.conftest import local

pytestmark = pytest.mark.usefixtures("serial_sweeps")

# as the libraries say it: the system, a quota, torch (two ways), safetensors, pyarrow, numpy
FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    RuntimeError("[enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
    OSError("1000000 requested and 262128 written"),
    RuntimeError("basic_ios::clear: iostream error"),
]


def failing(error: Exception) -> Any:
    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise error

    return fail


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan whose trials are never trained here."""
    return Plan("SASRecCE", "tiny", {}, tmp_path / "sweep", metric="ndcg@5")


@pytest.mark.parametrize("error", FULL, ids=str)
def test_however_a_full_disk_shows_itself_the_trial_is_not_failed(error, plan, monkeypatch) -> None:
    entry = Trial(0, {"n_layers": 1})
    monkeypatch.setattr(Plan, "train", failing(error))
    with refused(NoSpaceError, "0000"):
        run_trial(plan, entry)
    record = read_record(plan.trials / entry.name)
    assert record is not None
    assert record.status == "unfinished"
    monkeypatch.setattr(Plan, "train", failing(RuntimeError("the loss is odd")))
    assert run_trial(plan, entry).status == "failed"


@pytest.mark.parametrize("place", ["weights", "state", "record", "history", "table"])
def test_wherever_the_disk_is_full_a_resume_goes_on(place, keys, tmp_path, monkeypatch) -> None:
    target, name, error = {
        "weights": (checkpoint, "save_file", FULL[4]),
        "state": (torch, "save", FULL[3]),
        "record": (trial, "write_json", FULL[1]),
        "history": ("recbole_hyper.training.progress.write_csv", None, FULL[0]),
        "table": ("recbole_hyper.sweep.driver.pd.DataFrame.to_csv", None, FULL[0]),
    }[place]
    space = {"learning_rate": {"grid_search": [0.01]}}
    with monkeypatch.context() as patch:
        patch.setattr(target, *([name] if name else []), failing(error))
        with refused(NoSpaceError, "--resume=True", "--output_dir="):
            local({**keys, "epochs": 1}, tmp_path / "s", space)
    assert not list((tmp_path / "s").rglob("*.part"))
    outcome = local({**keys, "epochs": 1}, tmp_path / "s", space, resume=True)
    assert outcome["trials"] == {"finished": 1}
    assert outcome["best"]["epochs"] == 1
