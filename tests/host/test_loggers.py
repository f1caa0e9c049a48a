"""TensorBoard, Weights and Biases and the log tell the numbers of train.csv, by epoch."""

import json
import math
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recbole_hyper import run
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.training.loop import Loop
from tests.conftest import small

# a double of the package wandb: every call is kept as a line of JSON
WANDB = """
import json, os, types
run = None

def keep(*call):
    with open(os.environ["WANDB_CALLS"], "a") as file:
        file.write(json.dumps(call, default=str) + "\\n")

class Summary(dict):
    def __setitem__(self, name, value):
        keep("summary", name, value)

def init(project, config, dir):
    global run
    keep("init", project, config, dir)
    run = types.SimpleNamespace(summary=Summary())

def define_metric(name, step_metric):
    keep("define", name, step_metric)

def log(metrics, commit):
    keep("log", metrics)

def finish():
    global run
    keep("finish")
    run = None
"""


settings = partial(small, epochs=5, eval_step=2)


def events(folder: Path) -> dict[str, dict[int, float]]:
    """Return {tag: {epoch: value}} of an event file; no epoch may be there twice."""
    found = EventAccumulator(str(folder)).Reload()
    scalars = {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}
    for tag, values in scalars.items():
        assert len({event.step for event in values}) == len(values), tag
    return {tag: {event.step: event.value for event in values} for tag, values in scalars.items()}


def curves(file: Path) -> dict[str, dict[int, float]]:
    """Return {column: {epoch: value}} of a train.csv, epochs without a value left out."""
    frame = pd.read_csv(file, index_col="epoch")
    return {str(name): frame[name].dropna().to_dict() for name in frame}


def require_equal(found: dict[str, dict[int, float]], file: Path) -> None:
    wanted = curves(file)
    assert len(wanted["valid_ndcg@10"]) == 3  # of five epochs: the second, the fourth and the last
    assert len(wanted["train_loss"]) == 5
    for name, values in wanted.items():
        head, rest = ("valid", name.removeprefix("valid_")) if name.startswith("valid_") else ("train", name)
        logged = found[f"{head}/{rest}"]
        assert list(logged) == list(values)
        np.testing.assert_allclose(list(logged.values()), list(values.values()), rtol=1e-6)


@pytest.mark.parametrize("model", ["HSASRecCE", "BPR"])
def test_tensorboard_has_the_numbers_of_train_csv(model: str, random_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    keys = {"curvature": "learn"} if model == "HSASRecCE" else {}
    run(model, "random", config_dict=settings(random_data, out, log_tensorboard=True, **keys))
    found = events(out / "tensorboard")
    require_equal(found, out / "train.csv")
    assert ("train/curvature" in found) == (model == "HSASRecCE")
    assert found["Loss/Train"] == found["train/train_loss"]
    assert found["Vaild_score"] == found["valid/ndcg@10"]
    run(model, "random", config_dict=settings(random_data, tmp_path / "silent"))
    assert not (tmp_path / "silent" / "tensorboard").exists()


def test_tensorboard_of_a_resumed_run_has_every_epoch_once(random_data, tmp_path, monkeypatch) -> None:
    keys = settings(random_data, tmp_path / "out", log_tensorboard=True, checkpoint_step=2)
    save = Loop._save_state

    def stopped(self: Loop) -> None:
        if len(self.history) == 4:
            raise KeyboardInterrupt  # the epochs 2 and 3 are logged, and trained again
        save(self)

    monkeypatch.setattr(Loop, "_save_state", stopped)
    with pytest.raises(KeyboardInterrupt):
        run("SASRecCE", "random", config_dict=keys)
    monkeypatch.undo()
    assert run("SASRecCE", "random", config_dict={**keys, "resume": True})["epochs"] == 5
    require_equal(events(tmp_path / "out" / "tensorboard"), tmp_path / "out" / "train.csv")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Replace the package wandb by its double and return the file of its calls."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.setenv("WANDB_CALLS", str(tmp_path / "calls"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    yield tmp_path / "calls"
    sys.modules.pop("wandb", None)


def test_wandb_has_the_numbers_of_train_csv(random_data: Path, tmp_path: Path, calls: Path) -> None:
    keys = settings(random_data, tmp_path / "out", log_wandb=True, wandb_project="mine", learning_rate=0.01)
    result = run("SASRecCE", "random", config_dict=keys)
    evaluate(tmp_path / "out", {"topk": [3]})  # is no run to report
    calls_made = [json.loads(line) for line in calls.read_text().splitlines()]
    (_, project, config, folder), *rest = calls_made
    assert (calls_made[0][0], project, folder, config["learning_rate"]) == ("init", "mine", str(tmp_path / "out"), 0.01)
    assert [call[0] for call in rest if call[0] in ("init", "finish")] == ["finish"]
    assert rest[-1] == ["finish"]
    assert ["define", "train/*", "train_step"] in rest
    assert ["define", "valid/*", "valid_step"] in rest
    found: dict[str, dict[int, float]] = {}
    for call in rest:
        for name, value in call[1].items() if call[0] == "log" else ():
            step = call[1].get("train_step", call[1].get("valid_step"))
            found.setdefault(name, {})[step] = value
    require_equal(found, tmp_path / "out" / "train.csv")
    summary = {call[1]: call[2] for call in rest if call[0] == "summary"}
    assert summary == {f"eval/{name}": value for name, value in result["test"].items()}


@pytest.mark.parametrize("model", ["SASRecCE", "BPR"])
def test_the_log_has_the_loss_of_train_csv(model: str, random_data: Path, tmp_path: Path) -> None:
    run(model, "random", config_dict=settings(random_data, tmp_path / "out"))
    line = r"epoch \d+ of \d+ to \d+: loss ([0-9.]+)" if model == "SASRecCE" else r"train loss: ([0-9.]+)\]"
    logged = re.findall(line, (tmp_path / "out" / "run.log").read_text())
    losses = curves(tmp_path / "out" / "train.csv")["train_loss"].values()
    assert [float(text) for text in logged] == [pytest.approx(loss, abs=5.1e-5) for loss in losses]
    # the mean over steps: that of a first epoch is near that of guessing
    chance = math.log(50) if model == "SASRecCE" else math.log(2)
    assert next(iter(losses)) == pytest.approx(chance, rel=0.25)
