"""Recommendations in a file: whole or not there, the same after a kill, whatever form the question has."""

import errno
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from recbole_hyper import load
from recbole_hyper.cli import main
from recbole_hyper.data.tables.inputs import read_history_file, read_id_file
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.files import locked
from recbole_hyper.serving import stream
from recbole_hyper.serving.recommender import Recommender
from tests.raising import refused


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "USERS_OF_A_PART", 7)


def write(model: Recommender, output: Path, **more: Any) -> int:
    plan = model.catalogue.plan(**{"k": 4, **more})
    return stream.write_recommendations(
        model, model.query(users=stream.all_users(model)), output, plan=plan, identity={"weights": "x"}
    )


def read(file: Path) -> pd.DataFrame:
    return pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype={"user_id": str})


@pytest.mark.parametrize("name", ["recs.parquet", "recs.csv"])
def test_all_users_are_in_the_file(name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["recommend", str(folder), "--k=4", f"--output={tmp_path / name}"]) == 0
    assert str(tmp_path / name) in capsys.readouterr().out
    model = load(folder)
    expected = model.recommend(users=model.store.user_tokens[model.store.users], k=4)
    pd.testing.assert_frame_equal(read(tmp_path / name), expected, check_dtype=False, rtol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_histories_users_and_items_come_from_files(folder: Path, model: Recommender, tmp_path: Path) -> None:
    histories = {"007": ["i3", "i1"], "anna": ["i5", "gone"], "NA": ["gone"]}
    rows = [(user, item, 5 - time) for user, items in histories.items() for time, item in enumerate(items[::-1])]
    table = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"])
    table.to_csv(tmp_path / "new.csv", index=False)
    table.to_parquet(tmp_path / "new.parquet")
    table.rename(
        columns={"user_id": "user_id:token", "item_id": "item_id:token", "timestamp": "timestamp:float"}
    ).to_csv(tmp_path / "new.inter", index=False, sep="\t")
    (tmp_path / "items.txt").write_text("i7\ni8\ni9\ni2\n")
    pd.DataFrame({"item_id": ["i9"]}).to_csv(tmp_path / "never.csv", index=False)
    expected = model.recommend(histories=histories, k=2, items=["i7", "i8", "i2"])
    for name in ("new.csv", "new.parquet", "new.inter"):
        keep = ["--missing_ids=keep"] * (name == "new.csv")
        words = [f"--histories={tmp_path / name}", *keep, f"--items={tmp_path / 'items.txt'}"]
        words += [f"--exclude={tmp_path / 'never.csv'}", "--k=2", f"--output={tmp_path / 'out.parquet'}"]
        assert main(["recommend", str(folder), *words]) == 0
        found = pd.read_parquet(tmp_path / "out.parquet")
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    (tmp_path / "users.csv").write_text("user_id,age\nu4,3\nu2,5\n")
    assert main(["recommend", str(folder), f"--users={tmp_path / 'users.csv'}", f"--output={tmp_path / 'u.csv'}"]) == 0
    assert pd.read_csv(tmp_path / "u.csv")["user_id"].unique().tolist() == ["u4", "u2"]


def test_a_file_of_histories_is_read_as_any_table(model: Recommender, tmp_path: Path) -> None:
    """Rows whose time is called ``date`` were taken in the order of the file; tests/data has the other forms."""
    file = tmp_path / "names.csv.gz"
    file.write_bytes(gzip.compress(b"Customer_ID;asin;Date\na;i1;2024-01-10\na;i3;2024-01-09\n"))
    query = model.query(histories=read_history_file(file, model.names, unit=model.unit))
    expected = model.recommend(histories={"a": ["i3", "i1"]}, k=3)
    pd.testing.assert_frame_equal(model.answer(query, model.catalogue.plan(3)), expected, check_dtype=False)
    assert set(read_id_file(file, {}, "user_id")) == {"a"}


@pytest.mark.parametrize("output", [True, False])
def test_skipped_ids_are_logged(output: bool, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = [user for user in "abcdefghij" for _ in range(2)]  # two parts
    pd.DataFrame({"user_id": users, "item_id": ["i3", "gone"] * 10}).to_csv(tmp_path / "new.csv", index=False)
    words = [f"--output={tmp_path / 'out.csv'}"] if output else []
    assert main(["recommend", str(folder), f"--histories={tmp_path / 'new.csv'}", *words]) == 0
    assert "10 items in histories are unknown to the model and were skipped" in caplog.text
    caplog.clear()
    assert main(["recommend", str(folder), "--users=all", *words]) == 0
    assert "skipped" not in caplog.text


def test_no_users_give_an_empty_table(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "users.csv").write_text("user_id\n")
    assert main(["recommend", str(folder), f"--users={tmp_path / 'users.csv'}"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["user_id", "position", "item_id", "score", "popular"]


def test_without_an_output_a_few_are_shown(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["recommend", str(folder), "--k=2", "--exclude_seen=False"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["user_id", "position", "item_id", "score", "popular"]
    assert len(lines) == 2 + 5 * 2 + 1
    assert lines[-1] == "5 of 30 users; --output=FILE.parquet writes all"
    assert main(["similar", str(folder), "i3", "i4", "--k=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["item_id", "position", "similar_id", "score"]
    assert lines[-1] == "score: cosine of the item vectors"
    assert len(lines) == 2 + 4 + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output=recs.txt"], "must end in .parquet or .csv"),
        (["--k=13", "--output=recs.csv"], "k=13: between 1 and 12"),
        (["--users=missing.csv"], "missing.csv"),
        (["--users=users.csv"], "no column user_id; its columns: a, b"),
        (["--users=users.txt", "--unknown=error", "--output=recs.csv"], "1 users are not in the data"),
        (["--users=broken.parquet"], "is cut off, damaged"),
    ],
)
def test_bad_arguments_are_one_line_and_leave_no_file(words, message, folder, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users.csv").write_text("a,b\nu1,u2\n")
    (tmp_path / "users.txt").write_text("u1\nnobody\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(["recommend", str(folder), *words]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["recs.parquet", "recs.csv"])
def test_a_stopped_call_resumes_and_writes_the_same_file(name, model, tmp_path, monkeypatch) -> None:
    write(model, tmp_path / f"whole-{name}")
    answered = []

    class Stopped(Exception):
        pass

    answer = Recommender.answer

    def counted(self: Recommender, asked: Any, *arguments: Any, **keywords: Any) -> Any:
        answered.append(len(asked))
        if len(answered) == 3:
            raise Stopped
        return answer(self, asked, *arguments, **keywords)

    write(model, tmp_path / name, k=2)
    yesterday = (tmp_path / name).read_bytes()
    monkeypatch.setattr(Recommender, "answer", counted)
    with pytest.raises(Stopped):
        write(model, tmp_path / name)
    assert (tmp_path / name).read_bytes() == yesterday
    answered[:] = [0] * 3
    assert write(model, tmp_path / name) == 2
    assert answered[3:] == [7, 7, 2]
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    # the parts of another question are not taken for those of this one
    answered.clear()
    with pytest.raises(Stopped):
        write(model, tmp_path / name)
    answered[:] = [0] * 3
    assert write(model, tmp_path / name, k=3) == 0
    assert read(tmp_path / name)["position"].max() == 3


@pytest.mark.parametrize("name", ["recs.parquet", "recs.csv"])
def test_a_part_that_was_cut_is_computed_again(name, model, tmp_path, monkeypatch) -> None:
    """It was joined as it was: rows were lost, and the exit status was 0."""
    write(model, tmp_path / f"whole-{name}")
    with monkeypatch.context() as patch:
        patch.setattr(stream, "join", None)
        with pytest.raises(TypeError):
            write(model, tmp_path / name)
    part = next((tmp_path / f".{name}.parts").rglob("00000002.*"))
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    other = part.with_name("00000003.parquet")
    content = other.read_bytes()
    other.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])  # one bit of the first page
    assert write(model, tmp_path / name) == 3
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()


def test_only_recommendations_are_overwritten(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The histories, and train.csv of the run, were replaced by recommendations."""
    (tmp_path / "h.csv").write_text("user_id,item_id\na,i3\n")
    trained = (folder / "train.csv").read_text()
    asked = ["recommend", str(folder), f"--histories={tmp_path / 'h.csv'}", "--k=2"]
    for output, message in (
        (tmp_path / "h.csv", "is an input of this command"),
        (folder / "train.csv", "does not contain recommendations of this command"),
        (folder / "cases_test.parquet", "does not contain recommendations of this command"),
    ):
        assert main([*asked, f"--output={output}"]) == 1
        assert message in capsys.readouterr().err
    assert (folder / "train.csv").read_text() == trained
    for _ in range(2):
        assert main([*asked, f"--output={tmp_path / 'recs.csv'}"]) == 0
    assert (
        main(["recommend", str(folder), f"--users={tmp_path / 'recs.csv'}", f"--output={tmp_path / 'recs.csv'}"]) == 1
    )
    assert "is an input of this command" in capsys.readouterr().err


def test_a_full_disk_is_one_error_and_the_parts_stay(model, tmp_path, monkeypatch) -> None:
    write(model, tmp_path / "whole.parquet")
    write_table, written = pa.parquet.write_table, []

    def full(table: Any, path: Path, **options: Any) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_table(table, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pa.parquet, "write_table", full)
        with refused(NoSpaceError, "space", "disk"):
            write(model, tmp_path / "recs.parquet")
    assert not (tmp_path / "recs.parquet").exists()
    assert write(model, tmp_path / "recs.parquet") == 2
    assert (tmp_path / "recs.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_two_processes_do_not_write_one_file(model: Recommender, tmp_path: Path) -> None:
    place = tmp_path / ".recs.csv.parts"
    place.mkdir()
    with locked(place / ".lock"), refused(OSError, "another", "process"):
        write(model, tmp_path / "recs.csv")


def test_killed_in_the_middle_and_started_again(folder, tmp_path, capsys) -> None:
    """A process that is killed without warning while it writes leaves what the next one continues from."""
    code = """
import sys, time
from recbole_hyper.cli import main
from recbole_hyper.serving import stream

stream.USERS_OF_A_PART, write = 7, stream.write_part

def slow(frame, part, **options):
    write(frame, part, **options)
    time.sleep(600 if part.stem > "00000000" else 0)

stream.write_part = slow
main(sys.argv[1:])
"""
    output = tmp_path / "recs.parquet"
    parts = tmp_path / ".recs.parquet.parts"
    words = ["recommend", str(folder), "--k=4"]
    process = subprocess.Popen([sys.executable, "-c", code, *words, f"--output={output}"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if [*parts.rglob("00000001.parquet")]:
                break
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not output.exists()

    for file in (output, tmp_path / "whole.parquet"):
        assert main([*words, f"--output={file}"]) == 0
    assert capsys.readouterr().out.count("resumed after 2 parts of an earlier call") == 1
    assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
