"""Recommendations by several processes: the file of one process, whatever was there before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import recommend_all, run
from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.batch import PartWriter, Workers
from recbole_hyper.serving import stream
from recbole_hyper.serving.query import Query
from recbole_hyper.serving.rules import Plan
from tests.conftest import LEARN
from tests.raising import refused


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


def inline(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Compute parts of 50 users in this process, and return the list of the files that are computed."""
    computed = []

    def compute(workers: Workers, query: Query, plan: Plan, missing: list[stream.Part]) -> None:
        computed.append([part.file.stem for part in missing])
        writer = PartWriter(str(workers.folder), plan, 1, workers.trust)
        for part in missing:
            writer.write(query[part.rows], str(part.file))

    monkeypatch.setattr(stream, "USERS_OF_A_PART", 50)
    monkeypatch.setattr(Workers, "__call__", compute)
    return computed


def test_workers_write_the_file_of_one_process(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = inline(monkeypatch)
    file = recommend_all(trained, tmp_path / "all.parquet", k=3)
    expected = one_process(trained, "--k=3")
    pd.testing.assert_frame_equal(pd.read_parquet(file), expected, rtol=1e-5)
    assert computed == [["00000000", "00000001", "00000002"]]
    # a call that was stopped behind its second part
    with monkeypatch.context() as patch:
        patch.setattr(stream, "join", None)
        with pytest.raises(TypeError):
            recommend_all(trained, file, k=3)
    next((tmp_path / ".all.parquet.parts").rglob("00000001.parquet")).unlink()
    recommend_all(trained, file, k=3, num_workers=1)
    assert computed[2:] == [["00000001"]]
    pd.testing.assert_frame_equal(pd.read_parquet(file), expected, rtol=1e-5)
    assert [path.name for path in tmp_path.glob("*all*")] == ["all.parquet"]


def test_the_command_with_workers(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With any users, into csv too; --unknown and --cold were once dropped without a word."""
    computed = inline(monkeypatch)
    only = tmp_path / "only.txt"
    only.write_text("i1\ni2\ni3\ni4\ni5\n")
    for options in (["--k=2", f"--items={only}", "--exclude_seen=False"], ["--users=u1,u2,nobody", "--k=1"]):
        assert main(["recommend", str(trained), "--num_workers=2", f"--output={tmp_path / 'out.csv'}", *options]) == 0
        expected = one_process(trained, *options)
        found = pd.read_csv(tmp_path / "out.csv")
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-5)
    assert len(computed) == 2
    (tmp_path / "never.txt").write_text("i1\ni2\ngone\n")
    command = ["recommend", str(trained), "--num_workers=2", f"--exclude={tmp_path / 'never.txt'}"]
    assert main([*command, "--unknown=error", f"--output={tmp_path / 'more.csv'}"]) == 1
    assert "1 items are not in the data (first: 'gone')" in capsys.readouterr().err
    with refused(ValueError, "k=99"):
        recommend_all(trained, tmp_path / "other.csv", k=99)
    with refused(ConfigError, "recommendations", "command"):
        recommend_all(trained, only.rename(tmp_path / "only.csv"))


@pytest.mark.slow  # starts a Ray cluster
def test_two_workers_of_ray(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "USERS_OF_A_PART", 40)
    file = recommend_all(trained, tmp_path / "all.parquet", k=5, num_workers=2)
    pd.testing.assert_frame_equal(pd.read_parquet(file), one_process(trained, "--k=5"), rtol=1e-5)
    with pytest.raises(ConfigError, match=r"num_workers=2: the cluster has|no Ray cluster at"):
        recommend_all(trained, tmp_path / "more.csv", k=5, num_workers=2, ray_address="127.0.0.1:9")
