"""Loading a run: damaged data, and a run that was killed."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from recbole_hyper import load, run
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest
from recbole_hyper.training.checkpoint import CheckpointError
from tests.raising import refused


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("about.json", b'{"format": 1, "files": 3}'),
        ("about.json", b'{"format": 1}'),
        ("about.json", b'{"format": 1, "files": {}, "version": "0.2.0"}'),
        ("sequences/meta.json", b"[]"),
        ("sequences/items.npy", b"\x93NUMPY\x01\x00\x08\x00{'descr'"),
    ],
)
def test_odd_content_of_a_runs_data_is_one_error(name: str, content: bytes, folder: Path, tmp_path: Path) -> None:
    """A changed digest, or about.json with other kinds of values, ended in a traceback."""
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "data" / name).write_bytes(content)
    about = tmp_path / "run" / "data" / "about.json"
    if name != "about.json" and (written := json.loads(about.read_text())):
        written["files"][name] = file_digest(tmp_path / "run" / "data" / name)
        about.write_text(json.dumps(written))
    with refused(CheckpointError, "is damaged"):
        load(tmp_path / "run")


def test_a_run_that_was_killed_is_not_served(folder: Path, tmp_path: Path) -> None:
    """It was loaded without a word, and differences were empty."""
    shutil.copytree(folder, tmp_path / "killed")
    (tmp_path / "killed" / "result.json").unlink()
    with refused(ConfigError, "result.json"):
        load(tmp_path / "killed")
    part = load(tmp_path / "killed", unfinished=True)
    assert part.differences[-1].endswith("has no result: these are the best weights so far")


def test_edited_settings_of_a_run_are_named(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The lists were others, and the figures of result.json the old ones, without a word."""
    shutil.copytree(folder, tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    assert not load(tmp_path / "run").differences
    config.write_text(config.read_text().replace("exclude_seen: true", "exclude_seen: false"))
    (text,) = load(tmp_path / "run").differences
    assert str(config) in text
    assert text in caplog.text


def test_weights_of_another_run_are_refused(folder: Path, random_data: Path, tmp_path: Path) -> None:
    """Weights of another seed fit the model and the data."""
    shutil.copytree(folder, tmp_path / "run")
    keys = {**yaml.safe_load((folder / "config.yaml").read_text()), "seed": 7, "output_dir": str(tmp_path / "other")}
    run(config_dict=keys)
    for name in ("model.safetensors", "refit/model.safetensors"):
        if (tmp_path / "run" / name).is_file():
            shutil.copy(tmp_path / "other" / name, tmp_path / "run" / name)
    with pytest.raises(CheckpointError) as error:
        load(tmp_path / "run")
    assert "model.safetensors has other weights" in str(error.value)
