"""Models of RecBole that these data or settings do not fit: one line before training, and a folder that stays free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_hyper import run
from recbole_hyper.config import ConfigError
from tests.conftest import SMALL, cycle_rows, write_inter

INTER = ["user_id", "item_id", "timestamp"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    data = write_inter(tmp_path / "data", "shop", cycle_rows())
    lines = ["item_id:token\tkind:token\tprice:float", *(f"i{n}\tk{n % 3}\t{n / 3}" for n in range(12))]
    (data / "shop" / "shop.item").write_text("\n".join(lines) + "\n")
    return data


def keys(data: Path, folder: Path, *features: str, **more: Any) -> dict[str, Any]:
    given = {**SMALL, "data_path": str(data), "output_dir": str(folder), "epochs": 1, "n_heads": 2, **more}
    if features:
        given |= {"load_col": {"inter": INTER, "item": ["item_id", *features]}, "selected_features": list(features)}
    return given


@pytest.mark.parametrize(
    ("model", "features", "more", "says"),
    [
        ("GRU4RecF", (), {}, r"GRU4RecF failed while it was built: KeyError: 'class'; if it reads features, name"),
        ("SASRecF", ("kind", "price"), {}, r"SASRecF failed while it ranked: RuntimeError: mat1 and mat2 shapes"),
        ("SASRecF", ("price",), {}, r"SASRecF failed while it ranked: ValueError"),
        ("DIN", ("kind",), {}, r"DIN failed in its first step: KeyError: 'label'"),
        (
            "SASRec",
            (),
            {"loss_type": "BPR", "train_neg_sample_args": None},
            r"SASRec failed in its first step: KeyError",
        ),
    ],
)
def test_the_error_is_one_line_before_training(
    model: str, features: tuple[str, ...], more: dict, says: str, shop: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        run(model, "shop", config_dict=keys(shop, tmp_path / "run", *features, **more))
    assert run("Pop", "shop", config_dict=keys(shop, tmp_path / "run"))["epochs"] == 1


def test_with_features_and_negatives_they_train(shop: Path, tmp_path: Path) -> None:
    for model, features, more in (("GRU4RecF", ("kind",), {}), ("SASRec", (), {"loss_type": "BPR"})):
        assert run(model, "shop", config_dict=keys(shop, tmp_path / model, *features, **more))["test"]["hit@10"] > 0


@pytest.mark.parametrize(("loss", "says"), [(None, "None"), (2.5, "a float"), (torch.ones(3), r"shape \(3,\)")])
def test_a_plugin_whose_loss_is_none_is_one_line(loss: object, says: str, shop: Path, tmp_path: Path) -> None:
    from recbole.model.sequential_recommender import GRU4Rec

    class NoLoss(GRU4Rec):
        def calculate_loss(self, interaction: Any) -> Any:
            return loss

    with pytest.raises(ConfigError, match=rf"NoLoss\.calculate_loss returned .*{says}"):
        run(NoLoss, "shop", config_dict=keys(shop, tmp_path / "run"))
