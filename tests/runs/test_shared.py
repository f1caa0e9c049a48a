"""The data that processes share: a model gets what the atomic files have, and trials get no test case."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data import cache
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs import shared
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.types import Cases
from tests.conftest import SMALL
from tests.sweep.conftest import random_sequences, write_data

SPLITS = [
    {"split": {"LS": "valid_and_test"}},
    {"split": {"RS": [0.6, 0.2, 0.2]}},
    {"split": {"LS": "valid_and_test"}, "mode": "uni9"},
]


@pytest.fixture(params=SPLITS, ids=["leave-one-out", "ratio", "candidates"])
def config(request: Any, keys: dict) -> Config:
    return Config("SASRecCE", "tiny", config_dict={**keys, "eval_args": request.param})


def test_shared_data_equal_the_files(config: Config, tmp_path: Path) -> None:
    first, _ = shared.shared_data(config, tmp_path / "shared")
    mapped, split = shared.shared_data(config, tmp_path / "shared")
    read = SequenceDataset(config)
    expected = make_split(read.store, config)
    for dataset in (first, mapped):
        assert (dataset.user_num, dataset.item_num) == (read.user_num, read.item_num)
        assert dataset.store.fingerprint() == read.store.fingerprint()
    assert isinstance(split.store.items, np.memmap)
    np.testing.assert_array_equal(split.train_lengths, expected.train_lengths)
    for name in ("rows", "ends", "starts", "targets", "times"):
        np.testing.assert_array_equal(getattr(split.valid, name), getattr(expected.valid, name))
    if expected.valid.candidates is not None:
        np.testing.assert_array_equal(split.valid.candidates, expected.valid.candidates)
    ours, theirs = (d.restrict(s.store, s.train_lengths) for d, s in ((mapped, split), (read, expected)))
    assert (ours.inter_matrix("csr") != theirs.inter_matrix("csr")).nnz == 0
    for field in ("user_id", "item_id", "timestamp"):
        np.testing.assert_array_equal(ours.inter_feat[field].numpy(), theirs.inter_feat[field].numpy())


@pytest.mark.parametrize("test", [False, True])
@pytest.mark.parametrize("refit", [False, True])
def test_candidates_of_validation_are_those_of_the_split(keys: dict, tmp_path: Path, refit: bool, test: bool) -> None:
    # items that appear after validation began are candidates of the test alone
    sequences = [[*row, 25 + row[0] % 5] for row in random_sequences()]
    write_data(tmp_path / "late", sequences)
    eval_args = {"split": {"GT": {"valid": 0.5, "test": 0.9}}}
    more = {"data_path": str(tmp_path / "late"), "eval_args": eval_args, "refit": refit}
    config = Config("SASRecCE", "tiny", config_dict={**keys, **more})
    expected = make_split(SequenceDataset(config).store, config)
    if refit:
        assert expected.candidates("valid").sum() < expected.candidates("test").sum()
    shared.share(SequenceDataset(config), expected, tmp_path / "whole")
    for _ in range(2):
        _, split = (
            shared.mapped(config, tmp_path / "whole", test=True)
            if test
            else shared.shared_data(config, tmp_path / "shared")
        )
        for part in ("valid", "test"):
            np.testing.assert_array_equal(split.candidates(part), expected.candidates(part))


def test_no_test_case_is_saved(config: Config, tmp_path: Path) -> None:
    for _ in range(2):
        _, split = shared.shared_data(config, tmp_path / "shared")
        assert len(split.test) == 0
        assert split.refit_lengths is None
        assert len(split.valid) > 0


def test_files_are_read_once(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.shared_data(config, tmp_path / "shared")

    def fail(*arguments: Any) -> None:
        raise AssertionError("the atomic files are read again")

    monkeypatch.setattr("recbole_hyper.data.source.Source.check_header", fail)
    shared.shared_data(config, tmp_path / "shared")


def test_key_follows_what_decides_the_data_only(keys: dict) -> None:
    def key(**more: Any) -> str:
        return shared.data_key(Config("SASRecCE", "tiny", config_dict={**keys, **more}))

    assert key() == key(learning_rate=0.1) == key(seed=5) == key(MAX_ITEM_LIST_LENGTH=7)
    assert key() != key(refit=True)
    assert key() != key(user_inter_num_interval="[7,inf)")
    assert key() != key(eval_args={"split": {"RS": [0.6, 0.2, 0.2]}})
    sampled = {"mode": "uni9"}
    assert key(eval_args=sampled) == key(eval_args=sampled, seed=5)
    assert key(eval_args=sampled) != key(eval_args=sampled, candidate_seed=5)


def test_every_field_of_a_split_survives(config: Config, tmp_path: Path) -> None:
    """A new field of Split has to be saved as well, or a trial would run on another split than a run."""
    store = SequenceDataset(config).store
    every = {
        "points": {"valid": 3.5, "test": 7.0}, "refit_lengths": store.lengths, "counts": {"kept": 3},
        "catalogue": np.arange(store.n_items) > 1, "valid_catalogue": np.arange(store.n_items) > 2,
    }  # fmt: skip
    split = dataclasses.replace(make_split(store, config), **every)
    shared.share(SequenceDataset(config), split, tmp_path / "saved")
    _, loaded = shared.load_split(tmp_path / "saved")
    for entry in dataclasses.fields(split):
        before, after = getattr(split, entry.name), getattr(loaded, entry.name)
        if isinstance(before, Cases):
            for name in ("rows", "ends", "starts"):
                np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
        elif isinstance(before, SequenceStore):
            assert before.fingerprint() == after.fingerprint()
        else:
            assert len(before) > 0, f"{entry.name} needs a value in this test"
            np.testing.assert_array_equal(before, after)


def test_workers_map_the_files_of_the_cache(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST", 0)
    config = Config("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data)})
    data, split = read_data(config)
    shared.share(data, split, tmp_path / "shared")
    (kept,) = (tmp_path / "cache").rglob("items.npy")
    assert (tmp_path / "shared" / "sequences" / "items.npy").samefile(kept)
    monkeypatch.setattr("recbole_hyper.runs.dataset.read_store", lambda source: pytest.fail("the files were read"))
    shutil.rmtree(kept.parent)  # what is linked outlives the cache
    again, its_split = shared.mapped(config, tmp_path / "shared", test=True)
    assert isinstance(again.store.items, np.memmap)
    assert again.store.items.tolist() == data.store.items.tolist()
    assert its_split.test.targets.tolist() == split.test.targets.tolist()
