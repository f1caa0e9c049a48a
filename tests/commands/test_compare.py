"""The command compare: its keys, the models it skips, and what it refuses."""

import argparse
import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from recbole_hyper.cli import _parse, main
from recbole_hyper.commands import compare as command
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.experiment import compare
from recbole_hyper.files import read_json
from recbole_hyper.sweep import sweep
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.raising import refused


def test_keys_go_to_every_model_or_to_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("epochs: 3\nseed: 1\nEASER: {reg_weight: 8, seed: 5}\neval_args: {mode: uni99}\n")
    second.write_text("seed: 2\nEASER: {reg_weight: 16}\n")
    keys = {"topk": "[5]", "EASER.reg_weight": "64", "eval_args": "{split: {RS: [8, 1, 1]}}"}
    settings, _ = compare.settings_per_model(["Pop", "EASER"], [str(first), str(second)], keys)
    shared = {"epochs": 3, "eval_args": {"mode": "uni99", "split": {"RS": [8, 1, 1]}}, "topk": [5]}
    assert settings["Pop"] == {**shared, "seed": 2}
    assert settings["EASER"] == {**shared, "seed": 5, "reg_weight": 64}
    with refused(ConfigError, "'BPR'", "EASER"):
        compare.settings_per_model(["Pop", "EASER"], [], {"BPR.reg_weight": 1})


def run_here(calls: list[str]) -> Any:
    def runner(model: str, dataset: str, keys: Path, threads: int | None = None, note: Any = None) -> str | None:
        from recbole_hyper import run

        calls.append(model)
        settings = yaml.safe_load(keys.read_text())
        try:
            run(model, dataset, config_dict=settings)
        except ValueError as error:
            return str(error)
        return None

    return runner


def arguments(models: str, folder: Path, seeds: str | None = None, **keys: Any) -> argparse.Namespace:
    words = [f"--{key}={value}" for key, value in keys.items()] + ([f"--seeds={seeds}"] if seeds else [])
    asked = [f"--models={models}", "--dataset=random", f"--output_dir={folder}", "--max_concurrent=1"]
    return _parse(["compare", *asked, *words])


def test_the_command_runs_skips_and_reports(random_data, tmp_path, monkeypatch, capsys) -> None:
    calls: list[str] = []
    monkeypatch.setattr(compare, "run_alone", run_here(calls))
    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", "epochs": 1}
    keys |= {"hidden_size": 8, "EASER.reg_weight": 4.0, "reg_weight": 1.0}
    folder = tmp_path / "table"
    assert command.compare(arguments("Pop,EASER,SASRecCE", folder, **keys)) == 0
    assert calls == ["Pop", "EASER", "SASRecCE"]
    printed = capsys.readouterr().out
    assert "p covers" in printed
    assert "users, one seed" in printed
    assert str(folder / "compare.md") in printed
    assert json.loads((folder / "EASER" / "result.json").read_text())["config"]["reg_weight"] == 4.0
    ranks = {name: pd.read_parquet(folder / name / "cases_test.parquet") for name in calls}
    for name in calls[1:]:  # identical cases in identical order
        pd.testing.assert_frame_equal(ranks[name].drop(columns="rank"), ranks["Pop"].drop(columns="rank"))
    # nothing runs again; a key that Pop does not read does not change its run; one more model, which cannot be fitted
    keys["PureSVDN.rank"] = 500
    keys["hidden_size"] = 8
    assert command.compare(arguments("Pop,EASER,PureSVDN,SASRecCE", folder, **keys)) == 1
    assert calls == ["Pop", "EASER", "SASRecCE", "PureSVDN"]
    output = capsys.readouterr()
    assert "finished before" in output.out
    assert "PureSVDN failed: rank=500" in output.err
    assert "failed: rank=500" in (folder / "compare.md").read_text()
    common = {key: value for key, value in keys.items() if "." not in key}
    assert command.compare(arguments("Pop", folder, **{**common, "hidden_size": 9})) == 0
    assert len(calls) == 4
    with refused(ConfigError, "EASER", "reg_weight"):
        command.compare(arguments("EASER", folder, **{**common, "reg_weight": 7.0}))


def test_models_over_seeds(random_data, tmp_path, monkeypatch, capsys) -> None:
    calls: list[str] = []
    monkeypatch.setattr(compare, "run_alone", run_here(calls))
    keys = {**SMALL, "data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5"}
    keys["epochs"] = 1
    assert command.compare(arguments("Pop,SASRecCE", tmp_path / "table", "7,8,9", **keys)) == 0
    assert calls == ["Pop"] * 3 + ["SASRecCE"] * 3
    printed = capsys.readouterr().out
    assert "[5/6] SASRecCE, seed 8" in printed
    assert "mean and standard deviation (n - 1) over seeds 7, 8, 9." in printed
    assert "mixed model of seeds and users" in printed
    assert "users and 3 seeds" in printed
    runs = [read_json(tmp_path / "table" / "SASRecCE" / f"seed-{seed}" / "result.json") for seed in (7, 8, 9)]
    assert [run["seed"] for run in runs] == [7, 8, 9]
    with open(tmp_path / "table" / "compare.csv", newline="") as file:
        saved = {row["model"]: row for row in csv.DictReader(file)}
    values = [run["test"]["ndcg@5"] for run in runs]
    assert len(set(values)) > 1
    assert float(saved["SASRecCE"]["ndcg@5"]) == pytest.approx(np.mean(values), abs=1e-12)
    assert float(saved["SASRecCE"]["ndcg@5 std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert float(saved["Pop"]["ndcg@5 std"]) == 0.0
    assert saved["Pop"]["seeds"] == "3"
    assert f"{np.mean(values):.4f}" in (tmp_path / "table" / "compare.md").read_text()
    # one more seed trains that one; fewer train nothing
    assert command.compare(arguments("SASRecCE", tmp_path / "table", "9,10", **keys)) == 0
    assert command.compare(arguments("SASRecCE", tmp_path / "table", "7", **keys)) == 0
    assert calls[6:] == ["SASRecCE"]
    with refused(ConfigError, "--Pop.seed=", "--seeds"):
        command.compare(arguments("Pop", tmp_path / "other", "1,2", **keys, **{"Pop.seed": 3}))


@pytest.mark.usefixtures("serial_sweeps")
def test_the_winner_of_a_sweep_is_compared_and_packed(random_data, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5"}
    tuned = tmp_path / "tuned"
    space = {"reg_weight": {"grid_search": [0.01, 30.0]}}
    won = sweep("EASER", "random", space=space, config_dict={**keys, "output_dir": str(tuned)})["best"]["settings"]
    asked = ["compare", "--models=Pop,EASER", "--dataset=random", f"--tuned=EASER={tuned}", "--max_concurrent=1"]
    asked += [f"--{key}={value}" for key, value in keys.items()]
    assert main([*asked, f"--output_dir={tmp_path / 'a'}", f"--package={tmp_path / 'package'}"]) == 0
    result = read_json(tmp_path / "a" / "EASER" / "result.json")
    assert result["config"]["reg_weight"] == won["reg_weight"]
    assert result["test"] == read_json(tuned / "sweep.json")["test"]
    readme = (tmp_path / "package" / "README.md").read_text()
    assert "EASER: 'tuned: sweeps/EASER/" in readme
    assert "Pop: 'not tuned" in readme
    for name in ("trials.csv", "sweep.json", "sweep.yaml"):
        assert (tmp_path / "package" / "sweeps" / "EASER" / name).is_file()
    # the command line wins over the sweep
    assert main([*asked, f"--output_dir={tmp_path / 'b'}", "--EASER.reg_weight=7.0"]) == 0
    assert read_json(tmp_path / "b" / "EASER" / "result.json")["config"]["reg_weight"] == 7.0
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "sweep.json").write_text('{"model": "EASER", "best": {"name": "0000-x"}}')
    for text in (f"Pop={tuned}", f"EASER={tmp_path}", f"BPR={tuned}", f"EASER={tmp_path / 'half'}"):
        assert main([*asked[:3], f"--tuned={text}"]) == 1
        assert f"--tuned={text}: a finished sweep of one of Pop, EASER is expected" in capsys.readouterr().err


def test_a_model_that_fails_with_one_seed_has_no_numbers(random_data, tmp_path, monkeypatch) -> None:
    inner = run_here([])

    def fails(model: str, dataset: str, keys: Path, threads: int | None = None, note: Any = None) -> str | None:
        bad = model == "EASER" and yaml.safe_load(keys.read_text())["seed"] == 2
        return "too bad" if bad else inner(model, dataset, keys)

    monkeypatch.setattr(compare, "run_alone", fails)
    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", "reg_weight": 9.0}
    assert command.compare(arguments("Pop,EASER", tmp_path, "1,2", **keys)) == 1
    with open(tmp_path / "compare.csv", newline="") as file:
        saved = {row["model"]: row for row in csv.DictReader(file)}
    assert saved["EASER"]["note"] == "failed: seed 2: too bad"
    assert saved["EASER"]["ndcg@5"] == ""
    assert float(saved["Pop"]["ndcg@5"]) > 0


def test_a_finished_run_is_reused_only_for_the_same_settings(random_data, tmp_path, monkeypatch, capsys) -> None:
    calls: list[str] = []
    monkeypatch.setattr(compare, "run_alone", run_here(calls))
    keys = {**SMALL, "data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5"}
    keys["eval_args"] = {"split": {"RS": [0.6, 0.2, 0.2]}}

    def ask(folder: str, models: str = "SASRecCE,Pop", **more: Any) -> Any:
        assert command.compare(arguments(models, tmp_path / folder, **{**keys, **more})) == 0
        return json.loads((tmp_path / folder / "SASRecCE" / "result.json").read_text())

    assert ask("grown", epochs=0)["epochs"] == 0
    grown = ask("grown", epochs=2)
    assert calls == ["SASRecCE", "Pop", "SASRecCE"]  # Pop has one epoch in any case
    assert "SASRecCE: continues" in capsys.readouterr().out
    at_once = ask("at-once", "SASRecCE", epochs=2)
    assert (grown["valid"], grown["test"]) == (at_once["valid"], at_once["test"])
    refit = ask("grown", epochs=2, refit=True)
    assert refit["refit_epochs"] == refit["best_epoch"] + 1
    assert refit["test"] == ask("at-once-refit", "SASRecCE", epochs=2, refit=True)["test"] != grown["test"]
    calls.clear()
    with refused(ConfigError, "grown/SASRecCE", "epochs=2"):
        ask("grown", epochs=1, refit=True)
    with refused(ConfigError, "refit=True"):
        ask("grown", epochs=2)
    # a folder that moved holds the same data, another may not
    moved = random_data.rename(tmp_path / "moved")
    again = ask("grown", epochs=2, refit=True, data_path=str(moved))
    assert again == refit
    write_inter(tmp_path / "other", "random", cycle_rows())
    with refused(ConfigError, "data_path="):
        ask("grown", epochs=2, refit=True, data_path=str(tmp_path / "other"))
    assert calls == []


def test_a_killed_run_with_more_epochs_is_refused(random_data, tmp_path, monkeypatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(compare, "run_alone", run_here(calls))
    keys = {**SMALL, "data_path": str(random_data), "use_gpu": False}
    command.compare(arguments("SASRecCE", tmp_path, **keys))
    (tmp_path / "SASRecCE" / "result.json").unlink()
    with refused(ConfigError, "epochs=2"):
        command.compare(arguments("SASRecCE", tmp_path, **{**keys, "epochs": 1}))


@pytest.mark.parametrize(("models", "keys", "named"), [
    ("Pop,SASRecCE", {"hiden_size": 3}, ("Pop", "'hiden_size'", "hidden_size")),
    ("Pop,Nobody", {}, ("'Nobody'",)),
    ("Pop,EASER", {"EASER.reg_weight": -1}, ("EASER: reg_weight=-1",)),
    ("Pop,EASER", {"Pop.exclude_seen": False}, ("share exclude_seen",)),
    ("Pop,EASER", {"Pop.eval_args": {"mode": "uni9"}}, ("share eval_args",)),
    ("Pop,EASER", {"segments": "item.class"}, ("random/random",)),
    ("Pop EASER Pop", {}, ("Pop more than once",)),
])  # fmt: skip
def test_mistakes_show_before_anything_runs(random_data, tmp_path, models, keys, named, monkeypatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(compare, "run_alone", run_here(calls))
    with refused(ConfigError, *named):
        command.compare(arguments(models, tmp_path, data_path=str(random_data), use_gpu=False, **keys))
    assert calls == []


@pytest.mark.parametrize("line", ["compare --models=Pop", "run --model=Pop --seeds=1"])
def test_a_table_of_others_is_not_replaced(line, random_data, tmp_path, capsys) -> None:
    name = "seeds" if "seeds" in line else "compare"
    (table := tmp_path / "out" / f"{name}.csv").parent.mkdir()
    table.write_text("mine")
    for folder, named in ((table.parent, f"has {name}.csv"), (table, "is a file")):
        assert main([*line.split(), "--dataset=random", f"--data_path={random_data}", f"--output_dir={folder}"]) == 1
        assert f"{folder} {named}" in capsys.readouterr().err
    assert ([*table.parent.iterdir()], table.read_text()) == ([table], "mine")


def bound(random_data: Path, models: str, **keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = models.split(",")
    settings, _ = compare.settings_per_model(names, [], {"data_path": str(random_data), "use_gpu": False, **keys})
    configs = compare.check_all({name: name for name in names}, "random", settings, Path("saved"))
    compare.require_shared(configs)
    return configs, settings


def test_models_are_compared_on_files_of_parts(tmp_path: Path) -> None:
    """Files of parts were refused, as if the interactions were a frame."""
    for part in ("train", "test"):
        write_inter(tmp_path, "random", cycle_rows())
        (tmp_path / "random" / "random.inter").rename(tmp_path / "random" / f"random.{part}.inter")
    configs, _ = bound(tmp_path, "Pop,EASER", benchmark_filename="[train,test]")
    assert [config["benchmark_filename"] for config in configs.values()] == [["train", "test"]] * 2
    with refused(ConfigError, "random.valid.inter"):
        bound(tmp_path, "Pop,EASER", benchmark_filename="[train,valid,test]")


def test_a_refusal_says_what_to_type(random_data: Path) -> None:
    """One message names all that has to be shared, as each model has it: what it says to type is enough."""
    with refused(ConfigError, "eval_args, metrics, topk, valid_metric") as error:
        bound(random_data, "DualRec,SASRecCE,FMLPRec")
    lines = str(error.value).splitlines()[1:]
    assert [line.rpartition("(as ")[2] for line in lines] == ["DualRec, FMLPRec)", "SASRecCE)"]
    assert '--metrics="[Hit, NDCG, MRR]"' in lines[0]
    for line in lines:
        keys = dict(re.findall(r'--(\w+)="(.*?)"', line))
        configs, settings = bound(random_data, "DualRec,SASRecCE,FMLPRec", **keys)
        for name, config in configs.items():
            # the process of the model gets the same
            assert Config(name, "random", config_dict=settings[name])["valid_metric"] == config["valid_metric"]
    with refused(ConfigError, '--topk="[5', '10]"', '--topk="[1'):
        bound(random_data, "Pop,SASRecCE", **{"Pop.topk": "[5, 10]"})


def test_models_may_validate_on_other_numbers_of_cases(random_data: Path) -> None:
    """The default chooses ``valid_cases`` by its cost; all models are tested on the same cases."""
    configs, _ = bound(random_data, "FMLPRecMemory,FMLPRecCE,SASRecCE,Pop")
    assert [config["valid_cases"] for config in configs.values()] == ["auto", "auto", None, None]
