"""RecBole's own dataset reads files the same way under every version of pandas."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_hyper.config import Config
from tests.conftest import cycle_rows, write_inter
from tests.raising import refused


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


def test_recboles_own_dataset_takes_lines_of_another_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from recbole.config import Config
    from recbole.data import create_dataset

    from recbole_hyper.errors import DataError
    from recbole_hyper.runs.dataset import FeatureDataset

    monkeypatch.setattr("sys.argv", ["test"])
    folder = tmp_path / "uneven"
    folder.mkdir()
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float", "a\tx\t4\t1\tmore", "a\ty\t\t2", "b\tx\t2"]
    (folder / "uneven.inter").write_text("\n".join(lines) + "\n")
    keys = {"data_path": str(tmp_path), "load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]}}
    config = Config("BPR", "uneven", config_dict=keys)
    frame = create_dataset(config).inter_feat
    assert frame["user_id"].tolist() == [1, 1, 2]
    assert frame["timestamp"].tolist() == [1.0, 2.0, 1.5]  # what a line lacks is missing: the mean
    assert "lines have other widths than the header, the first is line 2" in caplog.text
    with refused(DataError, "line", "values"):
        FeatureDataset(config)


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
