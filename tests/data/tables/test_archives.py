"""Sources: every container is read like the plain file; damage, change and folders of parts."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper.data.tables.formats import Layout
from recbole_hyper.data.tables.prepare.pipeline import Prepared, prepare
from recbole_hyper.errors import DataError
from tests.data.tables.raw import CASES, ROWS, T, expected, lines, lines_of, read_back, write_part
from tests.raising import refused


def _zip(path: Path, member: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("readme.txt", "nothing")
        target.writestr(member, data)


def _tar(path: Path, member: str, data: bytes) -> None:
    with tarfile.open(path, f"w:{path.suffix[1:]}" if path.suffix != ".tar" else "w") as target:
        for name, content in (("./readme.txt", b"nothing"), (member, data)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst", "zip", "zip of gz", "tar", "tar.gz", "folder"])
def test_every_container_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    name, data = "loc-gowalla_totalCheckins.txt", CASES["gowalla"][0](ROWS).encode()
    source = tmp_path / "in"
    source.mkdir()
    (source / "notes.txt").write_text("other")
    if kind == "folder":
        (source / name).write_bytes(data)
    elif kind == "gz":
        (source / f"{name}.gz").write_bytes(gzip.compress(data))
    elif kind == "zst":
        (source / f"{name}.zst").write_bytes(pa.compress(data, "zstd", asbytes=True))
    elif kind in ("bz2", "xz"):
        (source / f"{name}.{kind}").write_bytes((bz2 if kind == "bz2" else lzma).compress(data))
    elif kind.startswith("tar"):
        _tar(source / f"all.{kind}", f"sub/{name}", data)
    elif kind == "zip of gz":
        _zip(source / "all.zip", f"sub/{name}.gz", gzip.compress(data))
    else:
        _zip(source / "all.zip", f"sub/{name}", data)
    given = source if kind == "folder" else next(p for p in source.iterdir() if p.name != "notes.txt")
    changes = {"filter": "none", "min_user": 0, "min_item": 0}
    result = prepare("gowalla", source=given, output=tmp_path / "out", changes=changes)
    assert read_back(result) == expected(ROWS, False)


def test_a_damaged_download_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(CASES["behance"][0](ROWS * 1000).encode())
    (tmp_path / "Behance_appreciate_1M.gz").write_bytes(whole[: len(whole) // 2])
    with refused(DataError, "cut off, damaged"):
        prepare("behance", source=tmp_path, output=tmp_path / "out")
    (tmp_path / "x.zip").write_bytes(b"PK nothing")
    with refused(DataError, "x.zip"):
        prepare("behance", source=tmp_path / "x.zip", output=tmp_path / "out")


@pytest.mark.parametrize("format", [None, "csv"])
@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_source_without_files(kind: str, format: str | None, tmp_path: Path) -> None:
    source = tmp_path / ("in" if kind == "folder" else "in.zip")
    if kind == "folder":
        (source / "below").mkdir(parents=True)
    else:
        zipfile.ZipFile(source, "w").close()
    with refused(DataError, "--source=", "no files"):
        prepare("mine", source=source, format=format, output=tmp_path / "out")


def card(result: Prepared) -> dict[str, Any]:
    return json.loads(result.path.with_name("SOURCE.json").read_text())


def test_parts_of_a_folder_are_one_table_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    write_part(folder / "part-1.parquet", ["b", "a"], ["x", "y"], [5, 5])
    write_part(folder / "part-0.parquet", ["c", "a"], ["x", "z"], [1, 5])
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-0.parquet.crc", "_committed_123", "_started_123"):
        (folder / name).write_text("crc")
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


@pytest.mark.parametrize("damage", ["cut off", "empty", "other bytes"])
def test_a_damaged_part_is_named_and_nothing_is_written(damage: str, tmp_path: Path) -> None:
    for number in (0, 1):
        texts = [f"{n}" for n in range(5000)]
        write_part(tmp_path / "in" / f"part-{number}.parquet", texts, texts, list(range(5000)))
    path = tmp_path / "in" / "part-1.parquet"
    data = path.read_bytes()
    other = data[:100] + b"\xff" * 3000 + data[3100:]
    path.write_bytes({"cut off": data[: len(data) // 2], "empty": b"", "other bytes": other}[damage])
    with refused(DataError, "part-1.parquet"):
        prepare("mine", source=tmp_path / "in", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_folder_of_parts_is_one_table(ending: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(3):
        frame = pd.DataFrame({"user": [f"u{part}", "u"], "item": ["x", f"i{part}"], "time": [T + part] * 2})
        path = tmp_path / "in" / f"part-{part}.{ending}"
        if ending == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True)
    assert len(lines_of(tmp_path / "in", tmp_path)) == 6
    (tmp_path / "in" / f"part-1.{ending}").write_text("user,item,time\nu,x\n" if ending == "csv" else '{"user": 1}\n')
    with refused(DataError, f"part-1.{ending}"):
        lines_of(tmp_path / "in", tmp_path)


def table(name: str) -> str:
    return f"user,item,time\n{name},x,2020-01-01\n{name},y,2020-01-02\n"


def test_files_that_a_mac_adds_to_a_zip_are_no_data(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "orders.zip", "w") as archive:
        archive.writestr("orders/orders.csv", table("a"))
        archive.writestr("__MACOSX/orders/._orders.csv", b"\0\1\2")
        archive.writestr("orders/.DS_Store", b"\0")
    assert len(lines_of(tmp_path / "orders.zip", tmp_path)) == 2


def test_the_ratings_of_movielens_are_found_beside_other_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ml-latest-small.zip", "w") as archive:
        archive.writestr("ml/ratings.csv", f"userId,movieId,rating,timestamp\n1,2,5,{T}\n")
        archive.writestr("ml/movies.csv", "movieId,title,genres\n2,Heat,Crime\n")
        archive.writestr("ml/README.txt", "text")
    assert lines_of(tmp_path / "ml-latest-small.zip", tmp_path) == [f"1\t2\t5\t{T}"]


def test_the_only_table_beside_other_files_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "orders.zip", "w") as archive:
        archive.writestr("orders.csv", table("a"))
        archive.writestr("LICENCE", "text")
    assert len(lines_of(tmp_path / "orders.zip", tmp_path)) == 2
    with zipfile.ZipFile(tmp_path / "orders.zip", "a") as archive:
        archive.writestr("more.csv", table("b"))
    with refused(DataError, "orders.csv", "LICENCE", "more.csv", "--source=FILE"):
        lines_of(tmp_path / "orders.zip", tmp_path)


@pytest.mark.parametrize("header", [True, False])
def test_empty_parts_and_parts_without_a_header(header: bool, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    for part in ("0", "1"):
        (folder / f"part-{part}.csv").write_text("user,item,time\n" * header + f"a{part},x,{T}\na{part},y,{T}\n")
    (folder / "part-2.csv").write_text("")
    columns = None if header else {"user_id": "1", "item_id": "2", "timestamp": "3"}
    layout = Layout(columns=columns, header=None if header else False)
    assert len(lines_of(folder, tmp_path, layout=layout)) == 4
    (folder / "part-1.csv").write_text("")
    assert len(lines_of(folder, tmp_path, layout=layout)) == 2
