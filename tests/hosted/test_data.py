"""RecBole's create_dataset and data_preparation for models of this package."""

from __future__ import annotations

from typing import Any

from recbole.config import Config
from recbole.data import create_dataset, data_preparation

from recbole_hyper.errors import ConfigError
from tests.hosted.conftest import prepared
from tests.raising import refused


def test_create_dataset(settings: dict[str, Any]) -> None:
    config = Config("SASRecCE", "random", config_dict=settings)
    dataset = create_dataset(config)
    assert (dataset.user_num, dataset.item_num) == (41, 51)
    assert "random" in str(dataset)
    assert dataset.id2token(dataset.iid_field, dataset.token2id(dataset.iid_field, ["i3"])).tolist() == ["i3"]


def test_data_preparation(settings: dict[str, Any]) -> None:
    _, train, valid, test = prepared("SASRecCE", settings)
    batches = list(train)
    assert len(batches) == len(train)
    assert set(batches[0].columns) >= {"user_id", "item_id_list", "target_list"}
    assert len(valid) > 0
    assert len(test) > 0
    with refused(ConfigError, "create_dataset"):
        data_preparation(Config("SASRecCE", "random", config_dict=settings), object())
