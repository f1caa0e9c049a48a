"""Items that a finished run did not know: taken in by their features, scored as by hand, and refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from recbole_hyper import cli, load, run
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.serving.bundle import open_bundle
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.raising import refused

KINDS = {"kind": "token", "tags": "token_seq", "price": "float", "text": "float_seq"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data_path of 12 items with a feature of each type."""
    data = write_inter(tmp_path_factory.mktemp("shop"), "shop", cycle_rows())
    header = "\t".join(["item_id:token", *(f"{name}:{kind}" for name, kind in KINDS.items())])
    lines = [f"i{n}\tk{n % 3}\tt{n % 2} t{n % 5}\t{10 + n}\t{n / 7} {1 - n / 9}" for n in range(12)]
    (data / "shop" / "shop.item").write_text("\n".join([header, *lines]) + "\n")
    return data


def trained(shop: Path, folder: Path, model: str = "SASRecCE", **keys: object) -> Path:
    given = {**SMALL, "data_path": str(shop), "output_dir": str(folder), "epochs": 1, "use_gpu": False}
    run(model, "shop", config_dict={**given, "selected_features": list(KINDS), **keys})
    return folder


@pytest.fixture(scope="module")
def folder(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(shop, tmp_path_factory.mktemp("run") / "run", item_bias=True, item_bias_init=0.25)


NEW = pd.DataFrame(
    {
        "item_id": ["n1", "n2", "i3", "n1"],
        "kind": ["k1", "unheard", "k0", "k2"],
        "tags": ["t0 t3 t9", "", "t1", "t1"],
        "price": [13.5, np.nan, 1.0, 2.0],
        "text": ["0.5 0.25", "", "0 0", "1 1"],
    }
)


def by_hand(model: object, row: pd.Series) -> torch.Tensor:
    """Return the vector of a new item, token by token and number by number."""
    table = model.model.item_embedding
    total = torch.zeros(table.embedding_dim)
    for part, column in zip(table.features, model.scorer.item_features.columns, strict=True):
        value = row[column.name]
        if column.of_tokens:
            known = list(column.meaning)
            for token in value.split(" ") if column.kind == "token_seq" else [value]:
                if token in known:
                    total = total + part.weight[known.index(token) + 1]
        elif column.kind == "float":
            mean, deviation = column.meaning
            total = total + (0.0 if np.isnan(value) else (value - mean) / deviation) * part.weight[0]
        else:
            numbers = [float(one) for one in value.split()] or [0.0, 0.0]
            total = total + sum(number * weight for number, weight in zip(numbers, part.weight, strict=True))
    return total


def test_new_items_are_scored_by_their_features_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, model = load(folder), load(folder)
    assert model.add_items(NEW) is model
    assert "1 values of kind are unknown" in caplog.text
    assert model.item_ids.tolist() == [*before.item_ids.tolist(), "n1", "n2"]
    histories = [["i0", "i1"], ["i5"]]
    old, now = before.score(histories), model.score(histories)
    np.testing.assert_allclose(now[:, :-2], old, rtol=1e-5)
    states = torch.from_numpy(model.states(histories))
    vectors = torch.stack([by_hand(model, NEW.iloc[0]), by_hand(model, NEW.iloc[1])])
    np.testing.assert_allclose(now[:, -2:], (states @ vectors.T + 0.25).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_new_items_are_recommended_and_may_be_in_a_history(folder: Path) -> None:
    model = load(folder).add_items(pa.Table.from_pandas(NEW))
    found = model.recommend(users=["u1"], k=2, items=["n1", "n2"])
    assert sorted(found["item_id"]) == ["n1", "n2"]
    assert not found["popular"].any()
    assert len(model.recommend(histories=[["n1", "i2"]], k=14, exclude_seen=False)) == 14
    assert len(model.similar_items(["n2"], k=3)) == 3
    model.add_items(NEW.assign(item_id=["m1", "n1", "n2", "i1"]))
    assert model.item_ids[-1] == "m1"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("HSASRecCE", {"feature_fusion": "concat"}),
        ("GRU4RecCE", {"reuse_item_embeddings": False}),
        ("FMLPRecCE", {"pooling_mode": "max"}),
    ],
)
def test_other_models_take_them_too(name: str, keys: dict, shop: Path, tmp_path: Path) -> None:
    folder = trained(shop, tmp_path / "run", name, **keys)
    before, model = load(folder), load(folder).add_items(NEW)
    np.testing.assert_allclose(model.score([["i1"]])[:, :-2], before.score([["i1"]]), rtol=1e-6)
    assert np.isfinite(model.score([["n1", "i1"]])).all()


def test_invalid_new_items_are_one_line(folder: Path, shop: Path, tmp_path: Path) -> None:
    model = load(folder)
    with refused(DataError, "item_id"):
        model.add_items(NEW[["item_id", "kind", "price"]])
    with refused(DataError, "'text'"):
        model.add_items(NEW.assign(text=["1 2", "1", "1 2", "1 2"]))
    with refused(DataError, "'price'", "row 1 has 'cheap'"):
        model.add_items(NEW.assign(price=["cheap", "1", "1", "1"]))
    with refused(DataError, "'price'", "float32"):
        model.add_items(NEW.assign(price=[1.7e308, 1, 1, 1]))
    with refused(ConfigError, "column", "item"):
        model.add_items(NEW.rename(columns={"item_id": "price2"}))
    assert len(model.item_ids) == 12
    plain = load(trained(shop, tmp_path / "plain", selected_features=None))
    with refused(ConfigError, "features", "items"):
        plain.add_items(NEW)
    ids = load(trained(shop, tmp_path / "ids", feature_output=False))
    with refused(ConfigError, "items", "features"):
        ids.add_items(NEW)


def test_the_command_takes_them_from_a_file(folder: Path, tmp_path: Path, capsys, caplog) -> None:
    NEW.to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / "recs.csv"
    given = ["recommend", str(folder), f"--items={tmp_path / 'new.csv'}", "--k=2", f"--output={output}"]
    assert cli.main(given) == 0
    assert "2 new items, scored by their features" in capsys.readouterr().out
    assert set(pd.read_csv(output)["item_id"]) <= {"n1", "n2", "i3"}
    assert {"n1", "n2"} & set(pd.read_csv(output)["item_id"])
    NEW.drop(columns=NEW.columns[1]).to_csv(tmp_path / "new.csv", index=False)
    cli.main([*given, "--unknown=skip"])
    assert f"new items need its columns {NEW.columns[1]} too" in caplog.text


def test_a_service_scores_them_as_the_model_does(folder: Path, tmp_path: Path) -> None:
    write_bundle(folder)
    table = tmp_path / "new.csv"
    NEW[NEW["item_id"] == "i3"].to_csv(table, index=False)
    known = open_bundle(folder, load, new_items=table)
    assert known.recommender.model is None  # the graph is enough
    NEW.to_csv(table, index=False)
    (tmp_path / "catalogue.csv").write_text("item_id,stock\nn1,1\nn2,0\ni1,3\n")
    served = open_bundle(folder, load, table=tmp_path / "catalogue.csv", new_items=table)
    assert (known.about["n_items"], served.about["n_items"]) == (12, 14)
    histories = [["i0", "i1"], ["n1"]]
    np.testing.assert_allclose(
        served.recommender.score(histories), load(folder).add_items(NEW).score(histories), rtol=1e-6
    )
    assert served.recommender.recommend(histories=[["i1"]], k=3, rules={"where": "stock > 0"})["item_id"].tolist() == [
        "n1"
    ]
    table.write_text("item_id,kind\nn1,k1\n")
    with refused(DataError, "features", "price"):
        open_bundle(folder, load, new_items=table)
