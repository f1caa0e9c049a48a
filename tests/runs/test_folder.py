"""The folder of a run: one process at a time, nothing finished is lost, what is damaged is named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recbole_hyper import load, run
from recbole_hyper.cli import main
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.files import locked
from recbole_hyper.runs.claim import is_finished
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.training.checkpoint import CheckpointError, save_weights
from recbole_hyper.training.loop import Loop
from tests.conftest import small
from tests.raising import refused


def contents(folder: Path) -> dict[str, bytes]:
    """Return what a refused run may not change."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.log"
    }


def never(*arguments: object, **keywords: object) -> None:
    raise AssertionError("a refused run trains")


def test_a_folder_is_locked_while_its_run_trains(random_data: Path, tmp_path: Path) -> None:
    keys = small(random_data, tmp_path / "run")
    tried = []

    def second(epoch: int, score: float) -> None:
        for more in ({}, {"resume": True}):
            with refused(ConfigError, "another run uses"):
                run("SASRecCE", "random", config_dict={**keys, **more})
            tried.append(epoch)

    run("SASRecCE", "random", config_dict=keys, on_validation=second)
    assert tried == [0, 0, 1, 1]
    again = run("SASRecCE", "random", config_dict={**keys, "resume": True, "epochs": 3}, on_validation=second)
    assert tried[4:] == [2, 2]
    assert again["epochs"] == 3


def test_the_folder_is_checked_under_the_lock(random_data, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("recbole_hyper.runs.run.run_claimed", never)
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run" / ".run.lock"), refused(ConfigError, "another run uses"):
        run("SASRecCE", "random", config_dict=small(random_data, tmp_path / "run"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".run.lock"]


def test_a_resume_cannot_lower_epochs_patience_or_refit(random_data, tmp_path, monkeypatch, capsys) -> None:
    keys = small(random_data, tmp_path / "run", refit=True, eval_args={"split": {"GT": {"valid": 0.7, "test": 0.85}}})
    run("SASRecCE", "random", config_dict=keys)
    monkeypatch.setattr(Loop, "train_epoch", never)
    before = contents(tmp_path / "run")
    for less in ({"epochs": 1}, {"stopping_step": 1}, {"refit": False}):
        key, value = next(iter(less.items()))
        asked = {**keys, **less}
        named = f"{key}=", f"lowered to {value}", "output_dir"
        with refused(ConfigError, *named):
            run("SASRecCE", "random", config_dict={**asked, "resume": True})
        # compare and reproduce ask this
        with refused(ConfigError, *named):
            is_finished(Config("SASRecCE", "random", config_dict=asked), tmp_path / "run")
    assert main(["run", "--resume=True", f"--output_dir={tmp_path / 'run'}", "--epochs=1"]) == 1
    assert "epochs=2, which cannot be lowered to 1" in capsys.readouterr().err
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    "gone", ["checkpoint.pt", "model.safetensors", "refit/checkpoint.pt", "refit/model.safetensors", "config.yaml"]
)
def test_a_finished_run_that_lacks_a_file_is_not_trained_again(gone, random_data, tmp_path, monkeypatch) -> None:
    keys = small(random_data, tmp_path / "run", epochs=1, refit=True)
    keys["eval_args"] = {"split": {"GT": {"valid": 0.7, "test": 0.85}}}
    run("SASRecCE", "random", config_dict=keys)
    (tmp_path / "run" / gone).unlink()
    before = contents(tmp_path / "run")
    monkeypatch.setattr(Loop, "train_epoch", never)
    for more in ({}, {"epochs": 3}):
        with refused(ValueError, gone):
            run("SASRecCE", "random", config_dict={**keys, "resume": True, **more})
    assert contents(tmp_path / "run") == before


def test_weights_of_a_stopped_resume_are_not_loaded_as_tested(random_data: Path, tmp_path: Path) -> None:
    keys = small(random_data, tmp_path / "run", epochs=1)
    run("SASRecCE", "random", config_dict=keys)
    model = load(tmp_path / "run").model
    save_weights(tmp_path / "run" / "model.safetensors", model.state_dict(), {"epoch": 1})
    for use in (load, evaluate):
        with refused(CheckpointError, "result.json"):
            use(tmp_path / "run")


def uses(folder: Path) -> list[Callable[[], object]]:
    return [
        lambda: run(config_dict={"output_dir": str(folder), "resume": True}),
        lambda: load(folder),
        lambda: evaluate(folder),
    ]


def test_a_damaged_configuration_is_named(random_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run("SASRecCE", "random", config_dict=small(random_data, folder, epochs=1))
    evil = f"!!python/object/apply:os.mkdir ['{tmp_path / 'evil'}']\n"
    others = ["- a\n- b\n", "", "seed: 1\n", "model: 5\ndataset: random\n", "\xff\xfe\x00", "[" * 500]
    for content in (f"model: {evil}", *others):
        (folder / "config.yaml").write_text(content, encoding="latin-1")
        for use in uses(folder):
            with refused(ConfigError, "config.yaml") as caught:
                use()
            assert "\n" not in str(caught.value)
    assert not (tmp_path / "evil").exists()


def test_damaged_weights_and_states_are_named_where_they_are_used(random_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run("SASRecCE", "random", config_dict=small(random_data, folder, epochs=1))
    resume, *others = uses(folder)
    for name, readers in (("model.safetensors", [resume, *others]), ("checkpoint.pt", [resume])):
        whole = (folder / name).read_bytes()
        for content in (b"", whole[:-300] + bytes(299) + b"\x01"):
            (folder / name).write_bytes(content)
            for use in readers:
                with refused(CheckpointError, name) as caught:
                    use()
                assert "\n" not in str(caught.value)
        (folder / name).write_bytes(whole)


def test_the_state_of_another_model_is_refused(random_data: Path, tmp_path: Path) -> None:
    for name, size in (("one", 16), ("other", 8)):
        run("SASRecCE", "random", config_dict=small(random_data, tmp_path / name, epochs=1, hidden_size=size))
    (tmp_path / "other" / "checkpoint.pt").replace(tmp_path / "one" / "checkpoint.pt")
    with refused(CheckpointError, "checkpoint.pt"):
        run(config_dict={"output_dir": str(tmp_path / "one"), "resume": True, "epochs": 2})


@pytest.mark.parametrize("content", ["[1, 2]", "{", "", '{"files": "x"}', '{"model": [1]}'])
def test_a_damaged_result_is_named(content: str, random_data: Path, tmp_path: Path) -> None:
    keys = small(random_data, tmp_path / "run", epochs=1)
    run("Pop", "random", config_dict=keys)
    (tmp_path / "run" / "result.json").write_text(content)
    for use in (
        lambda: is_finished(Config("Pop", "random", config_dict=keys), tmp_path / "run"),
        lambda: run("Pop", "random", config_dict={**keys, "resume": True}),
    ):
        with refused(ValueError, "result.json"):
            use()


def test_a_full_disk_is_one_line(random_data, tmp_path, monkeypatch, capsys) -> None:
    def full(*arguments: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:815] . PytorchStreamWriter failed writing file data/1")

    keys = small(random_data, tmp_path / "run")
    words = [f"--{key}={value}" for key, value in keys.items()]
    with monkeypatch.context() as patch:
        patch.setattr("recbole_hyper.training.checkpoint.torch.save", full)
        with refused(NoSpaceError, "no space left"):
            run("SASRecCE", "random", config_dict=keys)
        assert main(["run", "--model=SASRecCE", "--dataset=random", "--resume=True", *words]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: [Errno 28] no space left on the disk of")
    again = run("SASRecCE", "random", config_dict={**keys, "resume": True})
    whole = run("SASRecCE", "random", config_dict=small(random_data, tmp_path / "whole"))
    assert again["test"] == whole["test"]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["test"] == whole["test"]


@pytest.mark.parametrize("name", ["data/notes.txt", "train.csv", "refit/notes.txt", "format.json"])
def test_files_of_others_are_not_overwritten(name: str, random_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    if name != "format.json":
        (out / "run.log").touch()  # of a shell
    before = contents(out)
    with refused(ConfigError, name.split("/")[0], "choose another output_dir"):
        run("SASRecCE", "random", config_dict=small(random_data, out))
    assert contents(out) | {".run.lock": b""} == before | {".run.lock": b""}


def test_a_run_that_failed_before_training_leaves_the_folder_free(random_data: Path, tmp_path: Path) -> None:
    keys = small(random_data, tmp_path / "run")
    with refused(ValueError, "rank=45"):
        run("PureSVDN", "random", config_dict={**keys, "rank": 45})
    assert (tmp_path / "run" / "config.yaml").is_file()
    assert not is_finished(Config("PureSVDN", "random", config_dict={**keys, "rank": 5}), tmp_path / "run")
    assert run("PureSVDN", "random", config_dict={**keys, "rank": 5})["config"]["rank"] == 5
    with refused(ConfigError, "already"):
        run("PureSVDN", "random", config_dict={**keys, "rank": 6})
    # the configuration of somebody else is not replaced
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.yaml").write_text("model: Pop\ndataset: random\n")
    with refused(ConfigError, "already"):
        run("Pop", "random", config_dict={**keys, "output_dir": str(tmp_path / "theirs")})


def test_a_run_on_data_that_changed_is_not_finished(random_data: Path, tmp_path: Path) -> None:
    """Old figures passed for those of new data."""
    file = Path(shutil.copytree(random_data, tmp_path / "copy")) / "random" / "random.inter"
    keys = small(tmp_path / "copy", tmp_path / "run")
    run("Pop", "random", config_dict=keys)
    lines = file.read_text().splitlines(keepends=True)
    for rows in (lines, lines[:-1]):
        file.write_text("".join(rows))
        os.utime(file, (2**32, 2**32))
        config = Config("Pop", "random", config_dict=keys)
        if rows is lines:
            assert is_finished(config, tmp_path / "run")
    with refused(ConfigError, "finished run on other data"):
        is_finished(config, tmp_path / "run")
