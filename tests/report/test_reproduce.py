"""Recipes: every one is read and bound; a recipe over known data gives ours, the interval and the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.config.binding import all_known_keys, model_class
from recbole_hyper.report.recipes import read_recipe, recipes
from recbole_hyper.report.reproduce import reproduce, verdict
from recbole_hyper.yaml_files import read_yaml
from tests.sweep.conftest import FAST, random_sequences, write_data


@pytest.mark.parametrize("name", list(recipes()))
def test_every_recipe_is_read_and_its_models_and_keys_are_known(name: str) -> None:
    recipe = read_recipe(name)
    text = recipes()[name].read_text(encoding="utf-8")
    assert name.startswith(f"{recipes()[name].stem}-")
    assert text.startswith(f"# recbole-hyper reproduce {recipes()[name].stem}-DATASET\n")
    assert "{" not in recipe.about
    known = all_known_keys()
    for title, row in recipe.rows.items():
        assert model_class(row.model)
        for keys in (recipe.settings, recipe.small, recipe.short, row.settings, row.small, row.short):
            assert set(keys) <= known, (title, set(keys) - known)
        topk = {**recipe.settings, **row.settings}["topk"]
        assert bool(row.published) != name.startswith(("dualrec-ablations", "records"))
        for metric, value in row.published.items():
            assert 0 < value < 1
            assert int(metric.partition("@")[2]) in topk


def test_every_recipe_trains_on_the_windows_of_its_paper() -> None:
    """The codes of HSASRec, SCE and FMLP-Rec take the newest window of a user, that of DualRec a random one."""
    for name in recipes():
        recipe = read_recipe(name)
        if name.startswith("records"):
            continue  # ours
        for title, row in recipe.rows.items():
            if row.model in ("EASER", "PureSVDN"):
                continue
            wanted = "random" if name.startswith("dualrec") and row.model != "FMLPRec" else "last"
            assert {**recipe.settings, **row.settings}.get("train_windows") == wanted, (name, title)


def test_there_is_a_recipe_for_each_table_of_quality() -> None:
    tables: dict[str, list[str]] = {}
    for name, path in recipes().items():
        tables.setdefault(path.stem, []).append(name.removeprefix(f"{path.stem}-"))
    dualrec = ["beauty", "sports", "toys", "yelp"]
    assert tables == {
        **{f"dualrec-{table}": dualrec for table in ("ablations", "table2", "table3", "table4", "table5")},
        "records": ["beauty", "sports", "ml-1m"],
        "hsasrec-table1": ["arts", "grocery", "ml-1m", "office"],
        "sce-table3": ["beeradvocate", "behance", "gowalla", "kindle", "yelp-sce"],
        "sce-table4": ["beauty"],
    }


def test_a_table_holds_its_data_sets_and_their_own_settings() -> None:
    beauty, movies = read_recipe("dualrec-table2-beauty"), read_recipe("hsasrec-table1-ml-1m")
    assert (beauty.name, beauty.dataset) == ("dualrec-table2-beauty", "amazon-beauty-sequences")
    assert beauty.about == "DualRec, Table 2: Beauty, leave-one-out, 99 negatives"
    assert beauty.prepare == "recbole-hyper prepare amazon-beauty-sequences"
    assert beauty.settings["eval_args"] == {"split": {"LS": "valid_and_test"}, "mode": "uni99"}
    assert beauty.rows["DualRec"].published["mrr@100"] == 0.3302
    assert beauty.published_only["GCSAN"]["hit@1"] == 0.1973
    assert movies.settings["MAX_ITEM_LIST_LENGTH"] == 200
    assert (movies.settings["valid_metric"], movies.settings["topk"]) == ("Hit@10", [10])
    row = movies.rows["HSASRecCE"]
    code = {"train_windows": "last", "attention_init": "fused", "attend_pads": True}
    assert row.settings == {**code, "curvature": 0.015283691692054992}
    assert movies.rows["SASRecCE"].settings == {**code, "item_bias": True}
    # FMLP-Rec's own code lowers no rate
    assert beauty.settings["lr_plateau"] == {"factor": 0.5, "patience": 5, "threshold": 1e-4}
    assert beauty.rows["FMLP-Rec"].settings["lr_plateau"] is None
    assert (row.space, row.search, row.num_samples, row.small) == (
        "hsasrec-code", "random", 60, {"MAX_ITEM_LIST_LENGTH": 50},
    )  # fmt: skip
    assert read_recipe("hsasrec-table1-office").settings["MAX_ITEM_LIST_LENGTH"] == 50
    sce = read_recipe("sce-table3-yelp-sce").rows["SASRec-SCE"].settings
    assert (sce["epochs"], sce["sce_n_buckets"], sce["sce_mix"]) == (300, 470, False)


def test_a_table_without_a_data_set_is_told_which_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"'dualrec-table5' has several data sets; name one: dualrec-table5-beauty, dualr"
    ):
        read_recipe("dualrec-table5")
    with pytest.raises(ConfigError, match=r"'dualrec-table5-toy' is unknown; did you mean dualrec-table5-toys"):
        read_recipe("dualrec-table5-toy")


def test_a_table_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"model": "SASRecCE", "settings": {"n_layers": 1, "epochs": 3}, "note": "of the table"}
    sets = {"a-b": {"dataset": "tiny", "rows": {"one": {"settings": {"epochs": 5}, "note": "own"}}}, "c": None}
    content: dict[str, Any] = {"about": "Mine: {title}", "protocol": "temporal_users", "rows": {"one": row}}
    Path("my-own.yaml").write_text(json.dumps({**content, "datasets": sets}))
    found = read_recipe("my-own-a-b")
    assert (found.name, found.about, found.dataset) == ("my-own-a-b", "Mine: a-b", "tiny")
    assert found.settings["eval_args"]["split"] == {"TU": 0.95}
    assert (found.rows["one"].settings, found.rows["one"].note) == ({"n_layers": 1, "epochs": 5}, "own")
    assert read_recipe("my-own-c").rows["one"].settings == row["settings"]
    for name in ("my-own.yaml", "my-own"):
        with pytest.raises(ConfigError, match="name one: my-own-a-b, my-own-c"):
            read_recipe(name)
    with pytest.raises(ConfigError, match="'my-own-ab' is unknown; did you mean my-own-a-b"):
        read_recipe("my-own-ab")
    for wrong, message in (
        ({"rows": {"two": {}}}, "data set c: the table has no row 'two'; its rows: one"),
        ({"metrics": []}, "data set c: unknown key 'metrics'"),
    ):
        Path("my-own.yaml").write_text(json.dumps({**content, "datasets": {"c": wrong}}))
        with pytest.raises(ConfigError, match=message):
            read_recipe("my-own-c")


def test_verdict() -> None:
    assert verdict(0.0520, None, None, 0.05, 0.05) == "reproduced (within 5%)"
    assert verdict(0.0530, 0.049, 0.06, 0.05, 0.05) == "reproduced (inside our interval)"
    assert verdict(0.0530, 0.051, 0.06, 0.05, 0.05) == "above the published value"
    assert verdict(0.0450, 0.044, 0.046, 0.05, 0.05) == "below the published value"
    assert verdict(None, None, None, 0.05, 0.05) == "not computed"
    assert verdict(0.0520, 0.049, 0.06, None, 0.05) == "not published"


@pytest.fixture
def recipe(serial_sweeps: None, tmp_path: Path) -> dict[str, Any]:
    """A recipe file over the data set "tiny", with a row that runs and a row that sweeps."""
    write_data(tmp_path / "data", random_sequences())
    space = tmp_path / "two.yaml"
    space.write_text("learning_rate: {grid: [0.001, 0.01]}\n")
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
    return {"name": str(file), "output_dir": tmp_path / "out", "data_path": str(tmp_path / "data")}


def test_reproduce(recipe: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = reproduce(**recipe, n_seeds=2)
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
    assert (tmp_path / "out" / "tuned" / "sweep.json").is_file()
    assert "Other" in (tmp_path / "out" / "table.html").read_text()
    assert pd.read_csv(tmp_path / "out" / "table.csv").ours.tolist() == pytest.approx(frame.ours.tolist())

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a finished run is repeated")

    monkeypatch.setattr("recbole_hyper.runs.run._train_and_test", fail)
    again = reproduce(**recipe, n_seeds=2)
    assert again.ours.tolist() == frame.ours.tolist()


def test_small_budget_gives_no_verdict(recipe: dict, tmp_path: Path) -> None:
    frame = reproduce(**recipe, budget="small", rows=["plain"])
    assert set(frame.verdict) == {"small budget: none"}
    config = read_yaml(tmp_path / "out" / "plain" / "seed-2020" / "config.yaml")
    assert (config["epochs"], config["hidden_size"]) == (1, 4)
    assert "cannot be compared" in (tmp_path / "out" / "table.html").read_text()


def test_the_short_budget_runs_the_rows_that_have_short_settings(recipe: dict, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="row 'plain' has no settings for --budget=short; no row has any"):
        reproduce(**recipe, budget="short")
    content = json.loads(Path(recipe["name"]).read_text())
    content["rows"]["tuned"]["short"] = {"epochs": 3, "learning_rate": 0.03}
    Path(recipe["name"]).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"row 'plain' .* rows with such settings: tuned"):
        reproduce(**recipe, budget="short", rows=["plain", "tuned"])
    frame = reproduce(**recipe, budget="short")
    assert frame[["row", "verdict"]].to_numpy().tolist() == [["tuned", "above the published value"]]
    config = read_yaml(tmp_path / "out" / "tuned" / "seed-2020" / "config.yaml")
    assert (config["epochs"], config["learning_rate"]) == (3, 0.03)
    assert "quicker settings" in (tmp_path / "out" / "table.html").read_text()
    # settings for all rows, of the table and of its data set
    content["short"] = {"epochs": 2, "learning_rate": 0.02}
    content["datasets"] = {content.pop("dataset"): {"short": {"weight_decay": 0.5}}}
    Path(recipe["name"]).write_text(json.dumps(content))
    both = read_recipe(f"{recipe['name'].removesuffix('.yaml')}-tiny")
    assert both.short == {"epochs": 2, "learning_rate": 0.02, "weight_decay": 0.5}


def test_the_small_budget_sweeps_the_small_space(recipe: dict, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"two\.yaml has no small space"):
        reproduce(**recipe, budget="small")
    assert not (tmp_path / "out").exists()
    with open(tmp_path / "two.yaml", "a") as file:
        file.write("small: {learning_rate: {grid: [0.1]}}\n")
    reproduce(**recipe, budget="small", rows=["tuned"])
    outcome = json.loads((tmp_path / "out" / "tuned" / "sweep.json").read_text())
    assert (outcome["planned"], outcome["best"]["settings"]) == (1, {"learning_rate": 0.1})


def test_a_row_that_was_not_published_shows_what_it_reaches(recipe: dict, tmp_path: Path) -> None:
    content = json.loads(Path(recipe["name"]).read_text())
    del content["rows"]["plain"]["published"], content["rows"]["tuned"]
    Path(recipe["name"]).write_text(json.dumps(content))
    frame = reproduce(**recipe)
    result = json.loads((tmp_path / "out" / "plain" / "seed-2020" / "result.json").read_text())
    assert frame.set_index("metric").ours.to_dict() == result["test"]
    assert set(frame.verdict) == {"not published"}
    assert frame[["published", "difference", "relative"]].isna().all(axis=None)
    assert pd.read_csv(tmp_path / "out" / "table.csv").published.isna().all()


def test_another_budget_is_not_taken_for_the_one_asked(recipe: dict, tmp_path: Path) -> None:
    reproduce(**recipe, budget="small", rows=["plain"])
    with pytest.raises(ConfigError, match=r"plain/seed-2020: .*hidden_size: 4 before, 8 now.*another output_dir"):
        reproduce(**recipe, rows=["plain"])
    content = json.loads(Path(recipe["name"]).read_text())
    del content["rows"]["plain"]["small"]
    content["settings"] |= {"epochs": 2, "learning_rate": 0.05, "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}}
    content["small"] = {"epochs": 0, "eval_args": {"order": "TO"}}
    Path(recipe["name"]).write_text(json.dumps(content))
    recipe["output_dir"] = tmp_path / "grown"
    file = tmp_path / "grown" / "plain" / "seed-2020" / "result.json"
    small = reproduce(**recipe, budget="small", rows=["plain"])
    assert json.loads(file.read_text())["epochs"] == 0
    full = reproduce(**recipe, rows=["plain"])
    result = json.loads(file.read_text())
    assert (result["epochs"], result["eval_args"]["split"]) == (2, {"RS": [0.6, 0.2, 0.2]})
    assert full.ours[0] == result["test"]["hit@5"]
    assert full.ours.tolist() != small.ours.tolist()
    alone = reproduce(**{**recipe, "output_dir": tmp_path / "alone"}, rows=["plain"])
    assert alone.ours.tolist() == full.ours.tolist()
    with pytest.raises(ConfigError, match="epochs=2, but epochs=0 is asked for; take another output_dir"):
        reproduce(**recipe, budget="small", rows=["plain"])


def test_the_epochs_of_an_earlier_budget_do_not_stay(recipe: dict, tmp_path: Path) -> None:
    # where the recipe leaves them to the default, which the fixture's model would train for minutes
    content = json.loads(Path(recipe["name"]).read_text())
    del content["settings"]["epochs"], content["rows"]["plain"]["small"]
    content["settings"]["stopping_step"] = 0
    Path(recipe["name"]).write_text(json.dumps(content))
    reproduce(**recipe, budget="small", rows=["plain"])
    reproduce(**recipe, rows=["plain"])
    result = json.loads((tmp_path / "out" / "plain" / "seed-2020" / "result.json").read_text())
    assert result["epochs"] > 1
    assert result["config"]["epochs"] == 300


def test_faults(recipe: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="no row 'gone'; its rows: plain, tuned"):
        reproduce(**recipe, rows=["gone"])
    with pytest.raises(ConfigError, match="budget='tiny'"):
        reproduce(**recipe, budget="tiny")
    with pytest.raises(ConfigError, match=r"needs the data set 'tiny'. Prepare it with 'recbole-hyper prepare tiny'"):
        reproduce(**{**recipe, "data_path": str(tmp_path / "empty")})
    content = json.loads(Path(recipe["name"]).read_text())
    Path(recipe["name"]).write_text(json.dumps({**content, "tolerence": 1}))
    with pytest.raises(ConfigError, match="unknown key 'tolerence'"):
        reproduce(**recipe)
    assert main(["reproduce", "sce-table4-beaty"]) == 1
    assert "is unknown" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for name in recipes():
        assert f"\n{name} " in out
        assert f"  {read_recipe(name).dataset} " in out
