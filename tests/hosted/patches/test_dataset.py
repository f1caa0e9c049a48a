"""RecBole's own dataset reads files the same way under every version of pandas."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.config import Config
from tests.conftest import cycle_rows, write_inter


def test_stock_config_and_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RecBole's own Config, dataset and loaders, without anything of ours but the import."""
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.general_recommender import LightGCN

    monkeypatch.setattr("sys.argv", ["test"])
    write_inter(tmp_path, "d", cycle_rows())
    items = "".join(f"i{item}\ta b{'' if item % 2 else ' c'}\t{item}.5\t{item} 3 {item}\n" for item in range(12))
    header = "item_id:token\twords:token_seq\tprice:float\tprices:float_seq\n"
    (tmp_path / "d" / "d.item").write_text(header + items)
    config = Config(
        LightGCN,
        "d",
        config_file_list=[str(Path(__import__("recbole").__file__).parent / "properties" / "model" / "LightGCN.yaml")],
        config_dict={
            "data_path": str(tmp_path),
            "checkpoint_dir": str(tmp_path),
            "load_col": {"inter": ["user_id", "item_id"], "item": ["item_id", "words", "price", "prices"]},
            "normalize_field": ["price", "prices"],
        },
    )
    train, _, _ = data_preparation(config, create_dataset(config))
    features = train.dataset.item_feat
    assert features["words"].shape == (13, 3)
    assert ((features["words"] > 0).sum(1)[1:] >= 2).all()
    assert float(features["price"].max()) == 1.0
    twelfth = features["prices"][train.dataset.token2id("item_id", "i11")]
    assert twelfth.tolist() == pytest.approx([1.0, 3 / 11, 1.0])
    model = LightGCN(config, train.dataset)
    assert np.isfinite(float(sum(model.calculate_loss(next(iter(train))))))


def test_missing_floats_are_filled_with_the_mean(tmp_path: Path) -> None:
    from recbole_hyper.runs.dataset import FeatureDataset

    rows = [(*row, "" if index == 3 else 1 + index % 2) for index, row in enumerate(cycle_rows())]
    write_inter(tmp_path, "d", rows, "user_id:token\titem_id:token\ttimestamp:float\trating:float\n")
    columns = ["user_id", "item_id", "timestamp", "rating"]
    config = Config("SASRecCE", "d", config_dict={"data_path": str(tmp_path), "load_col": {"inter": columns}})
    ratings = FeatureDataset(config).inter_feat["rating"]
    known = [row[3] for row in rows if row[3] != ""]
    assert ratings.iloc[3] == pytest.approx(np.mean(known))
    assert not pd.isna(ratings).any()


def test_lines_of_another_width_are_cut_or_filled_and_those_without_an_id_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of the data of RecBole's own tests has five values below four columns."""
    from recbole.config import Config
    from recbole.data import create_dataset

    monkeypatch.setattr("sys.argv", ["test"])
    lines = [
        "user_id:token\titem_id:token\trating:float",
        "u1\ti1\t1",
        "u1\ti2\t2\t9\tx",
        "u2\ti1",
        "u2\ti2\t4",
        "\ti1\t5",
    ]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "d.inter").write_text("\n".join(lines) + "\n")
    keys = {"data_path": str(tmp_path), "load_col": {"inter": ["user_id", "item_id", "rating"]}}
    found = create_dataset(Config("BPR", "d", config_dict=keys)).inter_feat
    assert found["item_id"].tolist() == [1, 2, 1, 2]
    # what is missing is filled with the mean
    assert found["rating"].tolist() == pytest.approx([1, 2, 7 / 3, 4])
