"""Checkpoints of RecBole load with torch's safe loader, and code in them is refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recbole.config import Config
from recbole.quick_start import load_data_and_model, run_recbole
from recbole.utils import ModelType, get_trainer

from examples.translate_checkpoint import translate
from tests.hosted.conftest import trained
from tests.raising import refused


# --- models of RecBole -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", ["BPR", "SASRec", "EASE", "ItemKNN", "Pop", "LightGCN", "SASRecF"])
def test_recboles_own_models_are_saved_and_loaded(model: str, settings: dict[str, Any]) -> None:
    names = ("topk", "valid_metric", "epochs", "show_progress", "data_path", "hidden_size", "n_layers")
    keys = {key: settings[key] for key in names} | {"load_col": {"inter": ["user_id", "item_id", "timestamp"]}}
    if model.startswith("SASRec"):
        keys |= {"train_neg_sample_args": None, "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO"}}
    if model == "SASRecF":
        folder = Path(settings["data_path"]) / "random"
        rows = "".join(f"i{item}\tc{item % 3}\n" for item in range(50))
        (folder / "random.item").write_text("item_id:token\tclass:token\n" + rows)
        keys["load_col"] |= {"item": ["item_id", "class"]}
        keys["selected_features"] = ["class"]
    result = run_recbole(model=model, dataset="random", config_dict=keys)
    (file,) = Path("saved").glob("*.pth")
    config, network, _, _, _, test = load_data_and_model(str(file))
    assert type(config) is Config
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    assert trainer.evaluate(test, load_best_model=False) == result["test_result"]
    trainer.resume_checkpoint(str(file))
    assert trainer.start_epoch >= 1


class Evil:
    """Runs code where a pickle of it is read."""

    def __reduce__(self) -> Any:
        return open, ("evil.txt", "w")


@pytest.mark.parametrize("entry", ["config", "other_parameter", "optimizer"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_in_a_checkpoint_is_refused(entry: str, protocol: int, settings: dict[str, Any]) -> None:
    trainer, test, _ = trained("SASRecCE", settings)
    content = torch.load(trainer.saved_model_file)
    torch.save({**content, entry: {"x": Evil()}}, "evil.pth", pickle_protocol=protocol)
    if protocol > 2:
        translate(Path("evil.pth").rename("by_recbole.pth"), Path("evil.pth"))
    for read in (load_data_and_model, lambda file: trainer.evaluate(test, model_file=file)):
        with refused(Exception, "open"):
            read("evil.pth")
    assert not Path("evil.txt").exists()


class ByName:
    """Pickled as the early releases of Python 3.11 pickle a member of an enumeration."""

    def __init__(self, owner: Any, name: str) -> None:
        self.called = getattr, (owner, name)

    def __reduce__(self) -> Any:
        return self.called


@pytest.mark.parametrize(("owner", "name"), [(ModelType, "__class__"), (ModelType, "mro"), (np.ndarray, "tofile")])
def test_members_of_enumerations_are_read_by_name_and_no_other_attribute_is(owner, name, tmp_path) -> None:
    torch.save({"kind": ByName(ModelType, "SEQUENTIAL")}, tmp_path / "member.pth")
    assert torch.load(tmp_path / "member.pth") == {"kind": ModelType.SEQUENTIAL}
    torch.save({"kind": ByName(owner, name)}, tmp_path / "other.pth")
    with refused(pickle.UnpicklingError, "no member"):
        torch.load(tmp_path / "other.pth")


def test_a_damaged_matrix_in_a_checkpoint_is_refused(settings: dict[str, Any]) -> None:
    keys = {key: settings[key] for key in ("topk", "valid_metric", "data_path")}
    run_recbole(model="ItemKNN", dataset="random", config_dict=keys)
    (file,) = Path("saved").glob("*.pth")
    content = torch.load(file)
    content["other_parameter"]["w"].indices = content["other_parameter"]["w"].indices + 10_000
    torch.save(content, file)
    with refused(ValueError, "ind"):
        load_data_and_model(str(file))


def test_numpy_values_in_a_checkpoint_load(tmp_path: Path) -> None:
    content = {"scalar": np.float64(0.5), "array": np.arange(6.0).reshape(2, 3), "whole": np.int32(3)}
    torch.save(content, tmp_path / "x.pth")
    found = torch.load(tmp_path / "x.pth")
    assert (found["scalar"], found["whole"]) == (0.5, 3)
    assert found["array"].tolist() == content["array"].tolist()
