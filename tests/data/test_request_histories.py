"""Histories of a request are scored as those of a store, and have no target."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.loader import (
    case_interaction,
    history_interaction,
    history_items,
    history_matrix,
    whole_histories,
)
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases, Prefixes

TOKENS = np.array(["[PAD]", "a", "b", "c"])
ITEMS = np.array([1, 2, 3], dtype=np.int32)
STORE = SequenceStore(np.array([0, 3]), ITEMS, np.arange(3.0), np.array([1]), np.array(["[PAD]", "u"]), TOKENS)


def asked(*histories: list[int]) -> Prefixes:
    offsets = np.cumsum([0, *map(len, histories)])
    items = np.array(list(chain(*histories)), dtype=np.int32)
    return whole_histories(STORE, offsets, items, np.zeros(len(histories), dtype=np.int64))


def test_items_are_those_given_and_nothing_is_inserted() -> None:
    prefixes = asked([2, 3], [], [1])
    assert prefixes.store.items.tolist() == [2, 3, 1]
    lengths, items = history_items(prefixes)
    assert (lengths.tolist(), items.tolist()) == ([2, 0, 1], [2, 3, 1])
    assert history_matrix(prefixes[1:]).toarray().tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert not hasattr(prefixes, "targets")


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec"])
def test_recbole_gets_the_columns_of_a_case_with_its_target_hidden(model: str) -> None:
    config = Config(model, "ml-100k", [], {"interactions": "given"})
    case = case_interaction(Cases.build(STORE, [0], [2]), 4, config)
    columns = history_interaction(asked([1, 2]), 4, config)
    assert set(columns.columns) == set(case.columns)
    name = config["ITEM_ID_FIELD"]
    assert columns[name].tolist() == [1]
    assert (
        columns[name + config["LIST_SUFFIX"]].tolist() == case[name + config["LIST_SUFFIX"]].tolist() == [[1, 2, 0, 0]]
    )
    assert columns[name].dtype == case[name].dtype


def test_histories_without_any_item() -> None:
    columns = history_interaction(asked([], []), 3, Config("SASRec", "ml-100k", [], {"interactions": "given"}))
    assert columns["item_length"].tolist() == [0, 0]
    assert columns["item_id_list"].tolist() == [[0] * 3] * 2
