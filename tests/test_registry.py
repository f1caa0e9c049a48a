"""Parts from outside the package: by file, by path, by entry point, as classes; the tutorial's loss among them."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import recbole_hyper
from recbole_hyper import load, registry, run
from recbole_hyper.cli import main
from recbole_hyper.config import Config
from recbole_hyper.encoders.transformer import TransformerEncoder
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.losses.base import Loss
from recbole_hyper.models.base import HyperRecommender, build_part
from recbole_hyper.protocols.leave_one_out import LeaveOneOut
from tests.conftest import LEARN, SMALL
from tests.raising import refused

CHECKOUT = Path(recbole_hyper.__file__).parents[1]


class Doubled(Loss):
    """Cross-entropy times ``factor``."""

    def __init__(self, *, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, states: Any, targets: Any, head: Any, negatives: Any = None) -> torch.Tensor:
        return self.factor * F.cross_entropy(head.logits(states)[:, 1:], targets - 1)


class Plain(Euclidean):
    """The dot product under another name."""


class Backwards(TransformerEncoder):
    """A transformer under another name."""


class LastTwo(LeaveOneOut):
    """Leave-one-out under another name."""

    title = "last two"


class Own(HyperRecommender):
    """A user's model."""

    parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": Doubled}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the parts of these tests, which other tests would find among those of the package."""
    for kind in registry.KINDS:
        registry.names(kind)
        monkeypatch.setitem(registry._registry, kind, dict(registry._registry[kind]))


def tutorial_loss() -> str:
    """Return the first loss of the tutorial."""
    text = (CHECKOUT / "docs" / "own-loss.md").read_text(encoding="utf-8")
    return next(block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "focal.py" in block)


def test_the_loss_of_the_tutorial_learns_from_outside_the_checkout(walk, tmp_path, monkeypatch) -> None:
    own = tmp_path / "elsewhere"
    own.mkdir()
    monkeypatch.chdir(own)
    (own / "my_parts.py").write_text(tutorial_loss(), encoding="utf-8")
    keys = {**LEARN, "data_path": walk, "output_dir": own / "run", "gamma": 1.5, "plugins": "my_parts.py"}
    typed = [f"--{key}={value}" for key, value in keys.items()]
    assert main(["run", "--model=SASRecCE", "--dataset=walk", "--loss_type=focal", *typed]) == 0
    result = read_json(own / "run" / "result.json")
    assert result["test"]["hit@1"] > 0.7
    assert (result["config"]["loss_type"], result["config"]["gamma"]) == ("focal", 1.5)
    assert result["config"]["plugins"] == [str(own / "my_parts.py")]
    # the folder names the file, so that the run loads again from anywhere
    model = load(own / "run", trust_plugins=True).model
    assert model.loss.gamma == 1.5


def test_a_class_is_taken_as_it_is_and_found_again_by_its_path(cycle: Path, tmp_path: Path) -> None:
    parts = {"loss_type": Doubled, "geometry": Plain, "encoder": Backwards, "factor": 3.0}
    keys = {**SMALL, **parts, "data_path": str(cycle), "output_dir": str(tmp_path / "run"), "epochs": 1}
    result = run("SASRecCE", "cycle", config_dict=keys)
    assert result["config"]["loss_type"] == "tests.test_registry:Doubled"
    found = load(tmp_path / "run")
    model, config = found.model, found.config
    assert isinstance(model.loss, Doubled)
    assert isinstance(model.encoder, Backwards)
    assert isinstance(model.head.geometry, Plain)
    assert config["factor"] == model.loss.factor == 3.0


def test_models_and_protocols_of_ones_own(cycle: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(cycle), "epochs": 1}
    split = {"split": {"tests.test_registry:LastTwo": "valid_and_test"}}
    first = {**keys, "eval_args": split, "output_dir": str(tmp_path / "a")}
    result = run("tests.test_registry:Own", "cycle", config_dict=first)
    assert (result["model"], result["protocol"]) == ("Own", "last two")
    again = run(Own, "cycle", config_dict={**keys, "output_dir": str(tmp_path / "b")})
    assert again["test"] == result["test"]
    for name in ("a", "b"):
        assert isinstance(load(tmp_path / name).model, Own)


@pytest.mark.parametrize("decorator", ['@register("models")', ""])
def test_a_run_of_a_model_by_its_path_is_found_by_another_process(decorator, cycle, tmp_path, monkeypatch) -> None:
    parts = 'parts = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "ce"}'
    lines = "from recbole_hyper.registry import register\nfrom recbole_hyper.models.base import HyperRecommender\n"
    lines += f"{decorator}\nclass Theirs(HyperRecommender):\n    {parts}\n"
    (tmp_path / "their_models.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    keys = {**SMALL, "data_path": str(cycle), "epochs": 0, "output_dir": str(tmp_path / "run")}
    assert run("their_models:Theirs", "cycle", config_dict=keys)["config"]["model"] == "their_models:Theirs"
    # as another process begins
    registry._registry["models"].pop("Theirs", None)
    monkeypatch.delitem(sys.modules, "their_models")
    with refused(ConfigError, "'their_models'", "--trust_plugins"):
        load(tmp_path / "run")
    assert type(load(tmp_path / "run", trust_plugins=True).model).__name__ == "Theirs"


def test_a_model_of_a_plugin_is_found_by_the_name_it_registered(cycle: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from recbole_hyper.registry import register\nfrom recbole_hyper.models.pop import Pop\n"
        '@register("models", "mine")\nclass Named(Pop):\n    pass\n'
    )
    keys = {"data_path": str(cycle), "plugins": [str(file)], "output_dir": str(tmp_path / "run")}
    assert run("mine", "cycle", config_dict=keys)["config"]["model"] == "mine"
    assert type(load(tmp_path / "run").model).__name__ == "Named"


def test_the_defaults_of_a_replacing_part_hold(cycle: Path) -> None:
    """SASRecBCE's one negative belongs to bce: a user's part has the default of its constructor."""
    own = Config("SASRecBCE", "cycle", config_dict={"data_path": str(cycle), "loss_type": Doubled})
    assert "n_negatives" not in own
    assert build_part("loss_type", own).factor == 2.0


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("doubled", "tests.test_registry:Doubled", "recbole_hyper.losses")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == point.group else [])
    assert "doubled" in registry.names("losses")
    assert registry.resolve("losses", "doubled").__name__ == "Doubled"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"plugins": "missing.py"}, ("missing.py",)),
        ({"plugins": ["broken.py"]}, ("broken.py", "ZeroDivisionError")),
        ({"plugins": ["leaves.py"]}, ("leaves.py", "SystemExit: 3")),
        ({"plugins": ["twice.py"]}, ("losses 'ce'", "twice")),
        ({"loss_type": "nowhere:Loss"}, ("'nowhere:Loss'", "No module named 'nowhere'")),
        ({"loss_type": "json:dumps"}, ("'json:dumps'", "a class")),
        ({"loss_type": Euclidean}, ("Euclidean", "recbole_hyper.losses.base")),
        ({"loss_type": "focall"}, ("'focall'", "bce, ", "--plugins=FILE.py")),
        ({"loss_type": 3}, ("'3'",)),
        ({"loss_type": Doubled, "factorr": 1}, ("'factorr'", "did you mean factor")),
    ],
)
def test_what_is_no_part_is_one_error(keys, named, cycle, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("1 / 0\n")
    Path("leaves.py").write_text("import sys\nsys.exit(3)\n")
    Path("twice.py").write_text(
        "from recbole_hyper.registry import register\nfrom recbole_hyper.losses.base import Loss\n"
        "@register('losses', 'ce')\nclass Mine(Loss):\n    pass\n"
    )
    registry.resolve("losses", "ce")
    with refused(ConfigError, *named):
        Config("SASRecCE", "cycle", config_dict={"data_path": str(cycle), **keys})
