"""Batches: which positions are supervised, that no target is lost, and histories of requests."""

import itertools
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from recbole_hyper.batches.histories import history_items, history_matrix, whole_histories
from recbole_hyper.batches.loader import (
    BatchSettings,
    PrefixLoader,
    WindowLoader,
    case_interaction,
    history_interaction,
    windows,
)
from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.types import Cases, Prefixes
from tests.conftest import SMALL, loading, write_inter


def build(path: Path, model: str = "SASRecCE", **keys: object) -> tuple:
    config = Config(model, "random", config_dict={**SMALL, "data_path": str(path), **keys})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    return config, dataset.restrict(split.store, split.train_lengths), split


def pairs(batches: list) -> Counter:
    """Count the (user, item before, target) triples of window batches."""
    found: Counter = Counter()
    for batch in batches:
        for user, items, targets in zip(batch["user_id"], batch["item_id_list"], batch["target_list"], strict=True):
            for item, target in zip(items.tolist(), targets.tolist(), strict=True):
                if target:
                    found[int(user), item, target] += 1
    return found


def transitions(split: object) -> Counter:
    store, found = split.store, Counter()
    for row, length in enumerate(split.train_lengths):
        items = store.row(row)[:length].tolist()
        for before, target in itertools.pairwise(items):
            found[int(store.users[row]), before, target] += 1
    return found


def test_all_windows_supervise_every_transition_once(random_data: Path) -> None:
    config, dataset, split = build(random_data, train_windows="all")
    loader = WindowLoader(dataset, split.store, split.train_lengths, *loading(config))
    batches = list(loader)
    assert len(batches) == len(loader)
    assert pairs(batches) == transitions(split)
    for batch in batches:
        assert batch["item_id_list"].shape[1] <= 8
        lengths = (batch["target_list"] > 0).sum(1)
        assert (lengths == batch["item_length"]).all()  # right-padded, every position supervised
        assert ((batch["item_id_list"] > 0).sum(1) == lengths).all()


def test_last_window_is_the_end_of_the_history(random_data: Path) -> None:
    config, dataset, split = build(random_data, train_windows="last")
    seen = {}
    for batch in WindowLoader(dataset, split.store, split.train_lengths, *loading(config)):
        for user, targets in zip(batch["user_id"].tolist(), batch["target_list"], strict=True):
            assert user not in seen
            seen[user] = targets[targets > 0].tolist()
    for row, length in enumerate(split.train_lengths):
        expected = split.store.row(row)[1:length][-8:].tolist()
        assert seen.get(int(split.store.users[row]), []) == expected


def test_random_windows_lie_inside_and_differ(random_data: Path) -> None:
    config, dataset, split = build(random_data, train_windows="random")
    loader = WindowLoader(dataset, split.store, split.train_lengths, *loading(config))
    first, second = pairs(list(loader)), pairs(list(loader))
    assert not (first - transitions(split))
    assert first != second


def test_epochs_differ_and_seeds_repeat(random_data: Path) -> None:
    config, dataset, split = build(random_data)
    loader = WindowLoader(dataset, split.store, split.train_lengths, *loading(config))
    first = [batch["user_id"].tolist() for batch in loader]
    second = [batch["user_id"].tolist() for batch in loader]
    again = [
        batch["user_id"].tolist() for batch in WindowLoader(dataset, split.store, split.train_lengths, *loading(config))
    ]
    assert first != second
    assert first == again


def test_batches_are_random_samples_sorted_inside(tmp_path: Path) -> None:
    rows = [(f"u{user}", f"i{step}", step) for user in range(400) for step in range(5 if user < 200 else 45)]
    write_inter(tmp_path, "two", rows)
    config = Config("SASRecCE", "two", config_dict={**SMALL, "MAX_ITEM_LIST_LENGTH": 50, "data_path": str(tmp_path)})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    config["train_batch_size"] = 40
    for batch in WindowLoader(dataset, split.store, split.train_lengths, *loading(config)):
        lengths = batch["item_length"]
        assert (lengths.diff() >= 0).all()
        # half of the windows are short; sorted into batches of one length, there would be 0 or 40
        assert 5 < int((lengths < 10).sum()) < 35


def test_prefix_rows_equal_the_transitions(random_data: Path) -> None:
    config, dataset, split = build(random_data, "SASRec")
    found: Counter = Counter()
    for batch in PrefixLoader(dataset, split.store, split.train_lengths, *loading(config)):
        for user, items, length, target in zip(
            batch["user_id"], batch["item_id_list"], batch["item_length"], batch["item_id"], strict=True
        ):
            assert (items > 0).sum() == length
            found[int(user), int(items[length - 1]), int(target)] += 1
    assert found == transitions(split)


def test_prefix_negatives_are_never_the_target(random_data: Path) -> None:
    config, dataset, split = build(random_data, "SASRec", loss_type="BPR")
    config["train_neg_sample_args"] = {"distribution": "uniform", "sample_num": 3, "dynamic": False}
    drawn = set()
    for batch in PrefixLoader(dataset, split.store, split.train_lengths, *loading(config)):
        assert (batch["neg_item_id"] != batch["item_id"]).all()
        drawn.update(batch["neg_item_id"].tolist())
    assert min(drawn) >= 1
    assert max(drawn) == split.store.n_items - 1


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 17])
def test_windows_of_one_row(length: int) -> None:
    store = SequenceStore([0, length], np.arange(1, length + 1), np.arange(length), [1], [], [])
    parts = windows(store, np.array([length]), 8)
    covered = [
        position for start, end in zip(parts.starts, parts.ends, strict=True) for position in range(start + 1, end + 1)
    ]
    assert sorted(covered) == list(range(1, length))
    assert (parts.ends - parts.starts <= 8).all()


TOKENS = np.array(["[PAD]", "a", "b", "c"])


ITEMS = np.array([1, 2, 3], dtype=np.int32)


STORE = SequenceStore(np.array([0, 3]), ITEMS, np.arange(3.0), np.array([1]), np.array(["[PAD]", "u"]), TOKENS)


def asked(*histories: list[int]) -> Prefixes:
    offsets = np.cumsum([0, *map(len, histories)])
    items = np.array(list(chain(*histories)), dtype=np.int32)
    return whole_histories(STORE, offsets, items, np.zeros(len(histories), dtype=np.int64))


def test_histories_are_unchanged() -> None:
    prefixes = asked([2, 3], [], [1])
    assert prefixes.store.items.tolist() == [2, 3, 1]
    lengths, items = history_items(prefixes)
    assert (lengths.tolist(), items.tolist()) == ([2, 0, 1], [2, 3, 1])
    assert history_matrix(prefixes[1:]).toarray().tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert not hasattr(prefixes, "targets")


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec"])
def test_recbole_gets_the_columns_of_a_case_with_its_target_hidden(model: str) -> None:
    config = Config(model, "ml-100k", [], {"interactions": "given"})
    case = case_interaction(Cases.build(STORE, [0], [2]), 4, BatchSettings.of(config))
    columns = history_interaction(asked([1, 2]), 4, BatchSettings.of(config))
    assert set(columns.columns) == set(case.columns)
    name = config["ITEM_ID_FIELD"]
    assert columns[name].tolist() == [1]
    assert (
        columns[name + config["LIST_SUFFIX"]].tolist() == case[name + config["LIST_SUFFIX"]].tolist() == [[1, 2, 0, 0]]
    )
    assert columns[name].dtype == case[name].dtype


def test_empty_histories() -> None:
    columns = history_interaction(
        asked([], []), 3, BatchSettings.of(Config("SASRec", "ml-100k", [], {"interactions": "given"}))
    )
    assert columns["item_length"].tolist() == [0, 0]
    assert columns["item_id_list"].tolist() == [[0] * 3] * 2
