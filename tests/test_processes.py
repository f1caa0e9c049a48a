"""Other processes of the package: files of the current folder hide no module of Python."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recbole_hyper
from recbole_hyper.experiment.experiment import run_alone
from recbole_hyper.files import read_json, write_yaml
from recbole_hyper.processes import python_command

# Python's modules that RecBole, torch and the start of a process import
HIDING = ("queue", "types", "runpy", "pickle", "random")


@pytest.fixture
def odd_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose files have names of Python's modules."""
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_runs_of_compare_import_pythons_modules(odd_folder: Path, random_data: Path) -> None:
    (odd_folder / "my results").mkdir()
    (odd_folder / "parts.py").write_text("import queue\nassert queue.Queue\n")
    keys = {"data_path": str(random_data), "plugins": "parts.py", "show_progress": False, "state": "ERROR"}
    keys |= {"epochs": 0, "topk": [5], "valid_metric": "NDCG@5", "output_dir": str(odd_folder / "my results" / "run")}
    # its keys are those of the file, whatever else the file names
    keys |= {"eval_args": {"mode": "uni9"}, "seed": 3, "model": "Other", "checkpoint_dir": "12", "n_threads": None}
    write_yaml(odd_folder / "my results" / "keys.yaml", keys)
    assert run_alone("Pop", "random", odd_folder / "my results" / "keys.yaml") is None
    config = read_json(odd_folder / "my results" / "run" / "result.json")["config"]
    assert config["eval_args"]["mode"] == {"valid": "uni9", "test": "uni9"}
    assert (config["model"], config["seed"], config["n_threads"]) == ("Pop", 3, None)


def test_a_process_imports_from_the_folders_of_its_parent(odd_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (odd_folder / "mine.py").write_text("import json, queue, sys\nprint(json.dumps([queue.__file__, *sys.argv[1:]]))\n")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    done = subprocess.run([*python_command("mine"), "a", "--b=c"], capture_output=True, text=True, check=True)
    file, *words = json.loads(done.stdout)
    assert Path(file).parent != odd_folder
    assert words == ["a", "--b=c"]


def test_no_process_of_the_package_looks_in_the_current_folder_first() -> None:
    root = Path(recbole_hyper.__file__).parent
    sources = {file.relative_to(root).as_posix(): file.read_text() for file in root.rglob("*.py")}
    started = {name: re.findall(r'sys\.executable, *"(-\w)"', text) for name, text in sources.items()}
    started = {name: options for name, options in started.items() if options}
    assert started == {"processes.py": ["-P"], "data/tables/prepare/public.py": ["-P"]}
