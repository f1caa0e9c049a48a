"""Datasets: RecBole's views of the store, and errors in atomic files."""

from pathlib import Path

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.protocols.base import ProtocolError, make_split
from recbole_hyper.runs.dataset import DataError, FeatureDataset, SequenceDataset
from recbole_hyper.runs.run import run
from tests.conftest import HEADER, SMALL, cycle_rows, write_inter
from tests.raising import refused


def dataset(path: Path, name: str, **keys: object) -> SequenceDataset:
    return SequenceDataset(Config("SASRecCE", name, config_dict={**SMALL, "data_path": str(path), **keys}))


def test_missing_column_lists_the_columns(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows(), "user:token\titem_id:token\ttimestamp:float\n")
    with refused(DataError, "'user_id'", "USER_ID_FIELD", "item_id"):
        dataset(tmp_path, "d")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("user_id:token,item_id:token,timestamp:float\nu,i,3\n", "tab-separated"),
        ("user_id:token\titem_id:token\ttimestamp:token\nu\ti\t3\n", "no column 'timestamp' of type float"),
        (f"{HEADER}u\ti\t\n", "'timestamp'"),
        (f"{HEADER}u\ti\t3\t5\n", "instead"),
    ],
)
def test_a_file_that_cannot_be_read(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "d.inter").write_text(text)
    with refused(DataError, named):
        dataset(tmp_path, "d")


@pytest.mark.parametrize(("columns", "named"), [(["user_id", "item_id"], "'timestamp'"), ([], "'user_id'")])
def test_columns_that_are_not_loaded(columns: list[str], named: str, cycle: Path) -> None:
    with refused(DataError, named):
        dataset(cycle, "cycle", load_col={"inter": columns})


def test_quotation_marks_are_part_of_an_id(tmp_path: Path) -> None:
    rows = cycle_rows()
    for line in (3, 40):
        rows[line] = (rows[line][0], '"quoted', rows[line][2])
    write_inter(tmp_path, "d", rows)
    store = dataset(tmp_path, "d").store
    assert len(store.items) == 300
    assert (store.item_tokens == '"quoted').sum() == 1


def test_nothing_left_after_filtering(cycle: Path) -> None:
    with refused(DataError, "filtering", "interactions"):
        dataset(cycle, "cycle", user_inter_num_interval="[99,inf)")


def test_catalogue_of_one_item(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", [(user, "i", time) for user in range(5) for time in range(4)])
    with refused(DataError, "filtering", "leaves"):
        dataset(tmp_path, "d")


def test_duplicates_are_kept_by_default_and_dropped_on_request(tmp_path: Path) -> None:
    rows = [*cycle_rows(users=3), ("u0", "i0", 2000), ("u0", "i0", 2000)]
    write_inter(tmp_path, "d", rows)
    assert len(dataset(tmp_path, "d").store.items) == 32
    assert len(dataset(tmp_path, "d", rm_dup_inter="first").store.items) == 30


def test_dropping_duplicates_keeps_ties_in_file_order(tmp_path: Path) -> None:
    rows = [(f"u{user}", f"i{item}", item // 20) for user in range(3) for item in range(60)]
    write_inter(tmp_path, "d", rows)
    store = dataset(tmp_path, "d", rm_dup_inter="first").store
    assert store.item_tokens[store.row(0)].tolist() == [f"i{item}" for item in range(60)]


def test_a_date_for_a_time_and_a_file_in_another_encoding(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", [("u1", "i1", "2019-01-02"), ("u1", "i2", "2019-01-03")])
    with refused(DataError, "d.inter", "2019-01-02"):
        dataset(tmp_path, "d")
    (tmp_path / "d" / "d.inter").write_bytes((HEADER + "é\ti1\t1\né\ti2\t2\n").encode("latin-1"))
    assert dataset(tmp_path, "d").store.user_tokens.tolist() == ["[PAD]", "é"]  # guessed
    with refused(DataError, "UTF-8", "--encoding"):
        dataset(tmp_path, "d", encoding="utf-8")


def test_times_are_never_rescaled(cycle: Path) -> None:
    assert dataset(cycle, "cycle", normalize_all=True).store.times.max() == 1009


def test_users_with_short_histories(tmp_path: Path) -> None:
    rows = [(f"u{count}", f"i{item}", item) for count in (1, 2, 3, 4) for item in range(count)]
    write_inter(tmp_path, "d", rows)
    config = Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(tmp_path)})
    split = make_split(SequenceDataset(config).store, config)
    users = [split.store.user_tokens[user] for user in split.store.users]
    assert users == ["u1", "u2", "u3", "u4"]
    assert split.train_lengths.tolist() == [1, 2, 2, 2]
    assert [users[row] for row in split.valid.rows] == ["u4"]
    assert [users[row] for row in split.test.rows] == ["u3", "u4"]
    counts = split.counts
    assert counts["users with 1 interaction, in no part"] == 1


def test_only_users_with_one_interaction(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", [(f"u{user}", f"i{user}", user) for user in range(5)])
    config = Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(tmp_path)})
    with refused(ProtocolError, "leave", "validation"):
        make_split(SequenceDataset(config).store, config)


def test_unwritable_output_directory_fails_first(cycle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("pandas.read_csv", lambda *a, **k: pytest.fail("data were read"))
    with refused(ValueError, "cannot be written"):
        run(
            "SASRecCE",
            "cycle",
            config_dict={**SMALL, "data_path": str(cycle), "output_dir": str(tmp_path / "file" / "x")},
        )


def test_restricted_dataset_tells_about_training_only(random_data: Path) -> None:
    config = Config("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data)})
    full = SequenceDataset(config)
    split = make_split(full.store, config)
    train = full.restrict(split.store, split.train_lengths)
    expected = np.zeros((full.user_num, full.item_num))
    for row, length in enumerate(split.train_lengths):
        expected[split.store.users[row], split.store.row(row)[:length]] = 1
    assert (train.inter_matrix("csr").toarray() == expected).all()
    assert sum(train.item_counter.values()) == split.train_lengths.sum()
    history, _, lengths = train.history_item_matrix()
    assert (lengths[split.store.users].numpy() == split.train_lengths).all()
    assert history.shape[0] == full.user_num


def test_item_features_survive_pandas_3(tmp_path: Path) -> None:
    write_inter(tmp_path, "d", cycle_rows())
    lines = [f"i{item}\tfilm {item}\t{'' if item == 3 else 1990 + item}\n" for item in range(12)]
    lines[5] = "i5\t\t1995\n"  # a film without words in its title
    (tmp_path / "d" / "d.item").write_text("item_id:token\ttitle:token_seq\tyear:token\n" + "".join(lines))
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "title", "year"]}
    data = FeatureDataset(
        Config("SASRecCE", "d", config_dict={**SMALL, "data_path": str(tmp_path), "load_col": columns})
    )
    features = data.item_feat
    assert features["year"].min() == 0  # padding and the missing year, not -2**63
    assert (features["year"] == 0).sum() == 2
    position = list(data.field2id_token["item_id"]).index("i5")
    assert len(features["title"].iloc[position]) == 0
    assert next(data.field2id_token["title"][word] for word in features["title"].iloc[position - 1]) == "film"
