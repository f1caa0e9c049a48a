"""RecBole's habits on the command line: -m, -d, and the versions."""

import importlib.metadata
from pathlib import Path

import pytest

import recbole_hyper
from recbole_hyper import cli
from recbole_hyper.commands import all_commands
from recbole_hyper.files import read_json
from tests.raising import refused


def test_a_run_by_recboles_letters(random_data: Path, tmp_path: Path) -> None:
    given = [f"--data_path={random_data}", f"--output_dir={tmp_path / 'run'}", "--topk=5", "--valid_metric=NDCG@5"]
    assert cli.main(["run", "-m", "Pop", "-d", "random", *given]) == 0
    result = read_json(tmp_path / "run" / "result.json")
    assert (result["model"], result["dataset"]) == ("Pop", "random")


def test_the_versions_of_what_it_stands_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"recbole-hyper {recbole_hyper.__version__} (")
    for name in ("recbole", "torch"):
        assert f"{name} {importlib.metadata.version(name)}" in said


def test_the_example_of_each_command_is_one() -> None:
    for name, command in all_commands().items():
        assert command.example.split()[0] == name
        assert cli._parse(command.example.split()).command == name


def test_a_shell_completes_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--print-completion", "bash"])
    script = capsys.readouterr().out
    assert all(f"_shtab_recbole_hyper_{name}_option_strings" in script for name in all_commands())
    assert "--diversity_by" in script


@pytest.mark.parametrize("model", ["SASRecCE", "BPR", "SASRec"])
def test_no_two_defaults_contradict_each_other(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", model]) == 0
    defaults = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert (defaults["repeatable"], defaults["exclude_seen"]) == ("~", "True")


def test_an_option_with_two_values_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--model=Pop", "--model=BPR"], ["--model=Pop", "-m", "BPR"], ["-d", "one", "--dataset=two"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", *given])
        assert ended.value.code == 2
        assert "is given twice, as" in capsys.readouterr().err
    with refused(SystemExit, "2"):
        cli.main(["recommend", "folder", "--k=3", "--k=4"])
    assert cli._parse(["run", "--model=Pop", "-m", "Pop"]).model == "Pop"


def test_the_home_folder_in_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    words = ["~/run", "--plugins=~/a.py,~/b.py", "--plugins=[~/a.py]", "--tuned=Pop=~/sweep", "--strict=a~/b", "--k=~"]
    assert [cli._HOME.sub(cli._home, word) for word in words] == [
        *("/home/me/run", "--plugins=/home/me/a.py,/home/me/b.py", "--plugins=[/home/me/a.py]"),
        *("--tuned=Pop=/home/me/sweep", "--strict=a~/b", "--k=~"),
    ]


def test_a_missing_name_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    model, dataset = (f"no {name} given: use --{name}=NAME" for name in ("model", "dataset"))
    for words, texts in (
        (["run"], [model, dataset]),
        (["run", "--model=Pop"], [dataset]),
        (["sweep"], [model, dataset]),
        (["sweep", "--model=Pop"], [dataset]),
    ):
        assert cli.main(words) == 1
        printed = capsys.readouterr().err
        assert [text for text in (model, dataset) if text in printed] == texts
