"""Runs on a frame instead of files: the same store, split and result, and early errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper import run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.reading import given_store
from recbole_hyper.data.source import Source
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.training.checkpoint import CheckpointError
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.raising import refused

COLUMNS = ["user_id", "item_id", "timestamp"]
NO_TIME = ("seconds", "peak_memory_bytes", "peak_memory_bytes_per_phase", "config", "dataset", "seconds")


def rows(count: int = 400) -> list[tuple]:
    """Return rows with ties in time, repeated pairs and ids that look like numbers or missing values."""
    generator = np.random.default_rng(7)
    users = generator.choice(["a", "b", "NA", "null", "1", "01", "1.0", " x", "é"], count)
    items = generator.choice([f"i{n}" for n in range(12)] + ["nan", "#", '"'], count)
    return list(zip(users.tolist(), items.tolist(), generator.integers(0, 60, count).tolist(), strict=True))


def configured(path: Path, **keys: Any) -> Config:
    return Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(path), **keys})


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"user_inter_num_interval": "[40,inf)", "item_inter_num_interval": "[16,inf)"},
        {"rm_dup_inter": "first", "item_inter_num_interval": "[5,inf)"},
        {"rm_dup_inter": "last"},
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "chunks"])
def test_a_frame_gives_the_store_of_a_file_with_its_rows(keys: dict[str, Any], kind: str, tmp_path: Path) -> None:
    write_inter(tmp_path, "d", rows())
    frame: Any = pd.DataFrame(rows(), columns=COLUMNS)
    if kind == "chunks":
        frame = pa.concat_tables([pa.Table.from_pandas(frame[n : n + 150]) for n in range(0, 400, 150)])
    config = configured(tmp_path, **keys)
    read, given = SequenceDataset(config).store, given_store(Source.of(config), frame)
    for name in ("offsets", "items", "times", "users", "user_tokens", "item_tokens"):
        assert getattr(read, name).tolist() == getattr(given, name).tolist(), name
    assert read.fingerprint() == given.fingerprint()


def test_the_keys_name_the_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame(rows(), columns=["who", "what", "when"]).assign(user_id="other")
    fields = {"USER_ID_FIELD": "who", "ITEM_ID_FIELD": "what", "TIME_FIELD": "when"}
    config = Config("SASRecCE", config_dict={**SMALL, **fields, "interactions": "given"})
    write_inter(tmp_path, "d", rows())
    assert (
        given_store(Source.of(config), frame).fingerprint() == SequenceDataset(configured(tmp_path)).store.fingerprint()
    )
    with refused(DataError, "user_id", "item_id"):
        given_store(
            Source.of(Config("SASRecCE", config_dict={**SMALL, "interactions": "given"})), frame[["who", "when"]]
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.iloc[:0], "the frame has no rows"),
        (lambda frame: frame.assign(item_id=[None, *frame.item_id[1:]]), "row 0"),
        (lambda frame: frame.assign(timestamp=[*frame.timestamp[:-1], np.nan]), "not a finite time"),
        (lambda frame: frame.assign(item_id=["i1", "[PAD]", *frame.item_id[2:]]), "padding"),
        (lambda frame: frame.assign(item_id="one"), "the frame: filtering leaves 1 item"),
    ],
)
def test_an_unusable_frame_is_refused_early(change: Any, message: str, tmp_path: Path) -> None:
    frame = change(pd.DataFrame(cycle_rows(), columns=COLUMNS))
    with refused(DataError, message):
        run("SASRecCE", interactions=frame, config_dict={**SMALL, "output_dir": str(tmp_path / "run")})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"val_interval": {"timestamp": "[3,inf)"}}, "val_interval: of a frame"),
        ({"load_col": {"inter": [*COLUMNS, "rating"]}, "alias_of_item_id": ["rating"]}, "load_col, alias"),
        ({"load_col": {"inter": COLUMNS, "item": "*"}}, "load_col: of a frame"),
        ({"item_inter_num_interval": "(3,inf)"}, "[n,inf)"),
        ({"item_inter_num_interval": "[900,inf)"}, "the frame: filtering removes all interactions"),
    ],
)
def test_keys_for_more_than_a_frame_has_are_refused(keys: dict[str, Any], message: str) -> None:
    frame = pd.DataFrame(cycle_rows(), columns=COLUMNS).assign(rating=5)
    with refused(ValueError, message):
        run("SASRecCE", interactions=frame, config_dict={**SMALL, **keys})


def test_a_run_on_a_frame_is_the_run_on_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {**SMALL, "item_inter_num_interval": "[2,inf)"}
    path = write_inter(tmp_path / "data", "d", cycle_rows())
    on_file = run("SASRecCE", "d", config_dict={**keys, "data_path": str(path), "output_dir": str(tmp_path / "file")})
    frame = pd.DataFrame(cycle_rows(), columns=COLUMNS)
    # a folder of that name is not looked at
    on_frame = run("SASRecCE", interactions=frame, config_dict={**keys, "output_dir": str(tmp_path / "frame")})
    assert on_frame["dataset"] == "interactions"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file", "frame"]
    for key in set(on_file) - {*NO_TIME, "trial_step_bytes", "files"}:
        assert on_frame[key] == on_file[key], key
    curves = [pd.read_csv(tmp_path / name / "train.csv") for name in ("file", "frame")]
    assert curves[0].train_loss.tolist() == curves[1].train_loss.tolist()


def test_a_run_on_a_frame_resumes_with_the_same_frame_only(tmp_path: Path) -> None:
    frame = pd.DataFrame(cycle_rows(), columns=COLUMNS)
    out = str(tmp_path / "run")
    run("SASRecCE", "shop", interactions=frame, config_dict={**SMALL, "epochs": 1, "output_dir": out})
    more = {"resume": True, "output_dir": out, "epochs": 2}
    kept = sorted((path, path.read_bytes()) for path in (tmp_path / "run" / "data").rglob("*.*"))
    with refused(CheckpointError, "other interactions"):
        run(interactions=frame.assign(item_id="i1" + frame.item_id), config_dict=more)
    assert sorted((path, path.read_bytes()) for path in (tmp_path / "run" / "data").rglob("*.*")) == kept
    resumed = run(interactions=frame, config_dict=more)
    assert (resumed["dataset"], resumed["epochs"]) == ("shop", 2)
    # what the run kept of the frame does as well, and a file with these rows
    assert run(config_dict={**more, "epochs": 3})["data_fingerprint"] == resumed["data_fingerprint"]
    path = write_inter(tmp_path, "shop", cycle_rows())
    on_file = run(config_dict={**more, "epochs": 4, "interactions": "files", "data_path": str(path)})
    assert (on_file["epochs"], on_file["data_fingerprint"]) == (4, resumed["data_fingerprint"])


def test_a_run_on_a_frame_is_evaluated_again_without_it(tmp_path: Path) -> None:
    frame = pd.DataFrame(cycle_rows(), columns=COLUMNS)
    out = str(tmp_path / "run")
    result = run("SASRecCE", interactions=frame, config_dict={**SMALL, "output_dir": out})
    again = evaluate(out, {"eval_args": {"mode": "full"}})
    assert (again["valid"], again["test"]) == (result["valid"], result["test"])
    with refused(ConfigError, "Python", "files"):
        evaluate(out, {"data_path": str(tmp_path)})


def test_no_command_trains_on_a_frame(tmp_path: Path) -> None:
    with refused(ConfigError, "Python", "files"):
        run("SASRecCE", config_dict={**SMALL, "interactions": "given", "output_dir": str(tmp_path / "run")})
