"""Folders of parquet parts, and what must not leave anything behind: damage, change, a full disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recbole_hyper.data import interactions as writer
from recbole_hyper.data.archives import SourceFile
from recbole_hyper.data.formats import Layout
from recbole_hyper.data.prepare import pipeline
from recbole_hyper.data.prepare.pipeline import Prepared, prepare
from recbole_hyper.errors import DataError, NoSpaceError


def part(path: Path, user: Any, item: Any, time: Any, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"user": user, "item": item, "time": time} | more), path)


def lines(result: Prepared) -> list[str]:
    return result.path.read_text().splitlines()[1:]


def card(result: Prepared) -> dict[str, Any]:
    return json.loads(result.path.with_name("SOURCE.json").read_text())


def test_parts_of_a_folder_are_one_table_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    part(folder / "part-1.parquet", ["b", "a"], ["x", "y"], [5, 5])
    part(folder / "part-0.parquet", ["c", "a"], ["x", "z"], [1, 5])
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-0.parquet.crc").write_text("")
    result = prepare("mine", source=folder, output=tmp_path / "out")
    # users by first appearance, equal times as they came
    assert lines(result) == ["c\tx\t1", "a\tz\t5", "a\ty\t5", "b\tx\t5"]
    sums = [(hashlib.sha256((folder / f"part-{n}.parquet").read_bytes()).hexdigest(), n) for n in (0, 1)]
    listing = "".join(f"{digest}  part-{n}.parquet\n" for digest, n in sums)
    assert card(result)["source"] == {
        "file": "orders",
        "member": None,
        "sha256": hashlib.sha256(listing.encode()).hexdigest(),
        "format": "parquet",
    }


def test_folders_called_key_value_give_their_value_to_all_rows(tmp_path: Path) -> None:
    part(tmp_path / "in" / "date=2019-01-02" / "shop=a" / "part-0.parquet", ["b"], ["x"], [None])
    part(tmp_path / "in" / "date=2019-01-01" / "shop=b" / "part-0.parquet", ["b"], ["y"], [None])
    layout = Layout(columns={"timestamp": "date", "item_id": "shop"})
    result = prepare("mine", source=tmp_path / "in", layout=layout, output=tmp_path)
    assert lines(result) == ["b\tb\t1546300800", "b\ta\t1546387200"]


def test_ids_that_are_numbers_in_one_part_and_text_in_another_become_text(tmp_path: Path) -> None:
    part(tmp_path / "in" / "0.parquet", [7, 8], [1.0, 2.5], [1, 2])
    part(tmp_path / "in" / "1.parquet", ["7", "x"], ["1", "2"], [3.5, 4.0])
    part(tmp_path / "in" / "2.parquet", pa.array(["8"]).dictionary_encode(), pa.array([2], pa.int8()), [5])
    result = prepare("mine", source=tmp_path / "in", format="parquet", output=tmp_path)
    assert lines(result) == ["7\t1\t1", "7\t1\t3.5", "8\t2.5\t2", "8\t2\t5", "x\t2\t4"]


def test_a_part_without_a_column_is_named(tmp_path: Path) -> None:
    part(tmp_path / "in" / "0.parquet", ["a"], ["x"], [1])
    pq.write_table(pa.table({"user": ["a"], "thing": ["x"], "time": [1]}), tmp_path / "in" / "1.parquet")
    with pytest.raises(DataError, match=r"1\.parquet has no column item, which other parts have"):
        prepare("mine", source=tmp_path / "in", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_that_cannot_be_read_are_named_with_their_part(tmp_path: Path) -> None:
    part(tmp_path / "in" / "0.parquet", ["a", None, "b"], ["x", "y", "z"], [1, 2, 3])
    part(tmp_path / "in" / "1.parquet", ["a", "b"], ["x", " "], ["5", "6"])
    result = prepare("mine", source=tmp_path / "in", output=tmp_path, max_malformed=0.5)
    assert lines(result) == ["a\tx\t1", "a\tx\t5", "b\tz\t3"]
    assert [example[:2] for example in result.malformed.examples] == [
        (2, "0.parquet: no user"),
        (2, "1.parquet: no item"),
    ]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", ["cut off", "empty", "other bytes"])
def test_a_damaged_part_is_named_and_nothing_is_written(which: int, damage: str, tmp_path: Path) -> None:
    for number in (0, 1):
        texts = [f"{n}" for n in range(5000)]
        part(tmp_path / "in" / f"part-{number}.parquet", texts, texts, list(range(5000)))
    path = tmp_path / "in" / f"part-{which}.parquet"
    data = path.read_bytes()
    other = data[:100] + b"\xff" * 3000 + data[3100:]
    path.write_bytes({"cut off": data[: len(data) // 2], "empty": b"", "other bytes": other}[damage])
    with pytest.raises(DataError, match=rf"part-{which}\.parquet is cut off, damaged"):
        prepare("mine", source=tmp_path / "in", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("when", ["reading", "hashing"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_source_that_changes_while_it_is_read_writes_nothing(
    kind: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "csv":
        source = changing = tmp_path / "my.csv"
        source.write_text("user,item,time\na,b,1\n")
    else:
        source, changing = tmp_path / "in", tmp_path / "in" / "1.parquet"
        for number in (0, 1):
            part(source / f"{number}.parquet", ["a"], ["x"], [number])

    def append(*arguments: Any, **options: Any) -> Any:
        with changing.open("ab") as stream:
            stream.write(b"c,d,2\n")
        return original(*arguments, **options)

    place, name = (pipeline, "apply") if when == "reading" else (SourceFile, "sha256")
    original = getattr(place, name)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, append)
        with pytest.raises(DataError, match="changed while it was read; nothing was written"):
            prepare("mine", source=source, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Full:
    """A file on a disk that takes some bytes and no more."""

    def __init__(self, stream: Any, room: int) -> None:
        self._stream, self._room = stream, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stream.close()

    def write(self, data: Any) -> int:
        self._room -= len(data) if isinstance(data, str) else len(memoryview(data))
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._stream.write(data)


@pytest.mark.parametrize(("where", "room"), [("mine.inter", 60), ("mine.inter", 0), ("SOURCE.json", 10)])
def test_a_full_disk_leaves_the_old_files_and_nothing_else(
    where: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "my.csv"
    raw.write_text("user,item,time\na,b,1\n")
    path = prepare("mine", source=raw, output=tmp_path / "out").path
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    raw.write_text("user,item,time\n" + "a,b,1\n" * 100)
    original = Path.open

    def opened(file: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        stream = original(file, mode, *arguments, **options)
        return Full(stream, room) if "w" in mode and f".{where}." in file.name else stream

    monkeypatch.setattr(writer, "ROWS", 3)
    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(NoSpaceError, match="no space left on the disk"):
        prepare("mine", source=raw, output=tmp_path / "out")
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_file_that_cannot_be_opened_keeps_the_systems_own_error(tmp_path: Path) -> None:
    raw = tmp_path / "my.csv"
    raw.write_text("user,item,time\na,b,1\n")
    raw.chmod(0)
    if os.access(raw, os.R_OK):
        pytest.skip("the tests run as a user whom no permission stops")
    with pytest.raises(PermissionError):
        prepare("mine", source=raw, output=tmp_path / "out")
