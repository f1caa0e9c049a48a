"""The reader equals RecBole's Dataset: ids, filters, ties, and features that filter."""

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config
from recbole_hyper.data import reading
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import DataError
from recbole_hyper.runs.dataset import FeatureDataset, SequenceDataset, read_dataset
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.raising import refused

COLUMNS = ["user_id", "item_id", "timestamp", "rating", "kind"]


WIDE = "user_id:token\titem_id:token\ttimestamp:float\trating:float\tkind:token\n"


IDS = ["a", "b", "NA", "null", '"', "1", "01", "1.0", " 1", "é", "nan", "#", "a b"]


INTERVALS = [None, "[2,inf)", "(1.5,inf)", "[1,2]", "(1,inf)", "[4,inf);[1,2]", "[3,inf)", "[-inf,inf]"]


def configured(path: Path, **keys: Any) -> Config:
    return Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(path), **keys})


def both(path: Path, **keys: Any) -> tuple[SequenceStore | str, SequenceStore | str]:
    """Return the stores of both ways, or that nothing is left."""

    def tried(make: Callable[[Config], SequenceDataset]) -> SequenceStore | str:
        try:
            return make(configured(path, **keys)).store
        except ValueError as error:
            # RecBole's own words, of a feature file of which nothing is left, are "is empty"
            return "nothing is left" if "left" in str(error) or "empty" in str(error) else str(error)

    return tried(SequenceDataset), tried(FeatureDataset)


def same(one: SequenceStore | str, other: SequenceStore | str) -> None:
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    for name in ("offsets", "items", "times", "users", "user_tokens", "item_tokens"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert one.fingerprint() == other.fingerprint()


rows = st.lists(
    st.tuples(
        st.sampled_from(IDS), st.sampled_from(IDS), st.integers(0, 3), st.sampled_from(["", "1", "2.5", "4"]),
        st.sampled_from(["", "x", "y", "NA"]),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=rows,
    users=st.sampled_from(INTERVALS),
    items=st.sampled_from(INTERVALS),
    duplicates=st.sampled_from([None, "first", "last"]),
)
def test_filters_are_recboles(rows, users, items, duplicates, tmp_path) -> None:
    write_inter(tmp_path, "d", rows, WIDE)
    keys = {"user_inter_num_interval": users, "item_inter_num_interval": items, "rm_dup_inter": duplicates}
    same(*both(tmp_path, load_col={"inter": COLUMNS}, **keys))


def test_the_log_names_the_file_and_what_filters_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_inter(tmp_path, "d", [*((f"u{n % 3}", f"i{n % 5}", n) for n in range(30)), ("u0", "rare", 31)])
    with caplog.at_level("INFO", "recbole_hyper"):
        SequenceDataset(configured(tmp_path, item_inter_num_interval="[2,inf)"))
    assert f"{tmp_path / 'd' / 'd.inter'}: 31 interactions; filters removed 1" in caplog.text


def test_pieces_of_a_file_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    rows = [(f"u{draw.randrange(20)}", f"i{draw.randrange(30)}", draw.randrange(9)) for _ in range(400)]
    write_inter(tmp_path, "d", rows)
    path = tmp_path / "d" / "d.inter"
    path.write_text(path.read_text().replace("\n", "\n\n", 30))  # blank lines
    whole, slow = both(tmp_path)
    monkeypatch.setattr("recbole_hyper.data.tables.parsers.BLOCK_BYTES", 100)
    same(SequenceDataset(configured(tmp_path)).store, slow)
    same(whole, slow)


@pytest.mark.parametrize("values", [{"rating": "[2,inf)"}, {"kind": ["x"]}, {"rating": "(1,3)", "kind": ["y", "NA"]}])
def test_a_column_of_val_interval_that_is_not_loaded_is_read_for_it(values: dict, tmp_path: Path) -> None:
    rows = [(*row, number % 5, "xyz"[number % 3]) for number, row in enumerate(cycle_rows())]
    write_inter(tmp_path, "d", rows, WIDE)
    found = SequenceDataset(configured(tmp_path, val_interval=values)).store
    for keys in ({"load_col": {"inter": COLUMNS}}, {"load_col": {"inter": "*"}, "unload_col": {"inter": list(values)}}):
        same(found, SequenceDataset(configured(tmp_path, val_interval=values, **keys)).store)
    low, high = {"[2,inf)": (2, 4), "(1,3)": (2, 2)}.get(values.get("rating"), (0, 4))
    kept = [row for row in rows if low <= row[3] <= high and row[4] in values.get("kind", "xyz")]
    assert sorted(found.times.tolist()) == sorted(float(row[2]) for row in kept)
    # it is no feature for it, as nobody requested one
    assert isinstance(read_dataset(configured(tmp_path, val_interval=values)), SequenceDataset)


def test_a_column_of_a_loaded_feature_file_is_read_for_val_interval(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows())
    (tmp_path / "d" / "d.item").write_text(
        "item_id:token\tprice:float\tname:token\n" + "".join(f"i{item}\t{item}\tn\n" for item in range(12))
    )
    columns = {"inter": COLUMNS[:3], "item": ["item_id", "name"]}
    found = SequenceDataset(configured(tmp_path, val_interval={"price": "[3,inf)"}, load_col=columns)).store
    assert sorted(found.item_tokens.tolist()) == sorted(["[PAD]", *(f"i{item}" for item in range(3, 12))])
    with refused(DataError, "'price'", "user_id", "item_id", "load_col"):
        SequenceDataset(configured(tmp_path, val_interval={"price": "[3,inf)"}))


@pytest.mark.parametrize("made", [SequenceDataset, FeatureDataset])
def test_a_column_of_val_interval_that_the_file_lacks(made: type, tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows())
    with refused(DataError, "'rating'", "d.inter", "user_id", "item_id"):
        made(configured(tmp_path, val_interval={"rating": "[3,inf)"}))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"alias_of_item_id": ["liked"]}, "names 'liked', not a loaded id column; these are user_id, item_id"),
        ({"alias_of_user_id": ["timestamp"]}, "names 'timestamp', not a loaded id column"),
        ({"alias_of_item_id": "liked"}, "alias_of_item_id='liked' must be a list of columns"),
        ({"alias_of_item_id": 1.5}, "alias_of_item_id=1.5 must be a list of columns"),
    ],
)
def test_an_alias_that_is_no_column_of_ids(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows())
    with refused(ValueError, said):
        read_dataset(configured(tmp_path, **keys))


def test_recboles_models_get_the_features_that_are_loaded(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows())
    (tmp_path / "d" / "d.item").write_text("item_id:token\tkind:token\n" + "".join(f"i{n}\tx\n" for n in range(12)))
    columns = {"inter": COLUMNS[:3], "item": ["item_id", "kind"]}
    ours = read_dataset(configured(tmp_path, load_col=columns))
    theirs = read_dataset(Config("BPR", "d", config_dict={**SMALL, "data_path": str(tmp_path), "load_col": columns}))
    assert ours.item_feat is None
    assert "kind" in theirs.item_feat
    same(ours.store, theirs.store)


def test_tables_are_built_at_the_first_use(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows())
    data = SequenceDataset(configured(tmp_path))
    training = data.restrict(data.store, np.minimum(data.store.lengths, 4))
    assert training.inter_num == 4 * data.store.n_rows
    assert sum(training.item_counter.values()) == sum(training.user_counter.values()) == training.inter_num
    assert data._inter_feat is training._inter_feat is None
    assert len(training.inter_feat) == training.inter_num
    assert data.token2id("item_id", "i3") == list(data.field2id_token["item_id"]).index("i3")


def test_padding_in_lists_of_split_files_is_not_an_item(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for part in ("train", "valid", "test"):
        rows = [("a", "0 0 x y", "z"), ("b", "0 0 0 z", "x")]
        write_inter(tmp_path, "mine", rows, "user_id:token\titem_id_list:token_seq\titem_id:token\n", part)
    keys = {"data_path": str(tmp_path), "benchmark_filename": ["train", "valid", "test"]}
    with caplog.at_level(logging.WARNING, "recbole_hyper"):
        store = SequenceDataset(Config("SASRecCE", "mine", config_dict=keys)).store
    assert sorted(store.item_tokens[1:].tolist()) == ["x", "y", "z"]
    assert "treated as padding" in caplog.text


@pytest.mark.parametrize(
    ("text", "least"), [(None, 0), ("[3,inf)", 3), (" [ 2, inf ]", 2), ("(1,inf)", None), ("[1,2]", None)]
)
def test_fewest_interactions_of_an_interval(text: str | None, least: int | None) -> None:
    assert reading.fewest(text) == least
