"""Recommendations for all users in parts: the rows of one process, whatever was there before."""

from __future__ import annotations

import hashlib
import platform
import shutil
from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import recommend_all, run
from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.runs import batch
from recbole_hyper.runs.batch import PartWriter
from tests.conftest import LEARN


@pytest.fixture
def trained(walk: Path, tmp_path: Path) -> Path:
    """Return the folder of a run whose data set is gone."""
    keys = {**LEARN, "epochs": 2, "data_path": str(walk), "output_dir": str(tmp_path / "run")}
    run("HSASRecCE", "walk", config_dict=keys)
    shutil.rmtree(walk)
    return tmp_path / "run"


def one_process(folder: Path, *options: str) -> pd.DataFrame:
    """Return what the command writes without workers."""
    file = folder.with_name("one.parquet")
    assert main(["recommend", str(folder), f"--output={file}", *options]) == 0
    return pd.read_parquet(file)


def same(files: list[Path], expected: pd.DataFrame) -> None:
    frame = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    pd.testing.assert_frame_equal(frame, expected, rtol=1e-5)


def inline(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Compute parts in this process, and return the list of what is computed."""
    asked = []

    def compute(arguments: tuple, missing: list[int], *_: object) -> None:
        asked.append(missing)
        writer = PartWriter(*arguments, 1)
        for number in missing:
            writer({"part": pd.Series([number]).to_numpy()})

    monkeypatch.setattr(batch, "_compute", compute)
    return asked


def test_parts_that_are_there_are_not_computed_again(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = inline(monkeypatch)
    files = recommend_all(trained, tmp_path / "out", k=3, users_of_a_part=50)
    assert [file.name for file in files] == ["part-000000.parquet", "part-000001.parquet", "part-000002.parquet"]
    expected = one_process(trained, "--k=3")
    same(files, expected)
    files[1].unlink()
    # as a process of this machine leaves it that was killed
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    (tmp_path / "out" / f".part-000001.parquet.{host}.999999.part").write_bytes(b"cut off")
    same(recommend_all(trained, tmp_path / "out", k=3, users_of_a_part=50), expected)
    recommend_all(trained, tmp_path / "out", k=3, users_of_a_part=50, num_workers=1)
    assert asked == [[0, 1, 2], [1]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_asked.json", "_parts", *(file.name for file in files)
    ]  # fmt: skip
    # pandas read none of it past asked.json
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), expected, rtol=1e-5)
    files[0].write_bytes(files[2].read_bytes())
    same(recommend_all(trained, tmp_path / "out", k=3, users_of_a_part=50), expected)
    assert asked[2:] == [[0]]


def test_parts_of_something_else_are_not_mixed_up(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline(monkeypatch)
    recommend_all(trained, tmp_path / "out", k=3, users_of_a_part=50)
    with pytest.raises(ConfigError, match=r"holds other recommendations \(k: 3 before, 4 now; lists"):
        recommend_all(trained, tmp_path / "out", k=4, users_of_a_part=50)
    (tmp_path / "out" / "_asked.json").unlink()
    with pytest.raises(ConfigError, match=r"holds parts, but no _asked\.json"):
        recommend_all(trained, tmp_path / "out", k=3, users_of_a_part=50)
    with pytest.raises(ValueError, match="k=99: between 1 and 60"):
        recommend_all(trained, tmp_path / "other", k=99)
    assert not (tmp_path / "other").exists()


def test_the_command_with_workers(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inline(monkeypatch)
    only = tmp_path / "only.txt"
    only.write_text("i1\ni2\ni3\ni4\ni5\n")
    options = ["--k=2", f"--items={only}", "--exclude_seen=False"]
    assert main(["recommend", str(trained), "--num_workers=2", f"--output={tmp_path / 'out'}", *options]) == 0
    same(sorted((tmp_path / "out").glob("*.parquet")), one_process(trained, *options))
    capsys.readouterr()
    for more, message in ((["--users=a.txt"], "leave --users"), ([f"--output={tmp_path / 'a.csv'}"], "into a folder")):
        assert main(["recommend", str(trained), "--num_workers=2", *more]) == 1
        assert message in capsys.readouterr().err


def test_workers_refuse_what_the_options_refuse(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--unknown and --cold were dropped without a word."""
    inline(monkeypatch)
    (tmp_path / "never.txt").write_text("i1\ni2\ngone\n")
    command = ["recommend", str(trained), "--num_workers=2", f"--exclude={tmp_path / 'never.txt'}"]
    assert main([*command, "--unknown=error", f"--output={tmp_path / 'out'}"]) == 1
    assert "1 items are not in the data (first: 'gone')" in capsys.readouterr().err


@pytest.mark.slow  # starts a Ray cluster
def test_two_workers_of_ray_data(trained: Path, tmp_path: Path) -> None:
    files = recommend_all(trained, tmp_path / "out", k=5, num_workers=2, users_of_a_part=40)
    assert len(files) == 3
    same(files, one_process(trained, "--k=5"))
    with pytest.raises(ConfigError, match=r"num_workers=2: the cluster has|no Ray cluster at"):
        recommend_all(trained, tmp_path / "more", k=5, num_workers=2, ray_address="127.0.0.1:9")
