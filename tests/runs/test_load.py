"""Loading a run: damaged data, and a run that was killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from recbole_hyper import load
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest
from recbole_hyper.training.checkpoint import CheckpointError


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("about.json", b'{"format": 1, "files": 3}'),
        ("about.json", b'{"format": 1}'),
        ("about.json", b'{"format": 1, "files": {}, "lengths": ["../../x"]}'),
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
    with pytest.raises(CheckpointError, match="is damaged"):
        load(tmp_path / "run")


def test_a_run_that_was_killed_is_not_served(folder: Path, tmp_path: Path) -> None:
    """It was loaded without a word, and differences were empty."""
    shutil.copytree(folder, tmp_path / "killed")
    (tmp_path / "killed" / "result.json").unlink()
    with pytest.raises(ConfigError, match=r"has no finished run: result\.json is missing"):
        load(tmp_path / "killed")
    part = load(tmp_path / "killed", unfinished=True)
    assert part.differences[-1].endswith("has no result: these are the best weights so far, of epoch 0")
