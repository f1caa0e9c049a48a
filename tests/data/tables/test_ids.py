"""Ids: numbering, look-ups, and any text comes back unchanged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.formats import Format
from recbole_hyper.data.tables.ids import Ids, numbered, text_array
from recbole_hyper.data.tables.interactions import joined
from recbole_hyper.data.tables.malformed import Malformed
from recbole_hyper.data.tables.parsers import Rows
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.data.tables.table import check
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import SequenceDataset
from tests.data.tables.raw import DAY, NAMES, T, date, interactions_of


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=6))
def test_tokens_are_numbered_by_first_appearance_over_all_blocks(texts: list[list[str]]) -> None:
    codes, tokens = numbered([pa.array(part, pa.large_string()).dictionary_encode() for part in texts])
    flat = [text for part in texts for text in part]
    names = list(dict.fromkeys(flat))
    assert codes.tolist() == [names.index(text) for text in flat]
    assert tokens.to_pylist() == names


def test_many_tokens_across_blocks_keep_one_number_each() -> None:
    """Blocks may be slices of longer arrays: compare with one dictionary."""
    generator = np.random.default_rng(0)
    blocks = []
    users, items = generator.integers(0, 300, 50_000).astype(str), generator.integers(0, 30_000, 50_000).astype(str)
    for part in np.array_split(np.arange(50_000), 13):
        columns = {"user_id": pa.array(users)[part[0] : part[-1] + 1], "item_id": pa.array(items[part])}
        rows = Rows(columns | {"timestamp": pa.array(part.astype(float))}, part)
        blocks.append(check(rows, Format(), Malformed("raw")))
    data = joined(iter(blocks))
    assert data.user_tokens.take(pa.array(data.users)).to_pylist() == users.tolist()
    assert data.item_tokens.take(pa.array(data.items)).to_pylist() == items.tolist()
    assert data.user_tokens.to_pylist() == list(dict.fromkeys(users.tolist()))


def test_prepared_names_come_back_in_the_store(tmp_path: Path) -> None:
    names = [*NAMES, "None", '5" disk', "%22", "#", "a\u2028b", "a\x85b", "\\"]
    raw = tmp_path / "raw"
    raw.write_text("".join(json.dumps({"username": n, "product_id": n, "date": date(DAY)}) + "\n" for n in names))
    prepare("mine", source=raw, format="steam", output=tmp_path)
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict={"data_path": str(tmp_path)})).store
    assert store.item_tokens[1:].tolist() == names


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([1e19, 2.0]), "row 0 .*lost digits"),
        (np.array([1.0, 9007199254740993.0]), "row 1 .*lost digits"),
        ([4.0, "4"], "row 0 .*the column mixes the float 4.0 with text"),
        (["a", "a\0"], "row 1 .*NUL"),
        ([None, "a"], "row 0 .*null"),
        ([["a"], "b"], "row 0 .*neither text"),
    ],
)
def test_ids_that_would_become_one_are_refused(ids: Any, message: str) -> None:
    frame = pd.DataFrame({"user_id": pd.Series(list(ids), dtype=None if isinstance(ids, np.ndarray) else object)})
    with pytest.raises(DataError, match=message):
        interactions_of(frame.assign(item_id="i", timestamp=T))


def test_one_long_id_does_not_make_all_ids_long(tmp_path: Path) -> None:
    tokens = text_array(["[PAD]", *(f"i{n}" for n in range(20_000)), "x" * 20_000])
    assert tokens.dtype == object
    users = text_array(["[PAD]", "u"])
    store = SequenceStore.from_interactions([1, 1], [1, 20_001], [1.0, 2.0], users, tokens)
    store.save(tmp_path / "store")
    assert sum(file.stat().st_size for file in (tmp_path / "store").iterdir()) < 1 << 20
    again = SequenceStore.load(tmp_path / "store")
    assert again.item_tokens.tolist() == tokens.tolist()
    assert again.fingerprint() == store.fingerprint()
    assert Ids(tokens).find(np.array(["i7", "x" * 20_000, "x" * 19_999, "i"])).tolist() == [8, 20_001, 0, 0]
    assert text_array(["a", "bc"]).dtype.kind == "U"


def test_ids_of_any_form_are_found() -> None:
    known = Ids(np.array(["[PAD]", "7", "a" * 20_000], dtype=object))
    for wanted in (np.array([7, 8]), pa.chunked_array([["7"], ["b"]]), np.array(["7", "x"]), pa.array([7, 9])):
        assert known.find(wanted).tolist() == [1, 0]
    assert known.find(pa.array(["a" * 20_000, "7"])).tolist() == [2, 1]
