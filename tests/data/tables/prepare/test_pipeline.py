"""``prepare``: complete files or the old ones, whatever interrupts; its options, its output and its errors."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.data.tables import interactions as writer
from recbole_hyper.data.tables.archives import SourceFile
from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.prepare import public
from recbole_hyper.data.tables.prepare.cleaning import Cleaning
from recbole_hyper.data.tables.prepare.pipeline import choose, prepare
from recbole_hyper.errors import DataError
from recbole_hyper.files import replaced
from tests.data.tables.raw import ROWS, T, expected, lines_of, read_back
from tests.raising import refused

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
def test_an_exception_leaves_the_old_file_and_nothing_else(broken, raw, tmp_path, monkeypatch) -> None:
    path = prepared(raw, tmp_path / "out")
    card = path.with_name("SOURCE.json")
    before, described = path.read_bytes(), card.read_bytes()
    raw.write_text(RAW + "3\t30\t1\t70\n")

    def fail(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if broken == "writing":
            patch.setattr(writer.os, "fsync", fail)
        elif broken == "reading":
            patch.setattr("recbole_hyper.data.tables.prepare.pipeline.joined", fail)
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
    described = json.loads(card.read_text())
    assert described["source"]["sha256"] == hashlib.sha256(raw.read_bytes()).hexdigest()
    assert described["file"] == {"name": "mine.inter", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_killed_run_leaves_no_file_under_the_final_name_and_its_part_is_removed_later(raw, tmp_path) -> None:
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


def test_a_file_of_others_is_replaced_only_with_overwrite(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine" / "mine.inter"
    path.parent.mkdir()
    path.write_text("my own work")
    with refused(DataError, "--overwrite"):
        prepared(raw, tmp_path)
    assert path.read_text() == "my own work"
    assert run("mine", f"--source={raw}", "--format=movielens-tab", f"--output={tmp_path}", "--overwrite") == 0
    assert path.read_text().startswith("user_id:token")


def test_an_unwritable_output_is_an_error_before_reading(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(DataError, "folder", "write"):
        prepare("mine", source=tmp_path / "not there", format="csv", output=tmp_path / "file")
    with refused(DataError, r"--output='a\x00b'"):
        prepare("mine", source=raw, output="a\0b")


def test_command_options_reach_the_cleaning_and_the_card(raw, tmp_path, capsys) -> None:
    options = ["--format=movielens-tab", f"--output={tmp_path}", "--since=85", "--threshold=4", "--duplicates=last"]
    assert run("mine", f"--source={raw}", *options, "--k_core=1") == 0
    output = capsys.readouterr().out
    assert "2 interactions: rating >= 4" in output
    card = json.loads((tmp_path / "mine" / "SOURCE.json").read_text())
    changed = {"since": "85", "threshold": 4.0, "duplicates": "last", "filter": "k_core", "min_user": 1, "min_item": 1}
    assert card["cleaning"] == dataclasses.asdict(Cleaning()) | changed
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
    with refused(DataError, "removes", "interactions"):
        prepare("office", source=whole, output=tmp_path / "out")


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


def test_atomic_file_is_checked_and_copied(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    body = "".join(f"{t}\t{i}\t{u}\n" for u, i, _, t in ROWS)
    (folder / "amazon-beauty.inter").write_text("timestamp:float\titem_id:token\tuser_id:token\r\n" + body)
    result = prepare("amazon-beauty", source=folder, output=tmp_path / "dataset")
    assert result.path == tmp_path / "dataset" / "amazon-beauty" / "amazon-beauty.inter"
    assert read_back(result) == expected(ROWS, False)


@pytest.mark.parametrize(
    ("dataset", "file", "format", "done"),
    [
        ("amazon-beauty", "reviews_Beauty_5.json.gz", "amazon-json", "filter"),
        ("amazon-toys", "ratings_Toys_and_Games.csv", "amazon-ratings-2014", "nothing"),
        ("kindle", "Kindle_Store.csv", "amazon-ratings-2018", "nothing"),
        ("yelp", "yelp_academic_dataset_review.json", "yelp", "nothing"),
        ("gowalla", "loc-gowalla_totalCheckins.txt.gz", "gowalla", "nothing"),
        ("beeradvocate", "beer_reviews.csv", "beeradvocate-csv", "nothing"),
        ("amazon-sports-sequences", "Sports_and_Outdoors.txt", "sequences", "all"),
        ("ml-100k", "u.data", "movielens-tab", "nothing"),
        ("office", "office.inter", "atomic", "all"),
    ],
)
def test_published_file_names_are_known(dataset: str, file: str, format: str, done: str, tmp_path: Path) -> None:
    for name in ("meta.json.gz", file):
        (tmp_path / name).write_bytes(b"x")
    entry = public.entries()[dataset]
    assert entry is not None
    found, candidate = choose(entry, tmp_path, None)
    assert (found.name, candidate.format, candidate.done) == (file, format, done)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "amazon-beuty"}, "not a public data set.*Did you mean amazon-beauty"),
        ({"name": "yelp"}, "cannot be fetched automatically.*https://www.yelp.com/dataset"),
        ({"name": "../x", "source": "."}, "becomes a folder's name"),
        ({"name": "yelp", "source": "nowhere"}, "does not exist"),
        ({"name": "yelp", "source": "raw.csv"}, "has no known file of yelp, which are.*--format"),
        ({"name": "mine", "source": "raw.csv", "format": "cvs"}, "'cvs' is unknown; known: .*csv"),
        ({"name": "mine", "source": "raw.csv", "format": "jsonl", "layout": Layout(separator=";")}, "--separator"),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "layout": Layout(header=False)}, "with your numbers"),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "changes": {"duplicates": "sum"}}, "keep, first, last"),
        ({"name": "mine", "source": "raw.csv", "format": "csv", "max_malformed": 5}, "not a share"),
        ({"name": "mine", "source": "raw.parquet", "format": "parquet"}, "raw.parquet is cut off, damaged"),
    ],
)
def test_wrong_arguments_say_what_is_allowed(arguments, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.csv").write_text("user_id,item_id\n1,2\n")
    (tmp_path / "raw.parquet").write_text("no")
    with pytest.raises(DataError, match=message):
        prepare(**arguments, output=tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_rows_are_chosen_by_a_condition(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    lines = [f"a,x,view,1.5,{T}", f"a,,search,,{T}", f"b,y,buy,3,{T}", f"b,z,view,,{T}"]
    raw.write_text("user,item,event,price,time\n" + "\n".join(lines) + "\n")
    # a row that is not chosen may lack what it likes
    assert lines_of(raw, tmp_path, where="event = 'view' and price > 0") == [f"a\tx\t{T}"]
    assert len(lines_of(raw, tmp_path, where="event in ('view', 'buy')")) == 3
    with refused(DataError, "column", "columns"):
        lines_of(raw, tmp_path, where="prize > 1")
    with refused(DataError, "INTEGER"):
        lines_of(raw, tmp_path, where="event > 1")
    frame = pd.read_csv(raw)
    frame.to_json(tmp_path / "raw.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "raw.parquet")
    for name in ("raw.jsonl", "raw.parquet"):
        assert lines_of(tmp_path / name, tmp_path, where="event = 'view' and price > 0") == [f"a\tx\t{T}"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("raw.csv", "user,item\na,x\nb,y\na,z\na,x\n"),
        ("raw.txt", "a x\nb y\na z x\n"),
        ("raw.csv", "user,item,when\na,x,9\nb,y,8\na,z,7\na,x,6\n"),
    ],
)
def test_without_times_the_order_is_that_of_the_file(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    found = [line.split("\t")[:2] for line in lines_of(tmp_path / name, tmp_path, order="file")]
    assert found == [["a", "x"], ["a", "z"], ["a", "x"], ["b", "y"]]


def test_columns_of_candidates_and_histories_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    raw = tmp_path / "dev.csv"
    raw.write_text(f"user_id\titem_id\ttime\tneg_items\na\tx\t{T}\t[1, 2]\n")
    prepare("mine", source=raw, output=tmp_path / "out", say=said.append)
    assert any(line.startswith("the column neg_items is not read: it has given candidates") for line in said)
    (tmp_path / "x.inter").write_text("user_id:token\titem_id_list:token_seq\titem_id:token\na\tx y\tz\nb\tx\ty\n")
    prepare("mine", source=tmp_path / "x.inter", output=tmp_path / "out2", order="file", say=said.append)
    assert any(line.startswith("the column item_id_list is not read: it has the items before") for line in said)


def test_times_of_a_known_format_in_another_unit(tmp_path: Path) -> None:
    """The name of a format says seconds, its file may have milliseconds: --since kept all rows."""
    source, said = tmp_path / "x.inter", list[str]()
    rows = [f"a\t{item}\t{1577836800000 + 600_000 * n}\n" for n, item in enumerate("xyz")] + ["b\tx\t1483228800000\n"]
    source.write_text("user_id:token\titem_id:token\ttimestamp:float\n" + "".join(rows))
    options = {"since": "2019-01-01", "session_gap": "30min"}
    result = prepare("d", source=source, output=tmp_path / "out", changes=options, say=said.append)
    assert "the times are read as unix_ms" in said
    assert result.path.read_text().splitlines()[1:] == [
        f"a#1\t{i}\t{1577836800 + 600 * n}" for n, i in enumerate("xyz")
    ]
    source.write_text(source.read_text().replace("0000", ""))
    with refused(DataError, "steps"):
        prepare("e", source=source, output=tmp_path / "out", changes={"since": "2019-01-01"})


def test_what_is_read_or_not_its_own_is_not_replaced(raw: Path, tmp_path: Path) -> None:
    said: list[str] = []
    path = prepared(raw, tmp_path)
    with refused(DataError, "mine.inter is read"):
        prepare("mine", source=path, output=tmp_path)
    own = path.with_suffix(".item")
    own.write_text("item_id:token\tprice:float\n10\t3\n")
    (tmp_path / "items.csv").write_text("item_id,price\n10,4\n")
    with refused(DataError, "mine.item exists"):
        prepare("mine", source=raw, format="movielens-tab", output=tmp_path, items=tmp_path / "items.csv")
    prepare("mine", source=raw, format="movielens-tab", output=tmp_path, say=said.append)
    assert said[-1] == f"{own} is from before; --items=FILE renews it"
