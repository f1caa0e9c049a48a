"""Ids: numbering, look-ups, and any text comes back unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.blocks import Malformed
from recbole_hyper.data.tables.formats import Format
from recbole_hyper.data.tables.ids import PAD, Ids, Tokens, escaped, original_ids, text_array
from recbole_hyper.data.tables.interactions import NO_IDS, joined
from recbole_hyper.data.tables.parsers import Rows
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.data.tables.table import check
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import SequenceDataset
from tests.data.tables.raw import AWKWARD, DAY, NAMES, T, date, interactions_of, steam, written_id


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=6))
def test_tokens_are_numbered_by_first_appearance_over_all_blocks(texts: list[list[str]]) -> None:
    table = Tokens()
    for part in texts:
        table.add(pa.array(part, pa.string()))
    codes, tokens = table.joined()
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


def test_tokens_that_recbole_would_misread_survive_its_reader(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_text(steam(AWKWARD))
    path = prepare("mine", source=raw, format="steam", output=tmp_path).path
    # RecBole's own call
    frame = pd.read_csv(path, delimiter="\t", dtype={"user_id:token": str}, engine="python")
    assert not frame["user_id:token"].isna().any()
    assert sorted(frame["user_id:token"].unique()) == sorted({written_id(name) for name in NAMES})


def test_prepared_names_come_back_in_the_store(tmp_path: Path) -> None:
    names = [*NAMES, "[PAD]", "None", "#", "a\u2028b", "a\x85b", "\\"]
    raw = tmp_path / "raw"
    raw.write_text("".join(json.dumps({"username": n, "product_id": n, "date": date(DAY)}) + "\n" for n in names))
    prepare("mine", source=raw, format="steam", output=tmp_path)
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict={"data_path": str(tmp_path)})).store
    # all but the name of padding
    assert store.item_tokens[1:].tolist() == [{"[PAD]": "%5BPAD]"}.get(name, name) for name in names]


@given(
    st.lists(st.one_of(st.text(), st.sampled_from(["NA", "%4EA", "%22", '"', "a\tb%0A", "[PAD]", "%254"])), unique=True)
)
def test_ids_that_were_escaped_come_back_and_stay_different(tokens: list[str]) -> None:
    tokens = [token for token in tokens if token and "\0" not in token]
    written, count = escaped(pa.array(tokens, pa.string()), NO_IDS)
    assert len(set(written.to_pylist())) == len(tokens)
    assert not any(set(token) & set('"\t\r\n') or token in NO_IDS for token in written.to_pylist())
    assert count == sum(bool(set(token) & set('"\t\r\n')) or token in NO_IDS for token in tokens)
    # the name of padding stays escaped
    plain = [{PAD: "%5BPAD]"}.get(token, token) for token in tokens]
    assert (original_ids(written) if count else written).to_pylist() == plain


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


def test_ids_that_are_escaped_in_the_file_come_back_as_they_were(tmp_path: Path) -> None:
    """They left by ``recommend`` as %22, so that a join with the shop's table missed."""
    names = ['5" disk', "NA", "%22", "a%2525b", "tab\there", "plain"]
    frame = pa.table({"user_id": names, "item_id": names[::-1], "timestamp": [T] * 6})
    pq.write_table(frame, tmp_path / "raw.parquet")
    said: list[str] = []
    path = prepare("mine", source=tmp_path / "raw.parquet", output=tmp_path, say=said.append).path
    assert "%22" in path.read_text()
    assert sum("written as %XX and runs restore them" in line for line in said) == 2
    keys: dict[str, Any] = {"data_path": str(tmp_path)}
    store = SequenceDataset(Config("SASRecCE", "mine", config_dict=keys)).store
    assert sorted(store.user_tokens[1:].tolist()) == sorted(store.item_tokens[1:].tolist()) == sorted(names)
    kept = SequenceDataset(
        Config("SASRecCE", "mine", config_dict={**keys, "val_interval": {"item_id": ["NA", '5" disk']}})
    )
    assert sorted(kept.store.item_tokens[1:].tolist()) == ['5" disk', "NA"]


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
