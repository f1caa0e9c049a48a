"""A package says what a reviewer asks, repeats its figures, and notices a changed byte."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.experiment import compare
from recbole_hyper.experiment.package import verify
from recbole_hyper.files import file_digest
from tests.commands.test_compare import run_here
from tests.conftest import SMALL
from tests.raising import refused


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
        patch.setattr(compare, "run_alone", run_here([]))
        assert main(asked) == 0
    return folder / "package"


@pytest.fixture
def package(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "package"))


def test_what_a_reviewer_finds(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    assert about["seeds"] == [1, 2]
    assert about["models"]["SASRecCE"].startswith("not tuned: defaults")
    assert "targets that are not in the list" in about["notes"]["Theirs"]
    readme = (package / "README.md").read_text()
    for words in ("## Repeat", "data_fingerprint", "full ranking", "behind every candidate", "recbole-hyper compare"):
        assert words in readme
    names = {str(file.relative_to(package)) for file in package.rglob("*") if file.is_file()}
    wanted = {"data/random/random.inter", "environment.txt", "settings.yaml", "compare.csv", "compare.tex"}
    wanted |= {"compare.html", "runs/SASRecCE/seed-2/cases_test.parquet", "runs/Theirs/cases_test.parquet"}
    assert wanted | {"scores/Theirs.csv"} <= names


def test_its_command_repeats_every_figure(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command = json.loads((package / "package.json").read_text())["command"]
    monkeypatch.chdir(package)
    monkeypatch.setattr(compare, "run_alone", run_here([]))
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


@pytest.mark.parametrize("name", ["data/random/random.inter", "runs/Pop/seed-1/cases_test.parquet", "compare.csv"])
def test_a_changed_byte_is_found(name: str, package: Path) -> None:
    assert verify(package) == []
    content = bytearray((package / name).read_bytes())
    content[len(content) // 2] ^= 1
    (package / name).write_bytes(bytes(content))
    assert verify(package) == [f"{name} has changed"]
    (package / name).unlink()
    (package / "more.txt").touch()
    assert verify(package) == [f"{name} is missing", "more.txt is new"]


def resealed(package: Path) -> None:
    """Make the list of files again."""
    lines = [line.partition("  ")[2] for line in (package / "SHA256SUMS").read_text().splitlines()]
    (package / "SHA256SUMS").write_text("".join(f"{file_digest(package / name)}  {name}\n" for name in lines))


def test_figures_that_the_ranks_do_not_give(package: Path) -> None:
    """Even if the list of files is made again."""
    file = package / "runs/SASRecCE/seed-1/result.json"
    result = json.loads(file.read_text())
    for value in (result["test"]["ndcg@5"] + 0.01, math.nan):
        result["test"]["ndcg@5"] = value
        file.write_text(json.dumps(result))
        resealed(package)
        assert any("test ndcg@5 is" in problem for problem in verify(package))
    result["config"]["metric_decimal_place"] = -3
    file.write_text(json.dumps(result))
    resealed(package)
    assert any("metric_decimal_place is -3" in problem for problem in verify(package))


def test_a_table_that_the_results_do_not_give(package: Path) -> None:
    (package / "compare.csv").write_text((package / "compare.csv").read_text().replace("Pop", "Best"))
    resealed(package)
    assert verify(package) == ["compare.csv is not the table of the results"]


def test_the_list_is_that_of_sha256sum_and_package_json_is_in_it(package: Path) -> None:
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=package, check=True)
    whole = json.loads((package / "package.json").read_text())
    for key in whole:
        (package / "package.json").write_text(json.dumps({**whole, key: "other"}))
        assert verify(package) == ["package.json has changed"]
    (package / "package.json").write_text(json.dumps({**whole, "models": {}}))
    resealed(package)
    with refused(ConfigError, "package.json", "models"):
        verify(package)


def test_a_link_in_place_of_a_file_is_found(package: Path, tmp_path: Path) -> None:
    (package / "README.md").rename(tmp_path / "elsewhere")
    (package / "README.md").symlink_to(tmp_path / "elsewhere")
    assert verify(package) == ["README.md is a link"]


def test_only_what_is_read_is_copied(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every YAML file beside a plugin was copied, hidden ones too, and two plugins of one name met."""
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    code = "from recbole.model.sequential_recommender.sasrec import SASRec\nclass {0}(SASRec): ...\n"
    names = ("Mine", "Theirs")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "my.py").write_text(code.format(name))
        (tmp_path / name / f"{name}.yaml").write_text("loss_type: CE\nn_layers: 1\n")
    for name in ("unrelated.yaml", ".hidden.yaml"):
        (tmp_path / "Mine" / name).write_text("token: secret\n")
    files = [str(tmp_path / name / "my.py") for name in names]
    asked = ["compare", "--models=Mine,Theirs", "--dataset=random", f"--data_path={random_data}", "--epochs=1"]
    asked += [f"--plugins={','.join(files)}", f"--output_dir={tmp_path / 'o'}", f"--package={tmp_path / 'p'}"]
    assert main([*asked, "--use_gpu=False", "--max_concurrent=1", "--hidden_size=8", "--n_heads=1"]) == 0
    plugins = tmp_path / "p" / "plugins"
    copied = {str(file.relative_to(plugins)) for file in plugins.rglob("*") if file.is_file()}
    assert copied == {"1/my.py", "1/Mine.yaml", "2/my.py", "2/Theirs.yaml"}
    assert [(plugins / f"{n}/my.py").read_text() for n in (1, 2)] == [code.format(name) for name in names]
    command = json.loads((tmp_path / "p" / "package.json").read_text())["command"]
    assert "--plugins=plugins/1/my.py,plugins/2/my.py" in command


def test_ids_with_quotes_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists of another library had an NDCG of 0 in the repetition."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    rows = [(f'u"{user}', f"i{(user + step) % 12}", 1704067200 + step) for user in range(20) for step in range(6)]
    pd.DataFrame(rows, columns=["user", "item", "time"]).to_csv("quoted.csv", index=False)
    lists = [(user, f"i{item}", (item * 7) % 12) for user in sorted({row[0] for row in rows}) for item in range(12)]
    pd.DataFrame(lists, columns=["user_id", "item_id", "score"]).to_csv("scores.csv", index=False)
    assert main(["prepare", "q", "--source=quoted.csv"]) == 0
    asked = ["compare", "--models=Pop,EASER", "--dataset=q", "--scores=Other=scores.csv", "--max_concurrent=1"]
    assert main([*asked, "--output_dir=c", "--package=p", "--use_gpu=False"]) == 0
    monkeypatch.chdir("p")
    assert main(json.loads(Path("package.json").read_text())["command"][1:]) == 0
    assert main(["verify", ".", "--repeated=repeated"]) == 0
    assert pd.read_csv("repeated/compare.csv").set_index("model")["ndcg@10"]["Other"] > 0


def test_no_package_and_an_existing_folder(tmp_path: Path, capsys: Any) -> None:
    with refused(ConfigError, "SHA256SUMS"):
        verify(tmp_path)
    (tmp_path / "file").touch()
    assert main(["compare", "--models=Pop", "--dataset=random", f"--package={tmp_path}"]) == 1
    assert f"--package={tmp_path}" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]
