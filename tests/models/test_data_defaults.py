"""``auto``: the values that the rules choose, their effect on a run, and where it is refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recbole.data import create_dataset, data_preparation

from recbole_hyper import run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.hosted.config import HostedConfig
from recbole_hyper.models.data_defaults import RULES, TrainingStatistics, choose_values
from recbole_hyper.runs.build import read_data
from tests.conftest import SMALL
from tests.raising import refused

AUTO = dict.fromkeys(RULES, "auto")


def statistics(sequences: int, per_item: float, *kept: float) -> TrainingStatistics:
    return TrainingStatistics(n_sequences=sequences, interactions_per_item=per_item, kept=kept)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (statistics(22_363, 12.7, 0.977, 0.996, 1.0), (64, 0.5, 50, 256, 1e-4, 0.005, 20)),  # Amazon Beauty
        (statistics(35_598, 12.3, 0.993, 0.999, 1.0), (64, 0.5, 50, 256, 1e-4, 0.005, 20)),  # Amazon Sports
        (statistics(6_040, 268, 0.271, 0.446, 0.66), (128, 0.3, 200, 64, 0.0, 0.002, 20)),  # MovieLens-1M
        (statistics(3, 0.0, 1.0, 1.0, 1.0), (64, 0.5, 50, 32, 1e-4, 0.005, 20)),
        (statistics(10**7, 64, 0.6, 0.8, 0.9), (128, 0.4, 100, 512, 5e-5, 0.0035, 2)),
        (statistics(10**6, 64, 0.6, 0.8, 0.9), (128, 0.4, 100, 512, 5e-5, 0.0035, 10)),
    ],
)
def test_the_rules(known: TrainingStatistics, expected: tuple[int, float, int, int, float, float, int]) -> None:
    found = choose_values(list(RULES), known)
    assert found["hidden_dropout_prob"] == found["attn_dropout_prob"]
    keys = (
        "hidden_size",
        "hidden_dropout_prob",
        "MAX_ITEM_LIST_LENGTH",
        "train_batch_size",
        "weight_decay",
        "learning_rate",
        "epochs",
    )
    assert tuple(found[key] for key in keys) == expected


@given(st.integers(0, 10**9), st.floats(0, 1e9), st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted))
def test_every_data_set_gets_values_that_the_keys_may_have(sequences: int, per_item: float, kept: list[float]) -> None:
    found = choose_values(list(RULES), statistics(sequences, per_item, *kept))
    assert found["hidden_size"] in (64, 128)
    assert 0.3 <= found["hidden_dropout_prob"] <= 0.5
    assert found["MAX_ITEM_LIST_LENGTH"] in (50, 100, 200)
    place = (50, 100, 200).index(found["MAX_ITEM_LIST_LENGTH"])
    assert kept[place] >= 0.8 or place == 2
    assert all(share < 0.8 for share in kept[:place])
    assert found["train_batch_size"] in (32, 64, 128, 256, 512)
    assert 0 <= found["weight_decay"] <= 1e-4
    assert 0.002 <= found["learning_rate"] <= 0.005
    assert 2 <= found["epochs"] <= 20


def test_statistics_are_those_of_the_training_part(random_data: Path) -> None:
    _, split = read_data(Config("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data)}))
    rows = [
        list(split.store.items[start : start + n])
        for start, n in zip(split.store.offsets, split.train_lengths, strict=False)
    ]
    learned = sorted(len(row) for row in rows if len(row) > 1)
    found = TrainingStatistics.of(split)
    assert found.n_sequences == len(learned)
    total = sum(map(len, rows))
    assert found.interactions_per_item == pytest.approx(total / len({item for row in rows for item in row}))
    for window, kept in zip((50, 100, 200), found.kept, strict=True):
        assert kept == pytest.approx(sum(min(length, window) for length in learned) / sum(learned))


def test_a_few_long_histories_get_a_long_window() -> None:
    """Three quarters of the users have 40 items and a quarter 1,000: nine tenths of the interactions are theirs."""
    lengths = [40] * 75 + [1000] * 25
    kept = [sum(min(length, window) for length in lengths) / sum(lengths) for window in (50, 100, 200)]
    assert choose_values(["MAX_ITEM_LIST_LENGTH"], statistics(100, 20, *kept)) == {"MAX_ITEM_LIST_LENGTH": 200}


@pytest.mark.parametrize(("batch", "rate"), [(256, 0.005), (1024, 0.01), (64, 0.0025), (2**20, 0.02), (1, 0.00125)])
def test_the_learning_rate_follows_the_batch_size(batch: int, rate: float) -> None:
    beauty = statistics(22_363, 12.7, 0.98, 1.0, 1.0)
    assert choose_values(["learning_rate"], beauty, batch) == {"learning_rate": rate}
    assert choose_values(["learning_rate"], beauty) == {"learning_rate": 0.005}


def test_a_run_takes_its_rate_from_its_batch(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "learning_rate": "auto", "epochs": 1}
    rates = {}
    for batch in (32, 128):
        folder = tmp_path / str(batch)
        more = {"train_batch_size": batch, "output_dir": str(folder)}
        rates[batch] = run("SASRecCE", "random", config_dict={**keys, **more})["config"]["learning_rate"]
    assert rates[128] == pytest.approx(2 * rates[32])


def test_a_run_equals_the_run_with_these_numbers_and_logs_them(random_data: Path, tmp_path: Path) -> None:
    def keys(name: str, **more: Any) -> dict[str, Any]:
        return {**SMALL, "data_path": str(random_data), "output_dir": str(tmp_path / name), **more}

    found = run("SASRecCE", "random", config_dict=keys("auto", **AUTO))
    numbers = found["data_defaults"]["chosen"]
    assert set(numbers) == set(RULES)
    assert {key: found["config"][key] for key in RULES} == numbers
    assert found["valid"] == run("SASRecCE", "random", config_dict=keys("given", **numbers))["valid"]
    # a resumed run has the numbers in its folder, also where auto is requested again
    again = run("SASRecCE", "random", config_dict=keys("auto", **AUTO, resume=True))
    assert again["valid"] == found["valid"]
    assert again["epochs"] == found["epochs"] <= numbers["epochs"] == 20
    more = run("SASRecCE", "random", config_dict=keys("auto", **{**AUTO, "epochs": 21}, resume=True))
    assert more["data_defaults"]["chosen"].items() < numbers.items()
    assert read_json(tmp_path / "auto" / "result.json")["config"]["epochs"] == 21
    assert "data_defaults" not in run("SASRecCE", "random", config_dict=keys("plain"))
    with refused(ConfigError, "hidden_dropout_prob", "0.5", "0.1"):
        run("SASRecCE", "random", config_dict=keys("auto", **{**AUTO, "hidden_dropout_prob": 0.1}, resume=True))


def test_recboles_functions_choose_values_too(random_data: Path) -> None:
    config = HostedConfig("SASRecCE", "random", config_dict={**SMALL, **AUTO, "data_path": str(random_data)})
    training, *_ = data_preparation(config, create_dataset(config))
    _, split = read_data(config)
    assert {key: config[key] for key in RULES} == choose_values(list(RULES), TrainingStatistics.of(split))
    assert next(iter(training))["item_id_list"].shape[0] <= config["train_batch_size"]


@pytest.mark.parametrize("model", ["SASRec", "EASER"])
def test_models_that_choose_no_values_refuse_auto(model: str, random_data: Path) -> None:
    keys = {"data_path": str(random_data), "train_batch_size": "auto"}
    if model == "EASER":  # which reads no batch size at all
        assert Config(model, "random", config_dict=keys)["train_batch_size"] != "auto"
        return
    with refused(ConfigError, "'auto'", "train_batch_size=", "SASRec"):
        Config(model, "random", config_dict=keys)
