"""The folder of a run is enough: what it holds, who may read it, and what is said where something is not as it was."""

import errno
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper import load, run
from recbole_hyper.config import ConfigError
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.runs import load as loading
from recbole_hyper.runs import saved_data
from recbole_hyper.training.checkpoint import CheckpointError
from recbole_hyper.training.loop import Loop
from tests.conftest import small
from tests.raising import refused

REFIT = {"eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}, "refit": True}


settings = partial(small, epochs=1, use_gpu=False)


def answers(folder: Path) -> pd.DataFrame:
    return load(folder).recommend(users=[f"u{user}" for user in range(20)], k=5)


@pytest.fixture
def folder(random_data: Path, tmp_path: Path) -> Path:
    """A finished, refit run, whose data set is gone."""
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **REFIT))
    shutil.rmtree(random_data)
    return tmp_path / "run"


def test_the_umask_decides_who_may_read_a_file(folder: Path, tmp_path: Path) -> None:
    """Weights were of mode 0600, so that no service account could read them."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    plain = {True: (tmp_path / "file").stat().st_mode, False: (tmp_path / "folder").stat().st_mode}
    assert {path.name for path in folder.rglob("*")} > {"model.safetensors", "checkpoint.pt", "cases_test.parquet"}
    for path in folder.rglob("*"):
        assert stat.filemode(path.stat().st_mode) == stat.filemode(plain[path.is_file()]), path


def test_the_data_are_there_before_training(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(self: Any, *arguments: Any, **keywords: Any) -> None:
        assert saved_data.read_saved_data(tmp_path / "run") is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "train_epoch", look)
    with pytest.raises(KeyboardInterrupt):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run"))


def test_missing_and_damaged_files_are_named(folder: Path) -> None:
    files = sorted(path for path in (folder / "data").rglob("*") if path.is_file())
    names = {path.relative_to(folder / "data").as_posix() for path in files}
    assert {"sequences/item_tokens.npy", "sequences/user_tokens.npy", "refit_lengths.npy", "catalogue.npy"} < names
    for path in [*files, folder / "model.safetensors", folder / "refit" / "model.safetensors"]:
        if path == folder / "model.safetensors":
            continue  # the refit model is the one that is loaded
        whole = path.read_bytes()
        path.unlink()
        with refused(CheckpointError, path.name):
            load(folder)
        if path.name != "about.json":
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
            with refused(CheckpointError, path.name):
                load(folder)
        path.write_bytes(whole)
    assert len(answers(folder))


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_damaged_about_file_is_named(content: str, folder: Path) -> None:
    (folder / "data" / "about.json").write_text(content)
    with refused(ValueError, str(folder / "data")):
        load(folder)


def test_another_version_is_logged(folder, caplog, monkeypatch) -> None:
    assert load(folder).differences == []
    before, version = answers(folder), loading.package_version()
    monkeypatch.setattr(loading, "package_version", lambda: "9.9")
    (text,) = load(folder).differences
    assert version in text
    assert "9.9" in text
    assert text in caplog.text
    pd.testing.assert_frame_equal(answers(folder), before)


@pytest.mark.parametrize("name", ["HSASRecCE", "EASER", "Pop"])
def test_a_run_without_saved_data_reads_the_data_set(name: str, random_data: Path, tmp_path: Path) -> None:
    with_data, without = tmp_path / "with", tmp_path / "without"
    for folder, save in ((with_data, True), (without, False)):
        run(name, "random", config_dict=settings(random_data, folder, save_data=save))
    assert not (without / "data").exists()
    model = load(without)
    assert "saved no data (save_data)" in model.differences[0]
    pd.testing.assert_frame_equal(answers(without), answers(with_data))
    shutil.rmtree(random_data)
    with refused(ConfigError, "'random'"):
        load(without)


def test_a_refit_that_is_added_is_loaded(random_data: Path, tmp_path: Path) -> None:
    keys = settings(random_data, tmp_path / "run", **{**REFIT, "refit": False})
    run("SASRecCE", "random", config_dict=keys)
    before = answers(tmp_path / "run")
    run("SASRecCE", "random", config_dict={**keys, "refit": True, "resume": True})
    again = answers(tmp_path / "run")
    assert (again["score"] != before["score"]).any()
    run("SASRecCE", "random", config_dict={**keys, "refit": True, "output_dir": str(tmp_path / "other")})
    pd.testing.assert_frame_equal(again, answers(tmp_path / "other"))


def test_a_full_disk_leaves_no_half_of_the_data(random_data, tmp_path, monkeypatch) -> None:
    keys = settings(random_data, tmp_path / "run")

    def full(self: SequenceStore, folder: Path, **_: bool) -> None:
        folder.mkdir()
        (folder / "offsets.npy").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SequenceStore, "save", full)
        with refused(NoSpaceError, "space", "disk"):
            run("SASRecCE", "random", config_dict=keys)
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {
        ".run.lock",
        "run.log",
        "format.json",
        "chosen.json",
    }
    run("SASRecCE", "random", config_dict=keys)
    assert len(answers(tmp_path / "run"))


def test_a_linear_model_is_not_fitted_again(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recbole_hyper.models.easer import EASER

    run("EASER", "random", config_dict=settings(random_data, tmp_path / "run"))
    before = answers(tmp_path / "run")

    def never(self: Any) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(EASER, "fit", never)
    pd.testing.assert_frame_equal(answers(tmp_path / "run"), before)


def test_a_model_of_features_needs_its_data_set(random_data: Path, tmp_path: Path) -> None:
    rows = "".join(f"i{item}\t{item % 4}\n" for item in range(50))
    (random_data / "random" / "random.item").write_text("item_id:token\tclass:token\n" + rows)
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "class"]}
    more = {"load_col": columns, "selected_features": ["class"]}
    run("SASRecF", "random", config_dict=settings(random_data, tmp_path / "run", **more))
    before = answers(tmp_path / "run")
    assert np.isfinite(before["score"]).all()
    moved = random_data / "random" / "random.inter"
    text = moved.read_text()
    moved.write_text(text + "u1\ti3\t1000000099\n")
    with refused(ConfigError, "SASRecF"):
        load(tmp_path / "run")
    shutil.rmtree(random_data)
    with refused(ConfigError, "SASRecF", "'random'"):
        load(tmp_path / "run")
