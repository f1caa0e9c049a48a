"""Every recipe is read, and its models and keys are known."""

import json
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.config import ConfigError
from recbole_hyper.config.resolve import all_known_keys, model_class
from recbole_hyper.report.recipes import read_recipe, recipes
from tests.raising import refused


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


def test_data_sets_of_a_table_have_their_own_settings() -> None:
    beauty, movies = read_recipe("dualrec-table2-beauty"), read_recipe("hsasrec-table1-ml-1m")
    assert (beauty.name, beauty.dataset) == ("dualrec-table2-beauty", "amazon-beauty-sequences")
    assert beauty.about == "DualRec, Table 2: Beauty, leave-one-out, 99 negatives"
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


def test_a_table_without_a_data_set_is_no_recipe() -> None:
    with refused(ConfigError, "dualrec-table5"):
        read_recipe("dualrec-table5")
    with refused(ConfigError, "did you mean dualrec-table5-toys"):
        read_recipe("dualrec-table5-toy")


def test_a_users_own_table(tmp_path: Path) -> None:
    file = tmp_path / "my-own.yaml"
    row = {"model": "SASRecCE", "settings": {"n_layers": 1, "epochs": 3}, "note": "of the table"}
    content: dict[str, Any] = {"about": "Mine", "dataset": "tiny", "protocol": "temporal_users", "rows": {"one": row}}
    file.write_text(json.dumps(content))
    found = read_recipe(str(file))
    assert (found.name, found.about, found.dataset) == ("my-own", "Mine", "tiny")
    assert found.settings["eval_args"]["split"] == {"TU": 0.95}
    assert (found.rows["one"].settings, found.rows["one"].note) == (row["settings"], "of the table")
    for wrong, named in (
        ({"rows": {"two": {}}}, "rows.two.model"),
        ({"metrics": []}, "metrics"),
        ({"datasets": {"c": {}}}, "datasets"),
        ({"rows": {"one": {**row, "space": "none"}}}, "rows.one.space"),
        ({"rows": {"one": {**row, "published": {"ndcg@10": "high"}}}}, "rows.one.published.ndcg@10"),
    ):
        file.write_text(json.dumps({**content, **wrong}))
        with refused(ConfigError, "my-own.yaml", named):
            read_recipe(str(file))
