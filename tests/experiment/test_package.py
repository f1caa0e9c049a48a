"""A package says what a reviewer asks, and repeats its figures."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.experiment import compare
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
        patch.setattr(compare, "run_alone", run_here([]))
        assert main(asked) == 0
    return folder / "package"


@pytest.fixture
def package(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "package"))


def repeated(package: Path) -> list[str]:
    """Return the words of the command in the README."""
    (line,) = [line for line in (package / "README.md").read_text().splitlines() if line.startswith("recbole-hyper ")]
    return shlex.split(line)[1:]


def test_what_a_reviewer_finds(package: Path) -> None:
    readme = (package / "README.md").read_text()
    for words in ("## Repeat", "data_fingerprint", "full ranking", "behind every candidate", "--seeds=1,2"):
        assert words in readme
    assert "SASRecCE: 'not tuned: defaults" in readme
    assert "targets that are not in the list" in readme
    names = {str(file.relative_to(package)) for file in package.rglob("*") if file.is_file()}
    wanted = {"data/random/random.inter", "environment.txt", "settings.yaml", "compare.csv", "compare.tex"}
    wanted |= {"compare.html", "runs/SASRecCE/seed-2/cases_test.parquet", "runs/Theirs/cases_test.parquet"}
    assert wanted | {"scores/Theirs.csv"} <= names


def test_its_command_repeats_every_figure(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(package)
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    assert main(repeated(package)) == 0
    files = list(Path("runs").rglob("result.json"))
    assert len(files) == 5
    for file in files:
        before, after = (json.loads(one.read_text()) for one in (file, "repeated" / file.relative_to("runs")))
        assert [before[part] for part in ("valid", "test")] == [after[part] for part in ("valid", "test")]
    metrics = [pd.read_csv(file).set_index("model")["ndcg@5"] for file in ("compare.csv", "repeated/compare.csv")]
    assert metrics[0].to_dict() == metrics[1].to_dict()


def test_its_list_is_that_of_sha256sum(package: Path) -> None:
    check = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=package, check=True)
    listed = {line.partition("  ")[2] for line in (package / "SHA256SUMS").read_text().splitlines()}
    there = {str(file.relative_to(package)) for file in package.rglob("*") if file.is_file()}
    assert listed == there - {"SHA256SUMS"}
    file = package / "runs/Pop/seed-1/cases_test.parquet"
    file.write_bytes(file.read_bytes() + b"0")
    done = subprocess.run(check, cwd=package, check=False, capture_output=True, text=True)
    assert "runs/Pop/seed-1/cases_test.parquet" in done.stdout


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
    assert "--plugins=plugins/1/my.py,plugins/2/my.py" in repeated(tmp_path / "p")


def test_ids_with_quotes_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists of another library had an NDCG of 0 in the repetition."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    rows = [(f'u"{user}', f"i{(user + step) % 12}", 1704067200 + step) for user in range(20) for step in range(6)]
    pd.DataFrame(rows, columns=["user", "item", "time"]).to_csv("quoted.csv", index=False)
    lists = [(user, f"i{item}", (item * 7) % 12) for user in sorted({row[0] for row in rows}) for item in range(12)]
    pd.DataFrame(lists, columns=["user_id", "item_id", "score"]).to_csv("scores.csv", index=False)
    assert main(["prepare", "q", "--source=quoted.csv"]) == 0
    asked = ["compare", "--models=Pop,EASER", "--dataset=q", "--scores=The other=scores.csv", "--max_concurrent=1"]
    assert main([*asked, "--output_dir=c", "--package=p", "--use_gpu=False"]) == 0
    monkeypatch.chdir("p")
    assert main(repeated(Path())) == 0
    metrics = [pd.read_csv(file).set_index("model")["ndcg@10"] for file in ("compare.csv", "repeated/compare.csv")]
    assert metrics[0].to_dict() == metrics[1].to_dict()
    assert metrics[1]["The other"] > 0


def test_an_existing_folder_is_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").touch()
    assert main(["compare", "--models=Pop", "--dataset=random", f"--package={tmp_path}"]) == 1
    assert f"{tmp_path} is not empty; choose another --package" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]
    asked = ["compare", "--models=Pop", "--dataset=random", f"--output_dir={tmp_path / 'o/runs'}"]
    assert main([*asked, f"--package={tmp_path / 'o'}"]) == 1
    assert "has --output_dir=" in capsys.readouterr().err
