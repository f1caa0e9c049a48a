"""Sweeps in one process: selection, failures, resume, faults."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from recbole_hyper.config import ConfigError
from recbole_hyper.runs.load import load
from recbole_hyper.runs.run import run
from recbole_hyper.sweep import driver, sweep, trial
from recbole_hyper.sweep.trial import Plan, Trial
from tests.raising import refused
from tests.sweep.conftest import SPACE, local, random_sequences, write_data

pytestmark = pytest.mark.usefixtures("serial_sweeps")


def test_sweep_selects_on_validation_and_tests_the_winner(swept: Any, tmp_path: Path) -> None:
    keys, folder_of_sweep, outcome, printed = swept
    lines = [line for line in printed.splitlines() if line.startswith("[")]
    # how many are left, and about how long they take
    assert [line.partition("/4]")[0] for line in lines] == ["[1", "[2", "[3", "[4"]
    assert [re.search(r"\((\d) left, about [\d.]+ s\)$", line)[1] for line in lines[:3]] == ["3", "2", "1"]  # type: ignore[index]
    assert "left" not in lines[3]
    trials = pd.read_csv(folder_of_sweep / "trials.csv")
    assert outcome["trials"] == {"finished": 4}
    assert outcome["best"]["score"] == trials.score.max()
    assert trials.groupby(["learning_rate", "n_layers"]).size().tolist() == [1, 1, 1, 1]
    for folder in (folder_of_sweep / "trials").iterdir():
        result = json.loads((folder / "result.json").read_text())
        assert result["test"] == {}
        assert result["n_test_cases"] == 0
        assert {"config.yaml", "train.csv", "run.log", "model.safetensors"} <= {path.name for path in folder.iterdir()}
        assert not (folder / "data").exists()
    # the winner can recommend; its trial, from which it continues, could not
    (winner,) = (folder_of_sweep / "best").iterdir()
    assert not load(winner).differences
    # the tested weights are those of the trial: the same run from the shell gives the same numbers
    alone = run(
        "SASRecCE", "tiny", config_dict={**keys, **outcome["best"]["settings"], "output_dir": str(tmp_path / "r")}
    )
    assert outcome["test"] == pytest.approx(alone["test"])
    assert outcome["best"]["valid"] == pytest.approx(alone["valid"])


def test_selection_ignores_test(tmp_path: Path, keys: dict) -> None:
    """On random data the best trial on validation need not be the best on test; here it is not."""
    seeds = [0, 5]
    outcome = local(keys, tmp_path / "s", {"seed": {"grid_search": seeds}})
    tested = {}
    for seed in seeds:
        result = run("SASRecCE", "tiny", config_dict={**keys, "seed": seed, "output_dir": str(tmp_path / f"r{seed}")})
        tested[seed] = (result["best_valid_score"], result["test"]["ndcg@5"])
    best_valid = max(tested, key=lambda seed: tested[seed][0])
    best_test = max(tested, key=lambda seed: tested[seed][1])
    assert best_valid != best_test, "the data must tell the two apart"
    assert outcome["best"]["settings"] == {"seed": best_valid}
    assert outcome["test"]["ndcg@5"] == pytest.approx(tested[best_valid][1])


def test_trials_do_not_depend_on_test_targets(tmp_path: Path, keys: dict) -> None:
    # the first user has seen everything, so that ids do not depend on the items that change
    sequences = [list(range(25)), *random_sequences()]
    scores = []
    for name in ("one", "two"):
        if name == "two":
            changed = [[*row[:-1], next(item for item in range(25) if item not in row)] for row in sequences[1:]]
            sequences = [sequences[0], *changed]
        write_data(tmp_path / name, sequences)
        space = {"learning_rate": {"grid_search": [0.01]}}
        one = {**keys, "data_path": str(tmp_path / name), "epochs": 1}
        outcome = local(one, tmp_path / f"s-{name}", space)
        frame = pd.read_csv(tmp_path / f"s-{name}" / "trials.csv")
        scores.append((frame.score.tolist(), outcome["best"]["name"], outcome["test"]))
    assert scores[0][:2] == scores[1][:2]
    assert scores[0][2] != scores[1][2]


def test_constants_of_the_space_count_for_all_and_the_command_line_wins(keys: dict, tmp_path: Path) -> None:
    space = {"valid_metric": "Hit@5", "epochs": 7, "learning_rate": {"grid_search": [0.01]}}
    outcome = sweep(
        "SASRecCE", "tiny", space=space, config_dict={**keys, "output_dir": str(tmp_path / "s")} | {"epochs": 1},
    )  # fmt: skip
    assert outcome["valid_metric"] == "ndcg@5"  # the fixture gives it on the command line
    assert set(pd.read_csv(tmp_path / "s" / "trials.csv").epochs) == {1}
    # and wins still when the sweep is resumed without it
    again = sweep(config_dict={"output_dir": str(tmp_path / "s"), "resume": True})
    assert again["best"] == outcome["best"]
    kept = {key: value for key, value in keys.items() if key not in ("valid_metric", "epochs")}
    space["epochs"] = 1
    outcome = sweep("SASRecCE", "tiny", space=space, config_dict={**kept, "output_dir": str(tmp_path / "t")})
    assert outcome["valid_metric"] == "hit@5"
    frame = pd.read_csv(tmp_path / "t" / "trials.csv")
    assert frame.score.tolist() == frame["valid_hit@5"].tolist()


def test_eval_args_are_merged_key_by_key(keys: dict, tmp_path: Path) -> None:
    space = {"eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}, "learning_rate": {"grid_search": [0.001]}}
    (tmp_path / "keys.yaml").write_text("eval_args: {group_by: user, mode: full, split: {LS: valid_and_test}}\n")
    given = {**keys, "epochs": 1, "output_dir": str(tmp_path / "s"), "eval_args": "{mode: uni5}"}
    sweep("SASRecCE", "tiny", space=space, config_files=[tmp_path / "keys.yaml"], config_dict=given)
    (result,) = (json.loads(path.read_text()) for path in (tmp_path / "s" / "trials").glob("*/result.json"))
    assert result["eval_args"]["split"] == {"RS": [0.6, 0.2, 0.2]}  # the space wins over the file
    assert result["eval_args"]["mode"] == {"valid": "uni5", "test": "uni5"}  # and the command line over both


def test_a_split_without_a_test_part(keys: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"eval_args": {"split": {"LS": "valid_only"}}, "epochs": 1}
    outcome = local({**keys, **more}, tmp_path / "s", {"learning_rate": {"grid_search": [0.01]}})
    assert outcome["test"] == {}
    score = outcome["best"]["valid"]["ndcg@5"]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["ndcg@5", f"{score:.4f}", "-"] in lines
    assert json.loads((tmp_path / "s" / "sweep.json").read_text())["best"]["score"] == pytest.approx(score, abs=1e-6)


def test_failed_trials_are_recorded_and_the_sweep_goes_on(keys: dict, tmp_path: Path) -> None:
    # 8 does not divide by 3 heads, but 9 does; a rate of 1e30 makes the loss infinite
    space = {
        "hidden_size": {"grid_search": [8, 9]},
        "n_heads": {"grid_search": [3]},
        "learning_rate": {"grid_search": [0.001, 1e30]},
    }
    outcome = local({**keys, "epochs": 1}, tmp_path / "s", space)
    assert outcome["trials"] == {"finished": 1, "failed": 3}
    assert pd.read_csv(tmp_path / "s" / "trials.csv").reason.str.contains("heads").sum() == 2
    assert outcome["best"]["settings"] == {"hidden_size": 9, "n_heads": 3, "learning_rate": 0.001}


def test_when_every_trial_fails_the_reasons_are_told(keys, tmp_path, monkeypatch) -> None:
    def train(*arguments: Any, **more: Any) -> Any:
        raise ValueError("the\nsame each time")

    monkeypatch.setattr(Plan, "train", train)
    with refused(ConfigError, "ValueError"):
        local(keys, tmp_path / "s")
    assert pd.read_csv(tmp_path / "s" / "trials.csv").status.tolist() == ["failed"] * 4


def test_resume_repeats_nothing_and_finds_the_same_winner(swept, tmp_path, monkeypatch) -> None:
    keys, _, whole, _ = swept
    ran: list[str] = []
    original = trial._outcome

    def train(plan: Any, entry: Any, *more: Any) -> Any:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(entry.name)
        return original(plan, entry, *more)

    monkeypatch.setattr(trial, "_outcome", train)
    with pytest.raises(KeyboardInterrupt):
        local(keys, tmp_path / "cut")
    first = list(ran)
    times = {name: os.stat(tmp_path / "cut" / "trials" / name / "result.json").st_mtime_ns for name in first}
    ran.clear()
    monkeypatch.setattr(
        trial, "_outcome", lambda plan, entry, *more: (ran.append(entry.name), original(plan, entry, *more))[1]
    )
    resumed = sweep(config_dict={"output_dir": str(tmp_path / "cut"), "resume": True})
    assert len(first) == 2
    assert not set(first) & set(ran)
    assert len(ran) == 2
    for name, time in times.items():
        assert os.stat(tmp_path / "cut" / "trials" / name / "result.json").st_mtime_ns == time
    assert resumed["best"]["name"] == whole["best"]["name"]
    assert resumed["best"]["score"] == whole["best"]["score"]
    assert resumed["test"] == whole["test"]
    # once more: nothing is left to do, and test is not evaluated again
    final = next((tmp_path / "cut" / "best").glob("*/result.json"))
    time = final.stat().st_mtime_ns
    ran.clear()
    sweep(config_dict={"output_dir": str(tmp_path / "cut"), "resume": True})
    assert ran == []
    assert final.stat().st_mtime_ns == time


@pytest.mark.parametrize(
    "option",
    [
        {"time_budget": float("nan")},
        {"time_budget": -1.0},
        {"num_samples": 0},
        {"max_concurrent": 0},
        {"cpu": float("nan")},
    ],
)
def test_options_that_cannot_be(option: dict[str, Any], tmp_path: Path) -> None:
    more = {"resources": option} if "cpu" in option else option
    with refused(ConfigError, next(iter(option))):
        sweep("SASRecCE", "tiny", space=SPACE, config_dict={"output_dir": str(tmp_path / "s")}, **more)
    assert not (tmp_path / "s").exists()


def test_a_plain_list_is_one_value(keys: dict, tmp_path: Path) -> None:
    with refused(ConfigError, "to try each value of learning_rate, write {grid_search: [...]}"):
        local(keys, tmp_path / "s", {"learning_rate": [0.001, 0.01]})
    space = {"learning_rate": {"grid_search": [0.001, 0.01]}, "topk": [1, 5], "adam_betas": [0.9, 0.98], "epochs": 1}
    kept = {key: value for key, value in keys.items() if key != "topk"}
    outcome = local(kept, tmp_path / "s", space)
    assert outcome["trials"] == {"finished": 2}
    frame = pd.read_csv(tmp_path / "s" / "trials.csv")
    assert frame["learning_rate"].tolist() == [0.001, 0.01]
    result = json.loads(next((tmp_path / "s" / "trials").glob("*/result.json")).read_text())
    assert (result["config"]["topk"], result["config"]["adam_betas"]) == ([1, 5], [0.9, 0.98])


def test_time_budget_leaves_the_rest_for_a_resume(swept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, whole, _, _ = swept
    first = {key: {"grid_search": space["grid_search"][:1]} for key, space in SPACE.items()}
    clock = iter(range(0, 10_000, 5)).__next__
    for module in ("sweep.workers", "experiment.executor"):
        monkeypatch.setattr(f"recbole_hyper.{module}.perf_counter", clock)
    with refused(ConfigError, "none of 1", "--resume=True"):
        local(keys, tmp_path / "s", first, time_budget=7)
    record = trial.read_record(next((tmp_path / "s" / "trials").iterdir()))
    assert record is not None
    assert (record.status, record.epochs) == ("unfinished", 1)
    monkeypatch.undo()
    assert local(keys, tmp_path / "s", first, resume=True)["trials"] == {"finished": 1}
    assert "resuming at epoch 1" in (tmp_path / "s" / "trials" / record.name / "run.log").read_text()
    learned = [load_file(folder / "trials" / record.name / "model.safetensors") for folder in (whole, tmp_path / "s")]
    assert all(torch.equal(learned[0][name], learned[1][name]) for name in {*learned[0], *learned[1]})


def test_a_winner_that_cannot_go_on_is_trained_anew(swept, tmp_path, monkeypatch) -> None:
    """What the process of a trial left cannot always be read."""
    keys, _, whole, _ = swept
    test = driver.run_final

    def damaged(plan: Plan, best: Trial) -> Path:
        (plan.trials / best.name / "checkpoint.pt").write_bytes(b"half")
        return test(plan, best)

    monkeypatch.setattr(driver, "run_final", damaged)
    best = {key: {"grid_search": [value]} for key, value in whole["best"]["settings"].items()}
    outcome = local(keys, tmp_path / "s", best)
    assert outcome["test"] == whole["test"]
    assert "resuming" not in (tmp_path / "s" / outcome["best_run"] / "run.log").read_text()


def test_a_damaged_result_of_the_winner_is_one_line(keys: dict, tmp_path: Path) -> None:
    folder, space = tmp_path / "s", {"learning_rate": {"grid_search": [0.01]}}
    outcome = local({**keys, "epochs": 1}, folder, space)
    winner = folder / outcome["best_run"]
    file = winner / "result.json"
    for text in ("{}", "[]", "{"):
        file.write_text(text)
        with refused(ConfigError, str(file), f"delete the folder {winner}", "--resume=True") as raised:
            local({**keys, "epochs": 1}, folder, space, resume=True)
        assert "\n" not in str(raised.value)
    shutil.rmtree(winner)
    assert local({**keys, "epochs": 1}, folder, space, resume=True)["test"] == outcome["test"]


def test_refit_of_the_winner_follows_the_protocol(keys: dict, tmp_path: Path) -> None:
    more = {"eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}, "refit": True}
    outcome = local({**keys, **more}, tmp_path / "s", {"learning_rate": {"grid_search": [0.01]}})
    final = json.loads((tmp_path / "s" / outcome["best_run"] / "result.json").read_text())
    assert final["refit_epochs"] == final["best_epoch"] + 1
    for path in (tmp_path / "s" / "trials").glob("*/result.json"):
        assert json.loads(path.read_text())["refit_epochs"] == 0


def test_select() -> None:
    records = [Trial(0, {}, "finished", score=0.1), Trial(1, {}, "finished", score=0.3)]
    records += [Trial(2, {}, "finished", score=0.3), Trial(3, {}, "stopped", score=0.9), Trial(5, {}, "failed")]
    assert driver.select(reversed(records), bigger=True) == records[1]
    assert driver.select(records, bigger=False) == records[0]
    assert driver.select(records[3:], bigger=True) is None
