"""The cache of stores: hits, no mix-ups, no incomplete stores, and no failure if it cannot be written."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data import cache
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.processes import cache_folder
from recbole_hyper.runs.dataset import SequenceDataset
from tests.conftest import SMALL, cycle_rows, write_inter


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the data set "d", in a process whose cache is empty and takes small files too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST", 0)
    return write_inter(tmp_path, "d", cycle_rows())


def store(data: Path, **keys: Any) -> SequenceStore:
    return SequenceDataset(Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(data), **keys})).store


def kept() -> list[Path]:
    return sorted((cache_folder() / "stores").glob("*"))


def mapped(found: SequenceStore) -> bool:
    return isinstance(found.items, np.memmap)


def test_a_second_run_maps_what_the_first_one_read(data, monkeypatch, caplog) -> None:
    plain = store(data, use_cache=False)
    first = store(data)
    monkeypatch.setattr("recbole_hyper.runs.dataset.read_store", lambda source: pytest.fail("the files were read"))
    with caplog.at_level(logging.INFO, logger="recbole_hyper"):
        again = store(data)
    assert mapped(first)
    assert mapped(again)
    assert not mapped(plain)
    assert first.fingerprint() == again.fingerprint() == plain.fingerprint()
    assert f"data from the cache {kept()[0]}" in caplog.text


def test_other_filters_and_other_contents_are_other_stores(data: Path) -> None:
    whole = store(data)
    fewer = store(data, val_interval={"timestamp": "[0,1004]"})
    path = data / "d" / "d.inter"
    path.write_text(path.read_text() + "new\ti0\t9\n")
    more = store(data)
    assert len(fewer.items) < len(whole.items) == len(more.items) - 1
    assert len(kept()) == 3


def test_a_file_of_the_same_size_and_time_is_read_again(data: Path) -> None:
    path = data / "d" / "d.inter"
    store(data), store(data)
    assert len(kept()) == 1
    state, text = path.stat(), path.read_text()
    path.write_text(text.replace("u0", "v0"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert "v0" in store(data).user_tokens


@pytest.mark.parametrize("name", ["items.npy", "meta.json", "user_tokens.npy", "times.npy"])
def test_a_truncated_store_is_rebuilt(name: str, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = store(data).fingerprint()
    file = kept()[0] / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert store(data).fingerprint() == good
    assert "cannot be used" in caplog.text
    assert SequenceStore.load(kept()[0]).fingerprint() == good


def test_a_store_that_another_process_saved_meanwhile_is_taken(data: Path) -> None:
    plain, first = store(data, use_cache=False), store(data)
    assert mapped(cache._saved(plain, kept()[0]))
    assert first.fingerprint() == store(data).fingerprint()
    assert len([*kept()[0].parent.iterdir()]) == 1


def test_a_full_disk_is_no_fault_of_the_run(data, monkeypatch, caplog) -> None:
    def full(*arguments: Any) -> None:
        raise NoSpaceError(28, "no space left on the disk")

    monkeypatch.setattr("recbole_hyper.data.sequences.write_array", full)
    assert not mapped(store(data))
    assert "no space to save the data" in caplog.text
    assert kept() == []


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_run(data, tmp_path, caplog) -> None:
    (tmp_path / "cache").write_text("a file")
    assert len(store(data).items) == 300
    assert "cannot save the data" in caplog.text


def test_the_stores_unused_for_the_longest_time_go_first(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = []
    for number, last in enumerate((1005, 1006, 1007)):
        stores.append(store(data, val_interval={"timestamp": f"[0,{last}]"}))
        newest = max(kept(), key=lambda folder: json.loads((folder / "meta.json").read_text())["nnz"])
        os.utime(newest, (number, number))
    size = sum(file.stat().st_size for file in newest.iterdir())
    monkeypatch.setattr(cache, "LARGEST", 2 * size + store(data, use_cache=False).nbytes)
    store(data)
    left = sorted(json.loads((folder / "meta.json").read_text())["nnz"] for folder in kept())
    assert left == sorted([len(stores[1].items), len(stores[2].items), 300])
