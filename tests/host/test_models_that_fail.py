"""Models of RecBole that these data or settings do not fit: one line before training, and a folder that stays free."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.evaluate import evaluate
from tests.conftest import SMALL, cycle_rows, write_inter
from tests.raising import refused

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
    ("model", "features", "more", "named"),
    [
        ("GRU4RecF", (), {}, ("GRU4RecF failed while it was built", "'class'", "kind, price", "selected_features")),
        ("SASRecF", ("kind", "price"), {}, ("SASRecF failed while it ranked: RuntimeError", "shapes")),
        ("SASRecF", ("price",), {}, ("SASRecF failed while it ranked: ValueError",)),
        ("DeepFM", (), {}, ("DeepFM", "not supported")),
        (
            "SASRec",
            (),
            {"loss_type": "BPR", "train_neg_sample_args": None},
            ("SASRec failed in its first step: KeyError",),
        ),
    ],
)
def test_the_error_is_one_line_before_training(model, features, more, named, shop, tmp_path) -> None:
    with refused(ConfigError, *named):
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


def test_din_learns_from_labelled_negatives(shop: Path, tmp_path: Path) -> None:
    """As in RecBole: the target with the label 1, drawn items with the label 0."""
    for model in ("DIN", "DIEN"):
        result = run(model, "shop", config_dict=keys(shop, tmp_path / model, "kind"))
        assert result["test"]["hit@10"] > 0
        assert evaluate(tmp_path / model)["test"] == result["test"]


PLUGIN = """
import sys
import warnings

import torch
from recbole.model.context_aware_recommender import FM
from recbole.model.general_recommender import BPR
from recbole.model.sequential_recommender import GRU4Rec


class Detached(GRU4Rec):
    def calculate_loss(self, interaction):
        return super().calculate_loss(interaction).detach()


class OffAtFirst(GRU4Rec):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        torch.set_grad_enabled(False)
        warnings.simplefilter("error")


class InPlace(GRU4Rec):
    def calculate_loss(self, interaction):
        weight = self.item_embedding.weight
        loss = (weight ** 2).sum()
        with torch.no_grad():
            weight.mul_(2)
        return loss


class Leaves(GRU4Rec):
    def calculate_loss(self, interaction):
        sys.exit(0)


class LeavesLater(GRU4Rec):
    def full_sort_predict(self, interaction):
        if getattr(self, "calls", 0) > 2:
            sys.exit()
        self.calls = getattr(self, "calls", 0) + 1
        return super().full_sort_predict(interaction)


class Clicks(FM):
    pass


class NotBuilt(BPR):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.lines = [][1]
"""


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("Detached", r"Detached\.calculate_loss returned a tensor without a gradient"),
        ("InPlace", r"InPlace failed in its first epoch: RuntimeError: one of the variables needed for gradient"),
        ("Leaves", r"Leaves failed in its first step at wrong\.py:\d+: SystemExit: 0; --traceback"),
        ("LeavesLater", r"LeavesLater failed while it ranked at wrong\.py:\d+: SystemExit"),
        ("Clicks", r"Clicks: only sequential and general models of RecBole run"),
        (
            "NotBuilt",
            r"NotBuilt failed while it was built at wrong\.py:\d+: IndexError: list index out of range; --traceback",
        ),
    ],
)
def test_errors_of_a_plugin_are_one_line(model, says, shop, tmp_path, capsys) -> None:
    (tmp_path / "wrong.py").write_text(PLUGIN)
    given = keys(shop, tmp_path / "run", plugins=str(tmp_path / "wrong.py"), embedding_size=8, loss_type="CE")
    assert main(["run", f"--model={model}", "--dataset=shop", *(f"--{key}={value}" for key, value in given.items())])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.search(says, line)
    assert torch.is_grad_enabled()
    assert not (tmp_path / "run" / "result.json").is_file()


def test_a_model_may_switch_gradients_off_and_warnings_to_errors_while_it_is_built(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(PLUGIN)
    given = keys(shop, tmp_path / "run", plugins=str(tmp_path / "wrong.py"), embedding_size=8, loss_type="CE")
    filters = list(warnings.filters)
    assert run("OffAtFirst", "shop", config_dict=given)["epochs"] == 1
    assert torch.is_grad_enabled()
    assert warnings.filters == filters


def test_a_missing_column_is_named_where_the_data_set_has_it(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(
        "from recbole.model.sequential_recommender import GRU4Rec\n\n\n"
        "class Reads(GRU4Rec):\n    def calculate_loss(self, interaction):\n"
        "        return super().calculate_loss(interaction) + interaction['price_list'].sum()\n"
    )
    given = keys(shop, tmp_path / "run", plugins=str(tmp_path / "reads.py"), embedding_size=8, loss_type="CE")
    with refused(ConfigError, "'price_list'", "KeyError", "shop.item"):
        run("Reads", "shop", config_dict=given)
