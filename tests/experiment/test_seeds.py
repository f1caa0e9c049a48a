"""Runs with several seeds: what each is, what is reused, what is refused; the split is the same in all."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.experiment import seeds as runs_seeds
from recbole_hyper.experiment.seeds import read_seeds, run_seeds
from recbole_hyper.files import read_json
from recbole_hyper.runs.build import read_data
from tests.conftest import SMALL
from tests.raising import refused


def keys_of(path: Path, out: Path, **keys: Any) -> dict[str, Any]:
    return {**SMALL, "data_path": str(path), "epochs": 1, "output_dir": str(out), **keys}


def test_each_seed_equals_a_single_run(random_data, tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "out"
    keys = keys_of(random_data, out)
    found = run_seeds("SASRecCE", "random", seeds=[3, 5], config_dict=keys)
    alone = run("SASRecCE", "random", config_dict={**keys, "seed": 5, "output_dir": str(tmp_path / "alone")})
    results = {seed: read_json(out / f"seed-{seed}" / "result.json") for seed in (3, 5)}
    assert results[5]["valid"] == alone["valid"]
    assert results[5]["test"] == alone["test"]
    assert results[3]["valid"] != alone["valid"]
    assert found["results"] == results
    name = "ndcg@10"
    values = [results[seed]["test"][name] for seed in (3, 5)]
    assert found["test"][name]["mean"] == pytest.approx(np.mean(values))
    assert found["test"][name]["std"] == pytest.approx(np.std(values, ddof=1))
    with open(out / "seeds.csv", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["metric"] == name)
    assert [float(row["test seed 3"]), float(row["test seed 5"])] == values
    assert float(row["test std"]) == found["test"][name]["std"]
    assert "seeds 3, 5. Mean and standard deviation (n - 1)" in (out / "seeds.md").read_text()

    # what is finished is not run again, more epochs go on, and so does what was stopped before its result
    trained: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Any:
        trained.append(named["config_dict"]["seed"])
        return run(*arguments, **named)

    monkeypatch.setattr(runs_seeds, "run", counted)
    capsys.readouterr()
    again = run_seeds("SASRecCE", "random", seeds="5,3,8", config_dict={**keys, "resume": True})
    assert trained == [8]
    assert again["results"][5] == results[5]
    assert "[1/3] seed 5: finished before" in capsys.readouterr().out
    (out / "seed-3" / "result.json").unlink()
    longer = run_seeds("SASRecCE", "random", seeds=[3, 5], config_dict={**keys, "epochs": 2})
    assert trained == [8, 3, 5]
    whole = run("SASRecCE", "random", config_dict={**keys, "epochs": 2, "seed": 3, "output_dir": str(tmp_path / "b")})
    assert longer["results"][3]["test"] == whole["test"]


@pytest.mark.parametrize(
    "given", ["", "1,x", "1,,2", "1.5", "-1", "True", [], [1, True], ["a"], "1,2.0", None, "1,4294967296"]
)
def test_invalid_seeds_are_refused(given: Any) -> None:
    with refused(ConfigError, "2**32", "--seeds=1,2,3"):
        read_seeds(given, {})


def test_seeds_are_read() -> None:
    assert read_seeds("1,2,3", {}) == read_seeds("[1, 2, 3]", {}) == read_seeds(range(1, 4), {}) == [1, 2, 3]
    assert read_seeds("7", {"epochs": 1}) == [7]
    with refused(ConfigError, "there", "twice"):
        read_seeds("2,1,2", {})
    with refused(ConfigError, "--seed=4", "--seeds", "--seed"):
        read_seeds("1", {"seed": 4})


def test_invalid_warm_starts_are_refused_before_training(random_data, tmp_path, monkeypatch, capsys) -> None:
    keys = keys_of(random_data, tmp_path / "one")
    run("Pop", "random", config_dict=keys)

    def never(*arguments: Any, **named: Any) -> None:
        raise AssertionError("a refused configuration is run")

    with refused(ConfigError, "output_dir"):
        run_seeds("Pop", "random", seeds=[1], config_dict=keys)
    run_seeds("Pop", "random", seeds=[1, 2], config_dict=keys_of(random_data, tmp_path / "many"))
    with refused(ConfigError, "output_dir"):
        run("Pop", "random", config_dict=keys_of(random_data, tmp_path / "many"))
    monkeypatch.setattr(runs_seeds, "run", never)
    with refused(ConfigError, "seed-2"):
        run_seeds("Pop", "random", seeds=[3, 2], config_dict=keys_of(random_data, tmp_path / "many", topk=[2, 10]))
    typed = [f"--{key}={value}" for key, value in keys_of(random_data, tmp_path / "new").items()]
    assert main(["run", "--model=Pop", "--dataset=random", "--seeds=1,2", "--seed=3", *typed]) == 1
    assert "error: --seed=3 and --seeds are both set" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_command(random_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = [f"--{key}={value}" for key, value in keys_of(random_data, tmp_path / "out").items()]
    assert main(["run", "--model=Pop", "--dataset=random", "--seeds=1,2", *typed]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^ndcg@10 +\S+ ± 0\.0000 +\S+ ± 0\.0000$", printed, flags=re.MULTILINE)
    assert str(tmp_path / "out" / "seeds.csv") in printed


@pytest.mark.parametrize("given", [
    {"split": {"LS": "valid_and_test"}},
    {"split": {"RS": [0.6, 0.2, 0.2]}},
    {"split": {"RS": [0.6, 0.2, 0.2]}, "order": "RO"},
    {"split": {"GT": {"valid": 0.7, "test": 0.85}}},
    {"split": {"TU": {"point": 0.7, "history": "after", "min_item_users": 1, "min_user_items": 2}}},
])  # fmt: skip
@pytest.mark.parametrize("mode", ["full", "uni5", "pop5"])
def test_the_split_does_not_depend_on_the_seed(random_data: Path, given: dict[str, Any], mode: str) -> None:
    def arrays(seed: int, candidate_seed: int = 2020) -> list[np.ndarray]:
        keys = {"data_path": str(random_data), "eval_args": {**given, "mode": mode}, "eval_cases": 3}
        keys |= {"seed": seed, "candidate_seed": candidate_seed}
        # what trains before a split, or a model, must not reach it either
        np.random.seed(seed)  # noqa: NPY002
        found = read_data(Config("Pop", "random", config_dict=keys))[1]
        cases = [
            array
            for part in (found.valid, found.test)
            for array in (part.rows, part.ends, part.starts, part.candidates)
        ]
        return [array for array in (found.train_lengths, *cases) if array is not None]

    first = arrays(1)
    assert len(first) == (7 if mode == "full" else 9)
    for one, other in zip(first, arrays(2), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(not np.array_equal(one, other) for one, other in zip(first, arrays(1, 7), strict=True))


def test_a_finished_run_on_another_frame_is_refused(tmp_path: Path) -> None:
    """Its figures passed for those of the new frame."""
    rows = [(f"u{n % 9}", f"i{n * n % 7}", n) for n in range(90)]
    frame = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"])
    keys = {"output_dir": str(tmp_path / "s"), "use_gpu": False}
    first = run_seeds("Pop", interactions=frame, seeds=[1], config_dict=keys)
    assert run_seeds("Pop", interactions=frame, seeds=[1], config_dict=keys)["test"] == first["test"]
    with refused(ConfigError, "other data than these interactions"):
        run_seeds("Pop", interactions=frame[:60], seeds=[1, 2], config_dict=keys)
