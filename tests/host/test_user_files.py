"""Configuration files as RecBole's users have them: what each means is what it meant where it was written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.host import old_keys, user_files
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.build import build, read_data
from recbole_hyper.runs.dataset import SequenceDataset
from tests.conftest import write_inter
from tests.raising import refused

HEADER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data_path with "d": users of 2 to 9 interactions, items of all frequencies, ratings from 1 to 5."""
    draw = np.random.default_rng(3)
    rows = [
        (f"u{user}", f"i{int(item)}", 1 + (user + step) % 5, 100 * step + user)
        for user in range(60)
        for step, item in enumerate(np.minimum(draw.geometric(0.1, size=2 + user % 8), 30))
    ]
    folder = write_inter(tmp_path / "data", "d", rows, HEADER)
    (folder / "d" / "d.item").write_text("item_id:token\tclass:token\n" + "".join(f"i{i}\tk\n" for i in range(31)))
    return folder


def bound(data: Path, text: str, model: str = "SASRec", **keys: Any) -> Config:
    file = data.parent / "mine.yaml"
    file.write_text(text)
    return Config(model, "d", [file], {"data_path": str(data), "use_gpu": False, **keys})


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about the file, without its name."""
    return [line.partition("mine.yaml: ")[2] for line in caplog.messages if "mine.yaml: " in line]


FOREIGN = """
device: cuda
logger_name: sasrec-beauty
from_scratch: False
valid_batch_size: 512
MODEL_TYPE: 2
hidden_size: 64
epochs: 2
metrics: ["Recall", "NDCG"]
topk: [10, 20]
valid_metric: NDCG@10
train_neg_sample_args: ~
"""


@pytest.mark.parametrize("model", ["SASRec", "HSASRecCE"])
def test_one_warning_names_the_keys_that_nothing_reads(model, data, caplog) -> None:
    config = bound(data, FOREIGN, model)
    assert warnings_of(caplog) == ["nothing reads device, logger_name, from_scratch, valid_batch_size, MODEL_TYPE"]
    assert (config["hidden_size"], config["topk"]) == (64, [10, 20])
    assert not {"logger_name", "device", "from_scratch"} & config.plain().keys()
    with refused(ConfigError, "logger_name"):
        bound(data, FOREIGN, model, strict=True)


OLD = """
NEG_PREFIX: neg_
min_user_inter_num: 5
min_item_inter_num: 5
lowest_val:
    rating: 2
training_neg_sample_num: 0
eval_setting: TO_LS,full
epochs: 2
train_batch_size: 2048
metrics: ["Recall", "MRR", "NDCG"]
topk: [5, 10]
valid_metric: MRR@10
"""


def test_a_file_of_release_0_2(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At least five interactions of users and items, ratings from 2, no negatives, the last two held out."""
    config = bound(data, OLD)
    keys = ("min_user_inter_num", "min_item_inter_num", "lowest_val", "training_neg_sample_num", "eval_setting")
    assert [line.split()[0] for line in warnings_of(caplog)] == list(keys)
    assert config["train_neg_sample_args"]["distribution"] == "none"
    store = SequenceDataset(config).store
    lines = [line.split("\t") for line in (data / "d" / "d.inter").read_text().splitlines()[1:]]
    rows = [(user, item) for user, item, rating, _ in lines if float(rating) >= 2]
    while True:  # the old release filtered to a fixed point
        users, items = ([row[column] for row in rows] for column in (0, 1))
        kept = [row for row in rows if users.count(row[0]) >= 5 and items.count(row[1]) >= 5]
        if len(kept) == len(rows):
            break
        rows = kept
    own = [
        (str(store.user_tokens[store.users[row]]), str(store.item_tokens[item]))
        for row in range(store.n_rows)
        for item in store.row(row)
    ]
    assert rows
    assert sorted(own) == sorted(rows)
    split = make_split(store, config)
    lengths = store.lengths
    assert split.test.ends.tolist() == [length - 1 for length in lengths if length >= 3]
    assert split.valid.ends.tolist() == [length - 2 for length in lengths if length >= 4]
    assert split.test.candidates is None


OLD_NEGATIVES = [
    ("neg_sampling:\n  uniform: 1\n", "uniform", 1),
    ("train_neg_sample_args:\n  uniform: 2\n", "uniform", 2),
    ("training_neg_sample_num: 3\ntraining_neg_sample_distribution: popularity\n", "popularity", 3),
    ("train_neg_sample_args: {distribution: uniform, sample_num: 2}\n", "uniform", 2),
]


@pytest.mark.parametrize(("text", "distribution", "number"), OLD_NEGATIVES)
def test_negatives_of_every_release(text: str, distribution: str, number: int, data: Path) -> None:
    config = bound(data, f"{text}loss_type: BPR\n", epochs=1)
    assert (config["train_neg_sample_args"]["distribution"], config["train_neg_sample_args"]["sample_num"]) == (
        distribution,
        number,
    )
    if distribution == "uniform":
        dataset = SequenceDataset(config)
        split = make_split(dataset.store, config)
        _, loader, _ = build(config, dataset, split, split.train_lengths)
        batch = next(iter(loader))
        rows, size = len(batch), len(batch) // number
        assert batch["item_id"][:size].tolist() == batch["item_id"][rows - size :].tolist()


def test_old_names_are_translated_wherever_they_are_given(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = bound(data, "loss_type: BPR\n", train_neg_sample_args={"uniform": 2}, min_user_inter_num=3)
    assert config["train_neg_sample_args"]["sample_num"] == 2
    assert config["user_inter_num_interval"] == "[3,inf)"
    assert caplog.text.count("is from an earlier release of RecBole") == 2


@pytest.mark.parametrize("word", ["None", "~", "null"])
def test_the_word_none_is_null(word: str, data: Path) -> None:
    config = bound(data, f"train_neg_sample_args: {word}\nuser_inter_num_interval: {word}\n")
    assert config["train_neg_sample_args"]["distribution"] == "none"
    assert config["user_inter_num_interval"] is None
    assert user_files.without_words({"a": ["None", {"b": "None"}], "c": "none"}) == {
        "a": [None, {"b": None}],
        "c": "none",
    }


def test_a_slip_of_the_fingers_is_no_foreign_key(data: Path) -> None:
    with refused(ConfigError, "'learning_rat'", "learning_rate", "'train_batchsize'"):
        bound(data, "learning_rat: 0.01\ntrain_batchsize: 512\nepochs: 2\n")
    with refused(ConfigError, "'learning_rat'", "learning_rate"):
        bound(data, "epochs: 2\n", learning_rat=0.01)
    for key in ("L", "neg_samplings", "d_state"):  # nothing is near
        with pytest.raises(ConfigError, match=f"unknown key '{key}'$"):
            bound(data, "epochs: 2\n", **{key: 1})


def test_the_command_line_names_model_and_data(data: Path) -> None:
    config = bound(data, "model: BPR\ndataset: amazon-clothing\ngpu_id: '0'\nepochs: 2\n")
    assert (config["model"], config["dataset"], config["epochs"]) == ("SASRec", "d", 2)


def test_a_column_file_that_is_not_there(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "load_col:\n  inter: [user_id, item_id, rating, timestamp]\n  item: [item_id, class]\n  ent: [ent_id]\n"
    config = bound(data, text)
    assert f"{data / 'd' / 'd.ent'} does not exist: they are not read" in caplog.text
    assert set(config["load_col"]) == {"inter", "item"}
    with refused(DataError, f"{data / 'd'}: Field [rating] does not exist; does load_col name it?"):
        read_data(bound(data, "load_col: {inter: [user_id, item_id, timestamp]}\nnormalize_field: [rating]\n", "BPR"))


def test_a_column_file_without_ids_is_named(data: Path) -> None:
    (data / "d" / "d.user").write_text("age:float\n31\n")
    config = bound(data, "load_col:\n  inter: [user_id, item_id, timestamp]\n  user: [user_id, age]\n", "BPR")
    with refused(DataError, "d.user", "'user_id'", "load_col"):
        SequenceDataset(config)


def test_losses_of_recbole_for_models_of_this_package(data: Path) -> None:
    assert bound(data, "loss_type: CE\n", "HSASRecCE")["loss_type"] == "ce"
    with refused(ConfigError, "HSASRecCE", "loss_type=bce", "loss_type=ce"):
        bound(data, "loss_type: BPR\n", "HSASRecCE")


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"lowest_val": {"rating": 2}}, {2, 3, 4, 5}),
        ({"highest_val": {"rating": 3}}, {1, 2, 3}),
        ({"lowest_val": {"rating": 2}, "highest_val": {"rating": 4}}, {2, 3, 4}),
        ({"equal_val": {"rating": 3}}, {3}),
        ({"not_equal_val": {"rating": 3}}, {1, 2, 4, 5}),
        ({"not_equal_val": {"rating": 3}, "lowest_val": {"rating": 2}}, {2, 4, 5}),
    ],
)
def test_values_of_0_x(limits: dict[str, Any], kept: set[int], data: Path) -> None:
    content, _ = old_keys.translated(limits)
    config = Config("SASRec", "d", config_dict={"data_path": str(data), **content, "eval_args": {"mode": "full"}})
    lines = [line.split("\t") for line in (data / "d" / "d.inter").read_text().splitlines()[1:]]
    assert len(SequenceDataset(config).store.items) == sum(float(rating) in kept for _, _, rating, _ in lines)


def test_a_file_that_all_of_a_comparison_share(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    from recbole_hyper.experiment import compare

    file = data.parent / "mine.yaml"
    file.write_text(FOREIGN + "SASRec: {n_layers: 1}\n")
    keys = {"data_path": str(data), "use_gpu": False}
    settings, of_files = compare.settings_per_model(["SASRec", "HSASRecCE"], [str(file)], keys)
    configs = compare.check_all({name: name for name in settings}, "d", settings, data.parent, of_files)
    assert len(warnings_of(caplog)) == 1
    assert configs["SASRec"]["n_layers"] == 1
    assert not {"device", "logger_name"} & settings["HSASRecCE"].keys()
