"""A run that was trained on other data is not cleared and trained again: its validation does not belong to these."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recbole_hyper.sweep.trial import Plan, read_history, read_record
from recbole_hyper.training.checkpoint import OtherDataError
from tests.conftest import SMALL
from tests.raising import refused


def test_a_trial_on_other_data_is_refused_and_one_that_cannot_be_read_starts_anew(random_data, tmp_path) -> None:
    plan, trial = Plan("SASRecCE", "random", {**SMALL, "data_path": str(random_data)}, tmp_path), tmp_path / "trial"
    trial.mkdir()
    plan.train(trial, {"epochs": 1})
    before, learned = (trial / "model.safetensors").read_bytes(), load_file(trial / "model.safetensors")
    file = random_data / "random" / "random.inter"
    text = file.read_text()
    header, *rows = text.splitlines(keepends=True)
    file.write_text(header + "".join(reversed(rows)))
    with refused(OtherDataError, "trained", "other"):
        plan.train(trial, {"epochs": 2})
    assert (trial / "model.safetensors").read_bytes() == before
    file.write_text(text)
    (trial / "checkpoint.pt").write_bytes(b"half")
    plan.train(trial, {"epochs": 1})
    again = load_file(trial / "model.safetensors")
    assert all(torch.equal(again[name], learned[name]) for name in {*again, *learned})


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"number": "one"}', '{"number": 0, "name": "a", "settings": [], "status": "finished"}',
     '{"number": 0, "name": "a", "settings": {}, "status": "won", "score": 9}',
     '{"number": 0, "name": "a", "settings": {}, "status": "finished", "score": "high"}'],
)  # fmt: skip
def test_a_record_that_no_trial_wrote_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "trial.json").write_text(text)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("text", [b"epoch,train_loss\n0,3.0\n\xff,1\n", b"", b"loss\n1\n", b"epoch,a\n0,x\n"])
def test_history_of_a_damaged_table(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(text)
    assert read_history(tmp_path) == []


def test_a_history_leaves_missing_values_out(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("epoch,train_loss,valid_hit@5\n0,3.0,\n1,2.0,0.5\n")
    assert read_history(tmp_path) == [
        {"epoch": 0.0, "train_loss": 3.0}, {"epoch": 1.0, "train_loss": 2.0, "valid_hit@5": 0.5},
    ]  # fmt: skip
