"""A model's setting for a part applies only if the model uses that part."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import registry
from recbole_hyper.config import Config
from recbole_hyper.config.parts import PARTS, part_keys, part_of, parts_of_model
from recbole_hyper.config.resolve import model_class
from recbole_hyper.config.tables import of_model
from recbole_hyper.yaml_files import properties_folder, read_yaml

MODELS = [name for name in registry.names("models") if registry.parts_of(model_class(name))]


def layered(model: str, given: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the parts of a model and what its settings come to, without the cost of binding a configuration."""
    file = properties_folder() / "model" / f"{model}.yaml"
    parts, applies = parts_of_model(model_class(model).parts, read_yaml(file), given)
    layers = [*(part_of(key, name).defaults() for key, name in parts.items()), applies]
    return parts, {key: value for layer in layers for key, value in layer.items()}


@pytest.mark.parametrize("model", MODELS)
def test_a_part_that_replaces_another_brings_its_settings(model: str) -> None:
    own, alone = layered(model, {})
    yaml = read_yaml(properties_folder() / "model" / f"{model}.yaml")
    checked = 0
    for key in PARTS:
        for name in registry.names(PARTS[key][0]):
            parts, values = layered(model, {key: name})
            assert parts == {**own, key: name}
            if name == own[key]:
                assert values == alone
                continue
            others = [(other, parts[other]) for other in PARTS if other != key]
            shared = {one for other in others for one in part_keys(*other)}
            for setting, value in part_of(key, name).defaults().items():
                if setting not in shared:
                    assert values[setting] == value, f"{model} with {key}={name}: {setting}"
                    checked += 1
            # nothing of the part that is gone stays, and all that is said of the others or of no part
            for setting, value in yaml.items():
                if setting in part_keys(key, own[key]) - shared:
                    assert values.get(setting) == part_of(key, name).defaults().get(setting)
                elif setting != key:
                    assert values[setting] == value
    assert checked > 20


@pytest.mark.parametrize(
    ("model", "given", "key", "value"),
    [
        ("SASRecBCE", {"loss_type": "gbce"}, "n_negatives", 256),
        ("HSASRec", {"loss_type": "bce_plus"}, "n_negatives", 256),
        ("gSASRec", {"loss_type": "bce"}, "n_negatives", 1),
        ("gSASRec", {}, "n_negatives", 256),
        ("SASRecBCE", {"loss_type": "gbce", "n_negatives": 7}, "n_negatives", 7),
        ("FMLPRec", {"encoder": "dual_fmlp"}, "filter", "causal"),
        ("FMLPRec", {"loss_type": "ce"}, "filter", "circular"),
        ("HGRU4Rec", {"encoder": "transformer"}, "curvature", 0.0153),
        ("HGRU4Rec", {"geometry": "euclidean"}, "curvature", 0.0153),
        ("HSASRec", {"geometry": "euclidean"}, "curvature", 1.0),
        ("HSASRec", {"loss_type": "ce"}, "curvature", 0.0153),
        ("SASRecCE", {"geometry": "poincare"}, "curvature", 0.02),
    ],
)
def test_what_a_run_is_bound_to(cycle: Path, model: str, given: dict[str, Any], key: str, value: object) -> None:
    assert Config(model, "cycle", config_dict={"data_path": str(cycle), **given})[key] == value


def test_a_curvature_of_what_is_flat_has_no_effect(random_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = {"data_path": str(random_data), "curvature": 0.5, "curvature_learning_rate": 0.1}
    flat = Config("SASRecCE", "random", config_dict=keys)
    for key in ("curvature", "curvature_learning_rate"):
        said = f"SASRecCE does not read {key}: the key has no effect in this run; neither the geometry nor the encoder"
        assert said in caplog.text
        assert key not in flat.plain()
    assert not {"curvature", "curvature_init"} & {row["key"] for row in of_model(flat)}
    caplog.clear()
    for own in ({"geometry": "poincare"}, {"encoder": "moebius_gru"}):
        assert Config("SASRecCE", "random", config_dict={**keys, **own})["curvature"] == 0.5
    assert caplog.text == ""
