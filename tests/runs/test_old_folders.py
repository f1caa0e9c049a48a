"""A folder has a format: one without is of version 0.1.0, and a newer one is of a later version."""

import json
from pathlib import Path

import pytest

from recbole_hyper import load, run
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.runs.folder import FORMAT
from tests.raising import refused


def resume(folder: Path) -> None:
    run(config_dict={"output_dir": str(folder), "resume": True})


@pytest.mark.parametrize(
    ("content", "named"), [(None, "0.1.0"), ({"format": FORMAT + 1, "version": "9.9"}, "9.9"), ({}, "format.json")]
)
def test_a_folder_of_another_format_is_refused(content, named, random_data, tmp_path) -> None:
    folder = tmp_path / "run"
    run("Pop", "random", config_dict={"data_path": str(random_data), "output_dir": str(folder)})
    assert json.loads((folder / "format.json").read_text())["format"] == FORMAT
    (folder / "format.json").unlink() if content is None else (folder / "format.json").write_text(json.dumps(content))
    for use in (load, evaluate, resume):
        with refused(ValueError, named):
            use(folder)
