"""A run of version 0.1.0, whose folder has no format, no data, and a key that contradicts another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from recbole_hyper import load, run
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.runs.folder import FORMAT
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.raising import refused

OLD = Path(__file__).parent / "run_of_0.1.0"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    data, folder = write_inter(tmp_path / "data", "g", cycle_rows()), tmp_path / "run"
    shutil.copytree(OLD, folder)
    config = (folder / "config.yaml").read_text()
    assert "repeatable: true" in config
    assert "exclude_seen: true" in config
    (folder / "config.yaml").write_text(config.replace("DATA", str(data)))
    return folder


def test_it_loads_and_gives_the_same_figures(old: Path) -> None:
    before = json.loads((old / "result.json").read_text())
    assert len(load(old).recommend(users=["u1"], k=2)) == 2
    found = evaluate(old)
    for part in ("valid", "test"):
        # what itemcoverage counts has changed since
        same = {name: value for name, value in before[part].items() if not name.startswith("itemcoverage")}
        assert {name: found[part][name] for name in same} == same


def test_it_is_not_resumed(old: Path) -> None:
    with refused(ConfigError, "version", "evaluated"):
        run(config_dict={"output_dir": str(old), "resume": True})


def test_a_folder_has_a_format_and_a_newer_one_is_refused(cycle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run("SASRecCE", "cycle", config_dict={**SMALL, "data_path": str(cycle), "epochs": 1, "output_dir": str(folder)})
    about = json.loads((folder / "format.json").read_text())
    assert about["format"] == FORMAT
    newer = json.dumps({"format": FORMAT + 1, "version": "9.9"})
    for call in (load, evaluate, lambda place: run(config_dict={"output_dir": str(place), "resume": True})):
        (folder / "format.json").write_text(newer)
        with refused(ConfigError, "recbole_hyper", "9.9"):
            call(folder)
    (folder / "format.json").write_text("{}")
    with refused(ValueError, "format.json"):
        load(folder)
