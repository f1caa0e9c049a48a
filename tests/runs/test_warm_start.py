"""Warm starts: what an earlier run learned, under the ids of grown data."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from recbole_hyper import load, run
from recbole_hyper.config import ConfigError
from recbole_hyper.experiment.seeds import run_seeds
from recbole_hyper.runs.evaluate import evaluate
from tests.conftest import cycle_rows, small, write_inter
from tests.raising import refused


def shop(folder: Path, name: str, items: int, users: int, seed: int = 3) -> list[tuple]:
    """Write a data set; ids come in another order than in any other of these, and what is bigger holds the smaller."""
    rows = []
    for user in range(users):
        own = np.random.default_rng(user)
        chosen = own.permutation(items)[: own.integers(5, 12)]
        rows += [(f"u{user}", f"i{item}", 1000 + 7 * user + step) for step, item in enumerate(chosen)]
    np.random.default_rng(seed + items).shuffle(rows)
    write_inter(folder, name, rows)
    lines = [f"i{item}\tc{item % 4}\t{item / 10}\n" for item in range(items)]
    np.random.default_rng(items).shuffle(lines)
    (folder / name / f"{name}.item").write_text("item_id:token\tcategory:token\tprice:float\n" + "".join(lines))
    return rows


settings = partial(small, epochs=4, learning_rate=0.01)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    shop(folder, "monday", 30, 40)
    shop(folder, "tuesday", 36, 48)
    return folder


@pytest.fixture(scope="module")
def monday(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on monday, which stays."""
    folder = tmp_path_factory.mktemp("monday") / "first"
    run("SASRecCE", "monday", config_dict=settings(data, folder, epochs=1))
    return folder


def vectors(folder: Path, name: str = "item_embedding.weight", kind: str = "item") -> dict[str, torch.Tensor]:
    """Return the rows of a table by original id."""
    tokens = load(folder).item_ids if kind == "item" else load(folder).user_ids
    return dict(zip(tokens.tolist(), load_file(folder / "model.safetensors")[name][1:], strict=False))


FEATURES = {"selected_features": ["category", "price"]}


@pytest.mark.parametrize(
    ("model", "more", "name"),
    [
        ("HSASRecCE", {}, "item_embedding.weight"),
        ("HSASRecCE", {"reuse_item_embeddings": False}, "head.offset"),
        ("SASRecCE", {"ema_decay": 0.9}, "item_embedding.weight"),
        ("SASRecCE", FEATURES, "item_embedding.weight"),
        ("FMLPRecMemory", {"memory_ease": True}, "item_embedding.weight"),
        ("BPR", {"embedding_size": 8}, "item_embedding.weight"),
    ],
)
def test_rows_match_by_id(model: str, more: dict, name: str, data: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(model, "monday", config_dict=settings(data, first, **more))
    keys = {"data_path": str(data), "output_dir": str(second), "init_from": str(first), "learning_rate": 1e-12}
    result = run(dataset="tuesday", config_dict={**keys, "weight_decay": 0.0})
    before, now = vectors(first, name), vectors(second, name)
    assert result["model"] == model
    assert result["config"]["epochs"] == 2
    known = set(before) & set(now)
    assert result["started_from"]["known_items"] == len(known) == len(before)
    assert result["started_from"]["new_items"] == len(now) - len(before) > 0
    for item in known:
        torch.testing.assert_close(now[item], before[item], rtol=0, atol=1e-8)
    if model == "BPR":
        users = [vectors(folder, "user_embedding.weight", "user") for folder in (first, second)]
        for user, vector in users[0].items():
            torch.testing.assert_close(users[1][user], vector, rtol=0, atol=1e-8)


def test_tokens_of_features_are_matched_and_a_new_item_starts_from_them_alone(data: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run("SASRecCE", "monday", config_dict=settings(data, first, **FEATURES))
    keys = {"data_path": str(data), "output_dir": str(second), "init_from": str(first), "learning_rate": 1e-12}
    run(dataset="tuesday", config_dict={**keys, "weight_decay": 0.0})
    before, now = vectors(first), vectors(second)
    assert all(not now[item].abs().max() > 1e-8 for item in set(now) - set(before))
    models = load(first).model, load(second).model
    tables = []
    for model, folder in zip(models, (first, second), strict=True):
        tokens = np.load(folder / "data" / "features" / "0-meaning.npy")
        tables.append(dict(zip(tokens.tolist(), model.item_embedding.features[0].weight[1:], strict=True)))
    for token, vector in tables[0].items():
        torch.testing.assert_close(tables[1][token], vector, rtol=0, atol=1e-8)


def test_a_warm_start_is_shorter_and_slower_by_default(data: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    before = run("SASRecCE", "monday", config_dict=settings(data, first, epochs=12, stopping_step=20))
    keys = {"data_path": str(data), "init_from": str(first)}
    result = run(dataset="tuesday", config_dict={**keys, "output_dir": str(tmp_path / "second")})
    assert result["config"]["learning_rate"] == 0.005
    assert result["config"]["epochs"] == max(2, -(-(before["best_epoch"] + 1) // 4))
    # the next night has the same number of epochs at the same rate
    keys_of_next = {**keys, "init_from": str(tmp_path / "second"), "output_dir": str(tmp_path / "next")}
    after = run(dataset="tuesday", config_dict=keys_of_next)["config"]
    assert [after[key] for key in ("epochs", "learning_rate")] == [result["config"]["epochs"], 0.005]
    (tmp_path / "own.yaml").write_text("epochs: 3\n")
    more = {**keys, "output_dir": str(tmp_path / "third"), "learning_rate": 0.02}
    own = run(dataset="tuesday", config_files=[tmp_path / "own.yaml"], config_dict=more)
    assert (own["config"]["epochs"], own["config"]["learning_rate"]) == (3, 0.02)
    assert "warm start from" in (tmp_path / "third" / "run.log").read_text()
    # it continues as the model that it is
    longer = run(config_dict={"output_dir": str(tmp_path / "third"), "resume": True, "epochs": 4})
    whole = {**more, "output_dir": str(tmp_path / "whole"), "epochs": 4}
    assert run(dataset="tuesday", config_dict=whole)["test"] == longer["test"]


def test_a_warm_start_begins_better_than_a_cold_one(tmp_path: Path) -> None:
    """The cycle is known: its first epoch on more of it loses less than one that starts from nothing."""

    write_inter(tmp_path, "cycle", cycle_rows())
    write_inter(tmp_path, "more", cycle_rows(users=36, items=12))
    run("SASRecCE", "cycle", config_dict=settings(tmp_path, tmp_path / "first", epochs=10, exclude_seen=False))
    keys = settings(tmp_path, tmp_path / "cold", epochs=1, exclude_seen=False)
    run("SASRecCE", "more", config_dict=keys)
    run(
        dataset="more", config_dict={**keys, "output_dir": str(tmp_path / "warm"), "init_from": str(tmp_path / "first")}
    )
    losses = [pd.read_csv(tmp_path / name / "train.csv")["train_loss"][0] for name in ("warm", "cold")]
    assert losses[0] < 0.6 * losses[1]


def test_invalid_warm_starts_are_refused(data: Path, monday: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(data), "output_dir": str(tmp_path / "second"), "init_from": str(monday)}
    with refused(ConfigError, "keys", "that"):
        run(dataset="tuesday", config_dict={**keys, "hidden_size": 32})
    with refused(ConfigError, "missing", "different"):
        run(dataset="tuesday", config_dict={**keys, "item_bias": True})
    with refused(ConfigError, "fitted", "step"):
        run("EASER", "tuesday", config_dict=keys)
    with refused(ConfigError, "has no run"):
        run(dataset="tuesday", config_dict={**keys, "init_from": str(tmp_path / "nothing")})
    with refused(ConfigError, "/5 has no run"):
        run(dataset="tuesday", config_dict={**keys, "init_from": 5})


@pytest.mark.parametrize(
    ("model", "more", "says"),
    [
        ("GRU4RecCE", {}, "model='SASRecCE' there and 'GRU4RecCE' here"),
        (None, {"encoder": "fmlp"}, "encoder='transformer' there and 'fmlp' here"),
        (None, {"loss_type": "sce"}, "loss_type='ce' there and 'sce' here"),
    ],
)
def test_another_model_or_part_is_refused(model, more, says, data, monday, tmp_path) -> None:
    keys = {"data_path": str(data), "output_dir": str(tmp_path / "second"), "init_from": str(monday)}
    with refused(ConfigError, says):
        run(model, "tuesday", config_dict={**keys, **more})
    assert not (tmp_path / "second").exists()


def test_several_seeds_from_one_run_are_refused(data: Path, tmp_path: Path) -> None:
    with refused(ConfigError, "--seeds"):
        run_seeds(dataset="tuesday", seeds=[1, 2], config_dict={"init_from": str(tmp_path / "first")})


POINT = {"split": {"GT": {"valid": 0.7, "test": 0.85}}}


def test_cases_of_which_an_earlier_run_was_trained_are_counted(data, tmp_path, capsys) -> None:
    """Leave-one-out trains on nearly everything; a later split by time finds its cases among that."""
    run("SASRecCE", "monday", config_dict=settings(data, tmp_path / "first", epochs=1))
    keys = {"data_path": str(data), "init_from": str(tmp_path / "first"), "epochs": 1}
    second = run(dataset="monday", config_dict={**keys, "output_dir": str(tmp_path / "second"), "eval_args": POINT})
    cases = second["n_test_cases"]
    assert second["cases_not_new"]["test"] == cases > 0
    assert f"{cases} of {cases} test cases are not new" in capsys.readouterr().out
    # the next run knows what its grandparent has learned, although that is gone
    (tmp_path / "first").rename(tmp_path / "gone")
    again = {**keys, "init_from": str(tmp_path / "second"), "output_dir": str(tmp_path / "third")}
    assert run(dataset="monday", config_dict=again)["cases_not_new"] == second["cases_not_new"]
    found = evaluate(tmp_path / "third")
    assert found["cases_not_new"] == second["cases_not_new"]
    assert "cases are not new" in (tmp_path / "third" / "run.log").read_text()


def test_new_cases_give_no_warning(data, monday, tmp_path, capsys) -> None:
    keys = {"data_path": str(data), "init_from": str(monday), "epochs": 1}
    result = run(dataset="monday", config_dict={**keys, "output_dir": str(tmp_path / "second")})
    assert result["cases_not_new"] == {"valid": 0, "test": 0}
    assert "not new" not in capsys.readouterr().out
    assert "cases_not_new" not in json.loads((monday / "result.json").read_text())


def test_a_refit_counts_as_training(data: Path, tmp_path: Path) -> None:
    """Its test cases are new to a run without refit, and its validation cases are not."""
    first = settings(data, tmp_path / "first", epochs=1, eval_args=POINT, refit=True)
    run("SASRecCE", "monday", config_dict=first)
    keys = {"data_path": str(data), "init_from": str(tmp_path / "first"), "epochs": 1, "refit": False}
    result = run(dataset="monday", config_dict={**keys, "output_dir": str(tmp_path / "second")})
    assert result["cases_not_new"] == {"valid": result["n_valid_cases"], "test": 0}
    assert evaluate(tmp_path / "first")["cases_not_new"] == {"test": 0}


@pytest.mark.parametrize(
    ("model", "named"), [("EASE", ["EASE", "one step"]), ("MultiVAE", ["shape", "train without init_from"])]
)
def test_a_model_of_recbole_that_cannot_start_is_one_line(model, named, data, tmp_path) -> None:
    run(model, "monday", config_dict=settings(data, tmp_path / "first", epochs=1))
    keys = {"data_path": str(data), "output_dir": str(tmp_path / "second"), "init_from": str(tmp_path / "first")}
    with refused(ConfigError, *named):
        run(dataset="tuesday", config_dict=keys)
