"""The tables of keys: each default is that of a bound configuration, its source the file that has it."""

from pathlib import Path

import pytest

from recbole_hyper import registry, settings
from recbole_hyper.config import Config
from recbole_hyper.config.tables import COLUMNS, declared, of_model
from recbole_hyper.settings import BY_MODEL, SETTINGS, typed
from recbole_hyper.yaml_files import packaged_yaml, properties_folder, recbole_folder

SOURCES = {"RecBole": [recbole_folder() / "properties" / name for name in ("overall.yaml", "dataset/sample.yaml")]}


def bound(model: str, **keys: str) -> Config:
    return Config(model, config_dict={"interactions": "given", **keys})


@pytest.mark.parametrize("model", ["SASRecCE", "HSASRecSCE", "DualRec", "EASER", "SASRec", "BPR", "GRU4Rec"])
def test_defaults_are_those_of_the_files_that_are_named(model: str) -> None:
    config = bound(model)
    rows = of_model(config)
    assert len({row["key"] for row in rows}) == len(rows) > 30
    for row in rows:
        key, source = row["key"], row["source"]
        default = config.internal_config_dict[key]
        assert row["default"] == typed(default)
        assert not config.ignores(key)
        if key in config.resolved.options and default is not None:
            config.resolved.options[key].check(default)
        if source in SOURCES:
            values = [packaged_yaml(file)[key] for file in SOURCES[source] if key in packaged_yaml(file)]
        elif source == "settings":
            values = [SETTINGS[key].default]
        elif source.split()[0] in ("encoder", "geometry", "loss", "model"):
            word, name = source.split()
            kind = {"encoder": "encoders", "geometry": "geometry", "loss": "losses", "model": "models"}[word]
            values = [registry.resolve(kind, name).defaults()[key]]
        elif source.endswith(".parts"):
            values = [registry.parts_of(config.model_class)[key]]
        elif source == "its loss CE":
            values = [None]
        else:
            folder = recbole_folder() / "properties" if source.startswith("RecBole's") else properties_folder()
            values = [packaged_yaml(folder / source.removeprefix("RecBole's "))[key]]
        # RecBole's own entries of eval_args stay where ours name none
        assert default in values or key == "eval_args", key
        assert row["meaning"], key


def test_what_a_model_does_not_read_is_left_out() -> None:
    keys = {model: {row["key"] for row in of_model(bound(model))} for model in ("SASRecCE", "EASER", "BPR")}
    assert "hidden_size" in keys["SASRecCE"]
    assert "hidden_size" not in keys["EASER"] | keys["BPR"]
    assert "reg_weight" in keys["EASER"] - keys["SASRecCE"]
    assert "epochs" in keys["SASRecCE"] - keys["EASER"]
    assert "embedding_size" in keys["BPR"] - keys["SASRecCE"]
    assert not {"checkpoint_dir", "unused_col", "dataset_save_path"} & (keys["SASRecCE"] | keys["BPR"])


def test_another_part_brings_its_keys() -> None:
    rows = {row["key"]: row for row in of_model(bound("SASRecCE", loss_type="sce"))}
    assert rows["sce_mix"]["source"] == "loss sce"
    assert "sce_mix" not in {row["key"] for row in of_model(bound("SASRecCE"))}


def test_a_model_of_recbole_keeps_recboles_words() -> None:
    rows = {row["key"]: row for row in of_model(bound("SASRec"))}
    assert "BPR" in rows["loss_type"]["meaning"]
    assert rows["loss_type"]["may be"] == "text"
    assert rows["n_heads"]["meaning"] == "The number of attention heads for multi-head attention layer"
    assert rows["n_heads"]["may be"] == "a whole number of at least 1"  # which is what is checked
    assert rows["epochs"]["meaning"] == SETTINGS["epochs"].about


def test_options_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registry, "losses", dict(registry._registry["losses"]))
    file = tmp_path / "mine.py"
    file.write_text(
        "from recbole_hyper.registry import register\nfrom recbole_hyper.losses.base import Loss\n\n\n"
        '@register("losses", "mine")\nclass Mine(Loss):\n'
        "    def __init__(self, *, gamma: float = 2.5) -> None:\n        super().__init__()\n\n"
        "    def forward(self, states, targets, head, negatives=None):\n        return states.sum()\n"
    )
    rows = {row["key"]: row for row in of_model(bound("SASRecCE", loss_type="mine", plugins=str(file)))}
    assert (rows["gamma"]["default"], rows["gamma"]["source"]) == ("2.5", "loss mine")


def test_every_declared_key_once() -> None:
    rows = {row["key"]: row for row in declared()}
    assert list(rows) == list(settings.declared())
    assert rows["epochs"]["default"] == "300"
    assert (rows["nonlinearity"]["default"], rows["nonlinearity"]["may be"]) == (BY_MODEL, "identity or tanh")
    assert rows["n_layers"]["default"] == BY_MODEL
    assert [row for row in rows.values() if not all(row[column] for column in COLUMNS)] == []
