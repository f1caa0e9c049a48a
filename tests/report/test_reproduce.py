"""A recipe over known data gives our values, their intervals and the verdicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.experiment import compare
from recbole_hyper.report.recipes import read_recipe, recipes
from recbole_hyper.report.reproduce import reproduce, verdict
from recbole_hyper.yaml_files import read_yaml
from tests.commands.test_compare import run_here
from tests.raising import refused
from tests.sweep.conftest import FAST, random_sequences, write_data


def test_verdict() -> None:
    assert verdict(0.0520, None, None, 0.05, 0.05) == "reproduced (within 5%)"
    assert verdict(0.0530, 0.049, 0.06, 0.05, 0.05) == "reproduced (inside our interval)"
    assert verdict(0.0530, 0.051, 0.06, 0.05, 0.05) == "above the published value"
    assert verdict(0.0450, 0.044, 0.046, 0.05, 0.05) == "below the published value"
    assert verdict(None, None, None, 0.05, 0.05) == "not computed"
    assert verdict(0.0520, 0.049, 0.06, None, 0.05) == "not published"


@pytest.fixture
def recipe(serial_sweeps: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A recipe file over the data set "tiny", with a row that runs and a row that sweeps."""
    monkeypatch.setattr(compare, "run_alone", run_here([]))
    write_data(tmp_path / "data", random_sequences())
    space = tmp_path / "two.yaml"
    space.write_text("learning_rate: {grid_search: [0.001, 0.01]}\n")
    content = {
        "about": "A table",
        "dataset": "tiny",
        "settings": {**FAST, "metrics": ["NDCG", "Hit", "ItemCoverage"]},
        "small": {"epochs": 1},
        "rows": {
            "plain": {
                "model": "SASRecCE",
                "published": {"hit@5": 0.5, "itemcoverage@5": 0.9},
                "small": {"hidden_size": 4},
            },
            "tuned": {"model": "SASRecCE", "space": str(space), "published": {"ndcg@5": 1e-6}, "note": "a note"},
        },
        "published_only": {"Other": {"hit@5": 0.7}},
    }
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps(content))
    return {"name": str(file), "output_dir": tmp_path / "out", "data_path": str(tmp_path / "data"), "max_concurrent": 1}


def test_reproduce(recipe: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = reproduce(**recipe, seeds="2020,2021")
    assert frame[["row", "metric"]].to_numpy().tolist() == [
        ["plain", "hit@5"],
        ["plain", "itemcoverage@5"],
        ["tuned", "ndcg@5"],
    ]
    results = [json.loads(path.read_text()) for path in sorted((tmp_path / "out" / "plain").glob("*/result.json"))]
    assert len(results) == 2
    hit = frame.iloc[0]
    assert hit.ours == pytest.approx(np.mean([result["test"]["hit@5"] for result in results]))
    assert hit.low < hit.ours < hit.high
    assert hit.difference == pytest.approx(hit.ours - 0.5)
    assert frame.iloc[1][["low", "high"]].isna().all()
    assert frame.iloc[2].verdict == "above the published value"
    assert frame.iloc[2].note == "a note"
    assert (tmp_path / "out" / "sweeps" / "tuned" / "sweep.json").is_file()
    assert "Other" in (tmp_path / "out" / "table.html").read_text()
    compared = pd.read_csv(tmp_path / "out" / "compare.csv").set_index("model")
    assert hit.ours == compared.loc["plain", "hit@5"]
    assert compared["p_value"].notna().sum() == 1
    assert pd.read_csv(tmp_path / "out" / "table.csv").ours.tolist() == pytest.approx(frame.ours.tolist())

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a finished run is repeated")

    monkeypatch.setattr("recbole_hyper.runs.run._train_and_test", fail)
    again = reproduce(**recipe, seeds="2020,2021")
    assert again.ours.tolist() == frame.ours.tolist()


def test_small_budget_gives_no_verdict(recipe: dict, tmp_path: Path) -> None:
    frame = reproduce(**recipe, budget="small", rows=["plain"])
    assert set(frame.verdict) == {""}
    config = read_yaml(tmp_path / "out" / "plain" / "config.yaml")
    assert (config["epochs"], config["hidden_size"]) == (1, 4)
    assert "cannot be compared" in (tmp_path / "out" / "table.html").read_text()


def test_the_short_budget_runs_the_rows_that_have_short_settings(recipe: dict, tmp_path: Path) -> None:
    with refused(ConfigError, "no row", "--budget=short"):
        reproduce(**recipe, budget="short")
    content = json.loads(Path(recipe["name"]).read_text())
    content["rows"]["tuned"]["short"] = {"epochs": 3, "learning_rate": 0.03}
    Path(recipe["name"]).write_text(json.dumps(content))
    with refused(ConfigError, "'plain'"):
        reproduce(**recipe, budget="short", rows=["plain", "tuned"])
    frame = reproduce(**recipe, budget="short")
    assert frame[["row", "verdict"]].to_numpy().tolist() == [["tuned", "above the published value"]]
    config = read_yaml(tmp_path / "out" / "tuned" / "config.yaml")
    assert (config["epochs"], config["learning_rate"]) == (3, 0.03)
    assert "quicker settings" in (tmp_path / "out" / "table.html").read_text()


def test_the_small_budget_sweeps_the_small_space(recipe: dict, tmp_path: Path) -> None:
    with refused(ConfigError, "two.yaml"):
        reproduce(**recipe, budget="small")
    assert not (tmp_path / "out").exists()
    with open(tmp_path / "two.yaml", "a") as file:
        file.write("small: {learning_rate: {grid_search: [0.1]}}\n")
    reproduce(**recipe, budget="small", rows=["tuned"])
    outcome = json.loads((tmp_path / "out" / "sweeps" / "tuned" / "sweep.json").read_text())
    assert (outcome["planned"], outcome["best"]["settings"]) == (1, {"learning_rate": 0.1})


def test_a_row_that_was_not_published_shows_what_it_reaches(recipe: dict, tmp_path: Path) -> None:
    content = json.loads(Path(recipe["name"]).read_text())
    del content["rows"]["plain"]["published"], content["rows"]["tuned"]
    Path(recipe["name"]).write_text(json.dumps(content))
    frame = reproduce(**recipe)
    result = json.loads((tmp_path / "out" / "plain" / "result.json").read_text())
    assert frame.set_index("metric").ours.to_dict() == result["test"]
    assert set(frame.verdict) == {"not published"}
    assert frame[["published", "difference", "relative"]].isna().all(axis=None)
    assert pd.read_csv(tmp_path / "out" / "table.csv").published.isna().all()


def test_runs_of_another_budget_are_not_reused(recipe: dict, tmp_path: Path) -> None:
    reproduce(**recipe, budget="small", rows=["plain"])
    with refused(ConfigError, "out/plain", "hidden_size", "output_dir"):
        reproduce(**recipe, rows=["plain"])
    # more epochs continue
    content = json.loads(Path(recipe["name"]).read_text())
    del content["rows"]["plain"]["small"]
    Path(recipe["name"]).write_text(json.dumps(content))
    recipe["output_dir"] = tmp_path / "grown"
    reproduce(**recipe, budget="small", rows=["plain"])
    full = reproduce(**recipe, rows=["plain"])
    assert json.loads((tmp_path / "grown" / "plain" / "result.json").read_text())["epochs"] == 2
    alone = reproduce(**{**recipe, "output_dir": tmp_path / "alone"}, rows=["plain"])
    assert alone.ours.tolist() == full.ours.tolist()


def test_faults(recipe: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with refused(ConfigError, "'gone'"):
        reproduce(**recipe, rows=["gone"])
    with refused(ConfigError, "'tiny'", "budget="):
        reproduce(**recipe, budget="tiny")
    with refused(ConfigError, "'tiny'"):
        reproduce(**{**recipe, "data_path": str(tmp_path / "empty")})
    content = json.loads(Path(recipe["name"]).read_text())
    Path(recipe["name"]).write_text(json.dumps({**content, "tolerence": 1}))
    with refused(ConfigError, "own.yaml", "tolerence"):
        reproduce(**recipe)
    assert main(["reproduce", "sce-table4-beaty"]) == 1
    assert "did you mean sce-table4-beauty" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for name in recipes():
        assert f"\n{name} " in out
        assert f"  {read_recipe(name).dataset} " in out
