"""What stands on disk: complete files or the old ones, whatever interrupts; the command's options and its output."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recbole_hyper.cli import main
from recbole_hyper.data import interactions as writer
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.ids import Tokens, escaped, unescaped
from recbole_hyper.data.interactions import NO_IDS, Interactions, write_interactions
from recbole_hyper.data.prepare import pipeline, public
from recbole_hyper.data.prepare.pipeline import prepare
from recbole_hyper.errors import DataError
from recbole_hyper.files import replaced

RAW = "1\t10\t5\t100\n1\t20\t4\t90\n2\t10\t3\t80\n"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "u.data"
    path.write_text(RAW)
    return path


def run(*arguments: str) -> int:
    return main(["prepare", *arguments])


def prepared(raw: Path, output: Path) -> Path:
    return prepare("mine", source=raw, format="movielens-tab", output=output).path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("broken", ["writing", "reading", "renaming", "hashing"])
def test_an_exception_in_mid_way_leaves_the_old_file_and_nothing_else(
    broken: str, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepared(raw, tmp_path / "out")
    card = path.with_name("SOURCE.json")
    before, described = path.read_bytes(), card.read_bytes()
    raw.write_text(RAW + "3\t30\t1\t70\n")

    def fail(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if broken == "writing":
            patch.setattr(writer, "ROWS", 2)
            counted = iter([None, fail])
            original = writer.pacsv.write_csv
            patch.setattr(writer.pacsv, "write_csv", lambda *a: (next(counted) or original)(*a))
        elif broken == "reading":
            patch.setattr(Tokens, "joined", fail)
        elif broken == "hashing":
            patch.setattr(SourceFile, "sha256", fail)
        else:
            patch.setattr(os, "replace", fail)
        with pytest.raises(KeyboardInterrupt):
            prepared(raw, tmp_path / "out")
    assert path.read_bytes() == before
    assert card.read_bytes() == described
    assert files(path.parent) == {"mine.inter", "SOURCE.json"}
    prepared(raw, tmp_path / "out")
    assert path.read_text().endswith("3\t30\t1\t70\n")


def test_interrupted_while_the_source_is_hashed_nothing_is_written(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: SourceFile) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SourceFile, "sha256", fail)
        with pytest.raises(KeyboardInterrupt):
            prepared(raw, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    path = prepared(raw, tmp_path / "out")
    card = json.loads(path.with_name("SOURCE.json").read_text())
    assert card["source"]["sha256"] == hashlib.sha256(raw.read_bytes()).hexdigest()
    assert card["file"] == {"name": "mine.inter", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_killed_run_leaves_no_file_under_the_final_name_and_its_part_is_removed_later(
    raw: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from recbole_hyper.files import replaced\n"
        "with replaced(Path(sys.argv[1])) as part:\n"
        "    part.write_bytes(b'half'); print('ready', flush=True); time.sleep(60)\n"
    )
    path = tmp_path / "out" / "mine" / "mine.inter"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (left,) = files(path.parent)
    assert left.startswith(".mine.inter.")
    assert left.endswith(f".{process.pid}.part")
    # a part of a run that is still going on is left alone
    with replaced(path) as part:
        part.write_bytes(b"other")
    assert left in files(path.parent)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    path.unlink()
    prepared(raw, tmp_path / "out")
    assert files(path.parent) == {"mine.inter", "SOURCE.json"}


def test_a_file_that_prepare_has_not_written_is_not_replaced_unasked(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine" / "mine.inter"
    path.parent.mkdir()
    path.write_text("my own work")
    with pytest.raises(DataError, match="--overwrite"):
        prepared(raw, tmp_path)
    assert path.read_text() == "my own work"
    assert run("mine", f"--source={raw}", "--format=movielens-tab", f"--output={tmp_path}", "--overwrite") == 0
    assert path.read_text().startswith("user_id:token")


def test_an_output_that_cannot_be_written_is_told_before_reading(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="no folder that can be written to"):
        prepare("mine", source=tmp_path / "not there", format="csv", output=tmp_path / "file")


def one(user: str, item: str, time: float, rating: float | None = None) -> Interactions:
    ratings = None if rating is None else np.asarray([rating], np.float32)
    code = np.zeros(1, np.int32)
    return Interactions(code, code, np.asarray([time]), ratings, pa.array([user]), pa.array([item]))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (one("1", "2", 978_300_760.0), "1\t2\t978300760"),
        (one("1", "2", 978_300_760.25, 4.6), "1\t2\t4.6\t978300760.25"),
        (one("1", "2", 978_300_760.25, np.nan), "1\t2\t\t978300760.25"),
        (one("a\tb", 'say "x"', -5.0), "a%09b\tsay %22x%22\t-5"),
        (one("NaN", "Zoë %", 1.5e18), "%4EaN\tZoë %\t1.5e+18"),
    ],
)
def test_values_as_text(data: Interactions, line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.inter"
    data.user_tokens, _ = escaped(data.user_tokens, NO_IDS)
    data.item_tokens, _ = escaped(data.item_tokens, NO_IDS)
    write_interactions(data, path)
    assert path.read_text().splitlines()[1] == line


@given(
    st.lists(st.one_of(st.text(), st.sampled_from(["NA", "%4EA", "%22", '"', "a\tb%0A", "[PAD]", "%254"])), unique=True)
)
def test_ids_that_were_escaped_come_back_and_stay_different(tokens: list[str]) -> None:
    tokens = [token for token in tokens if token and "\0" not in token]
    written, count = escaped(pa.array(tokens, pa.string()), NO_IDS)
    assert len(set(written.to_pylist())) == len(tokens)
    assert not any(set(token) & set('"\t\r\n') or token in NO_IDS for token in written.to_pylist())
    assert count == sum(bool(set(token) & set('"\t\r\n')) or token in NO_IDS for token in tokens)
    assert (unescaped(written) if count else written).to_pylist() == tokens


def test_large_files_are_written_in_pieces_that_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS", 7)
    codes = np.arange(50, dtype=np.int32)
    tokens = pa.array([f"x{n}" for n in range(50)])
    write_interactions(Interactions(codes, codes, codes.astype(float), None, tokens, tokens), tmp_path / "x.inter")
    lines = (tmp_path / "x.inter").read_text().splitlines()[1:]
    assert lines == [f"x{n}\tx{n}\t{n}" for n in range(50)]


def test_command_options_reach_the_recipe_and_the_card(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--format=movielens-tab", f"--output={tmp_path}", "--since=85", "--threshold=4", "--duplicates=last"]
    assert run("mine", f"--source={raw}", *options, "--k_core=1") == 0
    output = capsys.readouterr().out
    assert "2 interactions: rating >= 4" in output
    card = json.loads((tmp_path / "mine" / "SOURCE.json").read_text())
    assert card["cleaning"] == {
        "returns": None,
        "since": "85",
        "until": None,
        "threshold": 4.0,
        "session_gap": None,
        "duplicates": "last",
        "filter": "k_core",
        "min_user": 1,
        "min_item": 1,
        "count": "interactions",
        "duplicates_after_filter": False,
    }
    assert card["statistics"]["interactions"] == 2
    assert card["source"]["file"] == "u.data"


def test_a_published_5_core_file_is_not_filtered_again_and_repeats_are_dropped_after(tmp_path: Path) -> None:
    review = {"overall": 5.0, "unixReviewTime": 1}
    rows = [{"reviewerID": "A", "asin": f"B{n % 4}", **review} for n in range(5)]
    (tmp_path / "Office_Products_5.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = prepare("office", source=tmp_path, output=tmp_path / "out")
    assert result.steps == (("read", 5), ("first of repeated pairs", 4))
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "Office_Products.json").write_text((tmp_path / "Office_Products_5.json").read_text())
    with pytest.raises(DataError, match="removes all 5 interactions"):
        prepare("office", source=whole, output=tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user=1", "'user' is not understood"),
        ("user_id", "'user_id' is not understood"),
        ("user_id=", "not understood"),
    ],
)
def test_a_wrong_columns_option(
    text: str, message: str, raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("mine", f"--source={raw}", "--format=csv", f"--columns={text}", f"--output={tmp_path}") == 1
    assert message in capsys.readouterr().err


def test_the_list_names_every_data_set_and_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    output = capsys.readouterr().out
    assert all(name in output for name in public.entries())
    assert "beeradvocate-txt" in output


def test_interruption_is_reported_without_a_traceback(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "write_interactions", interrupt)
    started = time.monotonic()
    assert run("mine", f"--source={raw}", "--format=movielens-tab", f"--output={tmp_path}") == 130
    assert "run it again" in capsys.readouterr().err
    assert time.monotonic() - started < 30


def test_parts_of_another_machine_on_a_shared_disk_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another machine may be at work under a number that no process has here."""
    path = tmp_path / "file"
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "elsewhere")
        patch.setattr("os.getpid", lambda: 2**22 + 7)
        with replaced(path) as theirs:
            theirs.write_text("half")
            patch.undo()
            with replaced(path) as ours:
                ours.write_text("ours")
            assert theirs.is_file()
    assert path.read_text() == "half"
