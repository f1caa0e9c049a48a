"""A package says what a reviewer asks, repeats its figures, and notices a changed byte."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.experiment import experiment
from recbole_hyper.experiment.package import verify
from tests.commands.test_compare import run_here
from tests.conftest import SMALL


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, random_data_once: Path) -> Path:
    """A package of Pop and SASRecCE with two seeds, and lists of another library."""
    folder = tmp_path_factory.mktemp("package")
    keys: dict[str, Any] = {**SMALL, "data_path": str(random_data_once), "use_gpu": False, "topk": [5], "epochs": 1}
    keys |= {"valid_metric": "NDCG@5"}
    lists = pd.DataFrame({"user_id": ["u1", "u2"], "item_id": ["i1", "i2"], "score": [1.0, 2.0]})
    lists.to_csv(folder / "lists.csv", index=False)
    asked = ["compare", "--models=Pop,SASRecCE", "--dataset=random", f"--output_dir={folder / 'table'}", "--seeds=1,2"]
    asked += [f"--{key}={value}" for key, value in keys.items()]
    asked += [f"--scores=Theirs={folder / 'lists.csv'}", f"--package={folder / 'package'}", "--max_concurrent=1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "run_alone", run_here([]))
        assert main(asked) == 0
    return folder / "package"


@pytest.fixture
def package(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "package"))


def test_what_a_reviewer_finds(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    assert about["models"]["SASRecCE"]["seeds"] == [1, 2]
    assert about["models"]["SASRecCE"]["tuning"].startswith("none: defaults")
    assert about["models"]["Theirs"]["missing"]["test targets that are not in the list"] > 0
    assert set(about["protocol"]) == {"split", "selection", "candidates", "seen items", "ties"}
    assert about["protocol"]["candidates"] == "full ranking"
    assert about["models"]["SASRecCE"]["refit"] == "none"
    assert about["models"]["SASRecCE"]["train_windows"]
    assert "train_windows" not in about["models"]["Pop"]
    assert "NDCG@5 on validation" in about["protocol"]["selection"]
    readme = (package / "README.md").read_text()
    for words in ("## Repeat", "Fingerprint", "train windows: ", "behind every candidate", "recbole-hyper compare"):
        assert words in readme
    names = {str(file.relative_to(package)) for file in package.rglob("*") if file.is_file()}
    wanted = {"data/random/random.inter", "environment.txt", "settings.yaml", "compare.csv", "compare.tex"}
    wanted |= {"compare.html", "runs/SASRecCE/seed-2/cases_test.parquet", "runs/Theirs/cases_test.parquet"}
    assert wanted | {"scores/Theirs.csv"} <= names


def test_its_command_repeats_every_figure(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command = json.loads((package / "package.json").read_text())["command"]
    monkeypatch.chdir(package)
    monkeypatch.setattr(experiment, "run_alone", run_here([]))
    assert main(command[1:]) == 0
    assert main(["verify", ".", "--repeated=repeated"]) == 0
    assert "equal to those in repeated" in capsys.readouterr().out
    file = package / "repeated" / "SASRecCE" / "seed-2" / "result.json"
    result = json.loads(file.read_text())
    result["test"]["ndcg@5"] += 1e-4
    file.write_text(json.dumps(result))
    assert main(["verify", ".", "--repeated=repeated"]) == 1
    assert "test ndcg@5 was" in capsys.readouterr().out
    file.unlink()
    assert any("result.json is missing" in problem for problem in verify(package, package / "repeated"))


@pytest.mark.parametrize(
    "name",
    ["data/random/random.inter", "runs/Pop/seed-1/cases_test.parquet", "compare.csv", "README.md", "settings.yaml"],
)
def test_a_changed_byte_is_found(name: str, package: Path) -> None:
    assert verify(package) == []
    content = bytearray((package / name).read_bytes())
    content[len(content) // 2] ^= 1
    (package / name).write_bytes(bytes(content))
    assert verify(package) == [f"{name} has changed"]
    (package / name).unlink()
    (package / "more.txt").touch()
    assert verify(package) == [f"{name} is missing", "more.txt is new"]


def test_figures_that_the_ranks_do_not_give(package: Path) -> None:
    """Even if the list of files is made again."""
    from recbole_hyper.files import file_digest

    name = "runs/SASRecCE/seed-1/result.json"
    result = json.loads((package / name).read_text())
    result["test"]["ndcg@5"] += 0.01
    (package / name).write_text(json.dumps(result))
    about = json.loads((package / "package.json").read_text())
    about["files"][name] = file_digest(package / name)
    (package / "package.json").write_text(json.dumps(about))
    problems = verify(package)
    assert any("test ndcg@5 is" in problem for problem in problems)
    assert "compare.csv is not the table of the results" in problems


def test_no_package_and_an_existing_folder(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ConfigError, match="has no package"):
        verify(tmp_path)
    (tmp_path / "file").touch()
    assert main(["compare", "--models=Pop", "--dataset=random", f"--package={tmp_path}"]) == 1
    assert "exists; name a new folder" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]
