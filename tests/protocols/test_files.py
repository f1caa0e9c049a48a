"""Files of training, validation and test: against plain loops, and RecBole's reading of them."""

import dataclasses
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper import load, run
from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.statistics import intervals
from recbole_hyper.files import read_json
from recbole_hyper.protocols.base import ProtocolError, check, make_split
from recbole_hyper.runs.dataset import FeatureDataset, SequenceDataset, stored
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.serving.stream import all_users
from recbole_hyper.types import Cases, Split
from tests.conftest import SMALL, write_inter
from tests.protocols.part_files import NAMES, in_order, random_parts, write_parts
from tests.protocols.splits import unpack
from tests.raising import refused
from tests.reference import protocols as reference


def configured(data: Path, model: str = "SASRecCE", **keys: Any) -> Config:
    names = keys.pop("benchmark_filename", NAMES)
    return Config(model, "d", config_dict={**SMALL, "data_path": str(data), "benchmark_filename": names, **keys})


def split_of(data: Path, **keys: Any) -> tuple[SequenceStore, Split]:
    config = configured(data, **keys)
    store = SequenceDataset(config).store
    return store, make_split(store, config)


@pytest.mark.parametrize("successive", [False, True])
def test_files_equal_the_loops(tmp_path: Path, successive: bool) -> None:
    parts = random_parts()
    data = write_parts(tmp_path, parts)
    store, split = split_of(data, eval_args={"successive": successive})
    assert in_order(unpack(split)) == in_order(reference.files(parts, successive))
    assert split.counts["protocol"] == "files of training, validation and test"
    # user 2 is in the last file alone: nothing is known of the first of these interactions, or of all
    lone = sum(user == "u02" for user, _, _ in parts[2])
    key = "test cases of users without an earlier interaction, left out"
    assert split.counts[key] == (1 if successive else lone)
    newest = {user: max(t for u, _, t in parts[0] if u == user) for user in {user for user, _, _ in parts[0]}}
    older = sum(time < newest.get(user, -1) for user, _, time in parts[2])
    assert split.counts["test targets older than their user's training part"] == older > 0
    assert store.fingerprint() == FeatureDataset(configured(data)).store.fingerprint()


def test_interactions_of_two_files_are_counted(tmp_path: Path) -> None:
    training, valid, test = random_parts()
    key = "interactions that are in an earlier file too"
    assert key not in split_of(write_parts(tmp_path, [training, valid, test]))[1].counts
    # two rows of training are in the test too, one of them in validation; a row twice in one file is not meant
    repeated = [training[:20] + training[:1] + training[20:], valid + training[5:6], test + training[5:7] + test[:2]]
    counts = split_of(write_parts(tmp_path, repeated))[1].counts
    assert counts[key] == 3
    assert counts["cases twice, as rows twice in a file of validation or test"] == 2


def test_files_hold_what_recboles_dataset_reads_of_them(tmp_path: Path) -> None:
    """Every (user, item) of the three parts, with RecBole's ids."""
    from recbole.data.dataset import Dataset

    data = write_parts(tmp_path, random_parts())
    store, split = split_of(data)
    theirs = Dataset(configured(data, "BPR", load_col={"inter": ["user_id", "item_id"]}))
    for field, tokens in (("user_id", store.user_tokens), ("item_id", store.item_tokens)):
        assert theirs.field2id_token[field].tolist() == tokens.tolist()
    built = [
        sorted(zip(part.inter_feat["user_id"].tolist(), part.inter_feat["item_id"].tolist(), strict=True))
        for part in theirs.build()
    ]
    index = store.prefix_index(split.train_lengths)
    users = store.users
    train = zip(np.repeat(users, split.train_lengths).tolist(), store.items[index].tolist(), strict=True)
    assert sorted(train) == built[0]
    known = set(store.users[split.train_lengths > 0].tolist())
    for cases, rows in ((split.valid, built[1]), (split.test, built[2])):
        ours = sorted(zip(users[cases.rows].tolist(), cases.targets.tolist(), strict=True))
        assert [row for row in rows if row[0] in known] == [row for row in ours if row[0] in known]
        assert set(ours) <= set(rows)


def test_histories_are_the_items_that_recboles_evaluation_leaves_out(tmp_path: Path) -> None:
    from recbole.data.dataloader import FullSortEvalDataLoader
    from recbole.data.dataset import Dataset
    from recbole.sampler import Sampler

    data = write_parts(tmp_path, random_parts())
    store, split = split_of(data)
    config = configured(data, "BPR", load_col={"inter": ["user_id", "item_id"]})
    parts = Dataset(config).build()
    sampler = Sampler(["train", "valid", "test"], parts)
    for name, part, cases in (("valid", parts[1], split.valid), ("test", parts[2], split.test)):
        theirs = FullSortEvalDataLoader(config, part, sampler.set_phase(name))
        assert len(cases) > 30
        for row, end in zip(cases.rows.tolist(), cases.ends.tolist(), strict=True):
            user = store.users[row]
            asked = set(theirs.uid2positive_item[user].tolist())
            assert set(theirs.uid2history_item[user].tolist()) == set(store.row(row)[:end].tolist()) - asked


def test_files_without_times_keep_their_order(tmp_path: Path) -> None:
    rows = [[("a", "x"), ("b", "y"), ("a", "w"), ("b", "x")], [("a", "y"), ("b", "w")], [("b", "z"), ("a", "z")]]
    data = write_parts(tmp_path, rows, "user_id:token\titem_id:token\n")
    _, split = split_of(data)
    train, valid, test = unpack(split)
    assert train == {"a": ["x", "w"], "b": ["y", "x"]}
    assert valid == [("a", ("x", "w"), "y"), ("b", ("y", "x"), "w")]
    assert test == [("a", ("x", "w", "y"), "z"), ("b", ("y", "x", "w"), "z")]
    assert FeatureDataset(configured(data)).store.fingerprint() == split.store.fingerprint()
    # times that are there and not loaded are not looked at
    timed = [[(*row, 9 - number) for number, row in enumerate(part)] for part in rows]
    _, again = split_of(write_parts(tmp_path / "timed", timed), load_col={"inter": ["user_id", "item_id"]})
    assert unpack(again) == (train, valid, test)


def test_two_files_are_training_and_test(tmp_path: Path) -> None:
    parts = random_parts()
    data = write_parts(tmp_path, [parts[0], parts[2]], names=["a", "b"])
    _, split = split_of(data, benchmark_filename=["a", "b"])
    assert in_order(unpack(split)) == in_order(reference.files([parts[0], [], parts[2]]))
    assert len(split.valid) == 0
    assert split.counts["protocol"] == "files of training and test, no validation"
    with refused(ProtocolError, "needs", "validation"):
        split_of(data, benchmark_filename=["a", "b"], refit=True)


def test_nothing_of_the_files_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is known of a data set of that name filters its one file, not its parts; nor do files of features."""
    for name, rows in zip(NAMES, random_parts(), strict=True):
        write_inter(tmp_path, "steam", rows, part=name)
    (tmp_path / "steam" / "steam.item").write_text("item_id:token\tkind:token\ni00\tx\n")
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "kind"]}
    config = Config(
        "SASRecCE", "steam", config_dict={"data_path": str(tmp_path), "benchmark_filename": NAMES, "load_col": columns}
    )
    assert config["user_inter_num_interval"] is None
    assert len(SequenceDataset(config).store.items) == sum(map(len, random_parts()))
    assert FeatureDataset(config).store.fingerprint() == SequenceDataset(config).store.fingerprint()
    assert not [record for record in caplog.records if record.levelname != "INFO"]
    # the record of such a run asks for the same again
    assert Config(config_dict=config.plain()).plain() == config.plain()
    assert caplog.text == ""


def test_a_split_beside_the_files_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_parts(tmp_path, random_parts())
    config = configured(data, eval_args={"split": {"RS": [0.8, 0.1, 0.1]}, "order": "RO", "mode": "uni5"})
    assert config["eval_args"]["split"] == {"files": NAMES}
    assert config["eval_args"]["mode"] == {"valid": "uni5", "test": "uni5"}
    assert "eval_args split={'RS': [0.8, 0.1, 0.1]} has no effect" in caplog.text
    assert "eval_args order='RO' has no effect" in caplog.text


def test_a_target_inside_its_history_is_refused(tmp_path: Path) -> None:
    _, split = split_of(write_parts(tmp_path, random_parts()))
    assert split.test.places is not None
    inside = dataclasses.replace(split.test, places=split.test.ends - 1)
    with refused(ProtocolError, "targets", "history"):
        check(dataclasses.replace(split, test=inside), timed=False)
    trained = dataclasses.replace(split, train_lengths=split.store.lengths)
    with refused(ProtocolError, "targets", "training"):
        check(trained, timed=False)


ROWS_HEADER = "user_id:token\titem_id_list:token_seq\titem_id:token\n"


def prefix_rows(cut: int = 50, users: int = 12) -> list[list[tuple[str, str, str]]]:
    """Return (user, history, target) in three files: every prefix of sessions to train, the last items to ask for."""
    draw = np.random.default_rng(8)
    parts: list[list[tuple[str, str, str]]] = [[], [], []]
    for user in range(users):
        items = [f"i{item}" for item in draw.integers(0, 20, int(draw.integers(5, 12)))]
        for end in range(1, len(items)):
            number = max(0, end - len(items) + 3)
            parts[number].append((f"u{user}", " ".join(items[max(0, end - cut) : end]), items[end]))
    parts[2].append(("late", "i0 unheard", "i1"))
    parts[2].append(("u0", "", "i1"))
    return parts


@pytest.mark.parametrize("cut", [50, 3])
def test_rows_with_histories_are_recboles(tmp_path: Path, cut: int) -> None:
    from recbole.data.dataset import SequentialDataset

    data = write_parts(tmp_path, prefix_rows(cut), ROWS_HEADER)
    columns = {"inter": ["user_id", "item_id_list", "item_id"]}
    config = configured(data, load_col=columns, alias_of_item_id=["item_id_list"])
    store = stored(config)
    split = make_split(store, config)
    theirs = SequentialDataset(config)
    for field, tokens in (("user_id", store.user_tokens), ("item_id", store.item_tokens)):
        assert theirs.field2id_token[field].tolist() == tokens.tolist()
    built = []
    for part in theirs.build():
        rows = part.inter_feat
        lengths, lists = rows["item_length"].tolist(), rows["item_id_list"].tolist()
        columns_of = zip(rows["user_id"].tolist(), lists, lengths, rows["item_id"].tolist(), strict=True)
        built.append([(user, tuple(items[:length]), target) for user, items, length, target in columns_of])

    def cases(part: Cases) -> list[tuple]:
        rows = zip(part.rows, part.starts, part.ends, part.targets.tolist(), strict=True)
        return [
            (int(store.users[row]), tuple(store.row(row)[start:end].tolist()), target)
            for row, start, end, target in rows
        ]

    asked = [sorted(row for row in rows if row[1]) for rows in built[1:]]
    assert [sorted(cases(split.valid)), sorted(cases(split.test))] == asked
    assert split.counts["test cases of users without an earlier interaction, left out"] == 1
    # the prefixes of one session are one row again: every target of the file is learned once
    learned = Counter(
        (int(store.users[row]), int(item))
        for row in np.flatnonzero(split.train_lengths)
        for item in store.row(row)[1 : split.train_lengths[row]]
    )
    assert learned == Counter((user, target) for user, _, target in built[0])
    assert np.bincount(store.users[split.train_lengths > 0]).max() == 1


def test_rows_that_do_not_continue_each_other_stay_apart(tmp_path: Path) -> None:
    train = [("a", "x y", "z"), ("a", "x", "y"), ("a", "x y", "w"), ("a", "z", "x"), ("b", "x", "y"), ("b", "x y", "z")]
    parts = [train, [("a", "x y z", "w")], [("c", "y", "x")]]
    _, split = split_of(write_parts(tmp_path, parts, ROWS_HEADER))
    names = split.store.item_tokens
    rows = [
        (str(split.store.user_tokens[split.store.users[row]]), "".join(names[split.store.row(row)[:length]]))
        for row, length in enumerate(split.train_lengths)
        if length
    ]
    assert rows == [("a", "xyz"), ("a", "zx"), ("a", "xyw"), ("b", "xyz")]
    assert unpack(split)[1:] == ([("a", ("x", "y", "z"), "w")], [("c", ("y",), "x")])


@pytest.mark.parametrize(
    ("rows", "header", "keys", "says"),
    [
        (2, ROWS_HEADER, {"refit": True}, "repeat the training file"),
        (2, "user_id:token\titem_id:token\n", {}, "has no column item_id_list:token_seq"),
        (2, ROWS_HEADER, {"load_col": {"inter": "*", "item": "*"}}, "read without features"),
        (0, ROWS_HEADER, {}, "has no interactions"),
    ],
)
def test_rows_with_histories_that_cannot_be_used(tmp_path: Path, rows: int, header: str, keys: dict, says: str) -> None:
    data = write_parts(tmp_path, prefix_rows(), ROWS_HEADER)
    (data / "d" / "d.item").write_text("item_id:token\nx\n")
    one = "u0\ti0 i1\ti2\n" if header == ROWS_HEADER else "u0\ti0\n"
    (data / "d" / "d.valid.inter").write_text(header + one * rows)
    with pytest.raises(ValueError, match=says):
        split_of(data, **keys)


@pytest.mark.parametrize("model", ["SASRecCE", "SASRec"])
def test_models_run_on_rows_with_histories(tmp_path: Path, model: str) -> None:
    data = write_parts(tmp_path / "data", prefix_rows(), ROWS_HEADER)
    keys = {**SMALL, "epochs": 1, "data_path": str(data), "benchmark_filename": NAMES, "use_gpu": False}
    keys |= {"alias_of_item_id": ["item_id_list"], "output_dir": str(tmp_path / "run"), "eval_args": {"mode": "uni3"}}
    result = run(model, "d", config_dict=keys)
    assert (result["n_valid_cases"], result["n_test_cases"], result["n_users"]) == (12, 13, 13)
    shutil.rmtree(data)
    assert len(all_users(load(tmp_path / "run"))) == 13
    assert evaluate(tmp_path / "run")["test"] == result["test_result"]


def test_intervals_draw_users_who_have_several_rows(tmp_path: Path) -> None:
    parts = prefix_rows()
    parts[2] += [(user, history.split()[-1], target) for user, history, target in parts[2][:9]]
    keys = {**SMALL, "data_path": str(write_parts(tmp_path, parts, ROWS_HEADER)), "benchmark_filename": NAMES}
    keys |= {"alias_of_item_id": ["item_id_list"], "output_dir": str(tmp_path / "run"), "confidence": 0.9, "seed": 3}
    result = run("Pop", "d", config_dict={**keys, "save_cases": True, "exclude_seen": False})
    cases = pd.read_parquet(tmp_path / "run" / "cases_test.parquet")
    assert cases["user_id"].nunique() < len(cases)
    found = result["test_intervals"]
    assert found == intervals(cases["rank"].to_numpy(), cases["user_id"], list(found), confidence=0.9, seed=3)


def test_recboles_session_example_runs(tmp_path: Path) -> None:
    """Its configuration: two files, sessions for users, all columns, no validation."""
    parts = prefix_rows()
    header = ROWS_HEADER.replace("user_id", "session_id")
    write_parts(tmp_path, [parts[0] + parts[1], parts[2]], header, ["train", "test"])
    keys = {
        "USER_ID_FIELD": "session_id", "load_col": None, "train_neg_sample_args": None,
        "benchmark_filename": ["train", "test"], "alias_of_item_id": ["item_id_list"],
        "topk": [20], "metrics": ["Recall", "MRR"], "valid_metric": "MRR@20", "repeatable": True,
    }  # fmt: skip
    more = {"data_path": str(tmp_path), "epochs": 1, "output_dir": str(tmp_path / "run"), "use_gpu": False}
    result = run("GRU4Rec", "d", config_dict={**keys, **more})
    assert set(result["test_result"]) == {"recall@20", "mrr@20"}
    assert (result["n_valid_cases"], result["n_test_cases"]) == (0, 13)
    assert result["exclude_seen"] is False


def test_a_model_with_a_vector_per_user_is_refused(tmp_path: Path) -> None:
    data = write_parts(tmp_path, prefix_rows(), ROWS_HEADER)
    keys = {"epochs": 1, "data_path": str(data), "benchmark_filename": NAMES, "output_dir": str(tmp_path / "run")}
    with refused(ValueError, "BPR"):
        run("BPR", "d", config_dict=keys)


@pytest.mark.parametrize("model", ["SASRecCE", "EASER", "BPR"])
def test_models_run_on_files(tmp_path: Path, model: str) -> None:
    rows = [(f"u{user}", f"i{(user + step) % 12}", 1000 + step) for user in range(30) for step in range(10)]
    parts = [[row for row in rows if (row[2] < 1007) == (n == 0) and (row[2] == 1009) == (n == 2)] for n in range(3)]
    data = write_parts(tmp_path / "data", parts)
    keys = {**SMALL, "epochs": 1, "data_path": str(data), "benchmark_filename": NAMES, "use_gpu": False}
    result = run(model, "d", config_dict={**keys, "output_dir": str(tmp_path / "run"), "refit": True})
    assert result["n_valid_cases"] == 60
    assert result["n_test_cases"] == 30
    assert result["eval_args"]["split"] == {"files": NAMES}
    assert read_json(tmp_path / "run" / "result.json")["protocol"] == "files of training, validation and test"
    if model != "EASER":  # the folder is enough to rank the cases again
        shutil.rmtree(data)
        assert evaluate(tmp_path / "run")["test"] == result["test_result"]
