"""What is read from the files of the installed RecBole."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recbole_hyper
from recbole_hyper.host import recbole_files
from recbole_hyper.host.recbole_files import later_model, recbole_comments, recbole_models
from recbole_hyper.yaml_files import recbole_folder


def test_every_model_has_its_class_in_its_file() -> None:
    models = recbole_models()
    assert len(models) > 60
    for name, file in models.items():
        assert re.search(rf"^class {name}\b", file.read_text(encoding="utf-8"), flags=re.MULTILINE), name
    assert models["GRU4Rec"].parent.name == "sequential_recommender"
    assert set(recbole_models(["knowledge_aware_recommender"])).isdisjoint(models)


def test_the_folder_is_that_of_the_import() -> None:
    assert str(recbole_folder() / "__init__.py") == importlib.import_module("recbole").__file__


def test_a_later_model_names_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    assert later_model("SASRec") == later_model("Nobody") == ""
    monkeypatch.setitem(recbole_files.LATER_MODELS, "Newest", "9.9.9")
    assert later_model("Newest").endswith("pip install --no-deps recbole==9.9.9")


def test_comments_have_type_and_meaning() -> None:
    comments = recbole_comments()
    assert comments["epochs"] == ("int", "The number of training epochs")
    assert "n_heads" not in comments
    assert recbole_comments("SASRec")["n_heads"][1].startswith("The number of attention heads")
    assert recbole_comments("NoSuchModel") == comments


def test_a_fork_in_the_current_folder_is_not_used_and_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "recbole").mkdir()
    (tmp_path / "recbole" / "__init__.py").write_text("__version__ = '0.2.1'\n1 / 0\n")
    code = "import recbole_hyper, recbole.config, recbole; print(recbole.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(Path(recbole_hyper.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == importlib.metadata.version("recbole")
    lines = [line for line in done.stderr.splitlines() if "another RecBole (version 0.2.1), which is not used" in line]
    assert len(lines) == 1
    assert str(tmp_path / "recbole") in lines[0]
