"""The commands list and keys: every part has its registered name, and listing imports nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

from recbole_hyper import registry
from recbole_hyper.cli import main
from recbole_hyper.commands import overview
from recbole_hyper.commands.overview import KINDS
from recbole_hyper.config.checks import SUPPORTED_NEEDS
from recbole_hyper.config.resolve import model_class
from recbole_hyper.host.metrics import OWN_METRICS, metric_needs, metrics_dict
from recbole_hyper.host.recbole_files import recbole_models
from recbole_hyper.report.recipes import recipes
from recbole_hyper.yaml_files import properties_folder
from tests.stranger import CHECKOUT


def shown(capsys: pytest.CaptureFixture[str], *typed: str) -> dict[str, str]:
    """Return what ``list`` prints, by name."""
    assert main(["list", *typed]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line and not line.endswith(":")]
    return {name: about.strip() for name, _, about in (line.partition(" ") for line in lines)}


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_part_is_told_by_its_registered_name(kind: str) -> None:
    entries = [entry for entry in overview.parts(kind) if not entry.group]
    own = {one for one in registry.names(kind) if registry.resolve(kind, one).__module__.startswith("recbole_hyper.")}
    assert {entry.name for entry in entries} == own
    assert [entry.name for entry in entries if not entry.about] == []
    for entry in entries:
        # the first words of the docstring of the class that has the name
        text = registry.resolve(kind, entry.name).__doc__.replace("`", "")
        assert entry.about.split()[0].strip("*") in text


def test_models_of_recbole_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    entries = KINDS["models"]()
    groups = {entry.name: entry.group for entry in entries}
    assert len(groups) == len(entries)
    assert groups["BPR"] == "RecBole, general"
    assert groups["SASRec"] == "RecBole, sequential"
    assert groups["SASRecCE"] == groups["Pop"] == ""  # Pop is ours, whatever RecBole has
    # other tests of this process may have registered models
    brought = {entry.name for entry in entries if entry.group.startswith("plugin")}
    assert set(groups) - brought == {*recbole_models(), *registry.names("models")} - brought
    printed = shown(capsys, "models")
    assert printed["GRU4Rec"].startswith("GRU4Rec is a model")
    assert printed["BERT4Rec"].startswith("Fei Sun et al.")  # it has no docstring but a reference


def test_metrics_are_those_that_a_ranking_has() -> None:
    ranked = [name for name in metrics_dict if not set(metric_needs(name)) - SUPPORTED_NEEDS]
    assert {entry.name.lower() for entry in KINDS["metrics"]()} == {*ranked, *OWN_METRICS}


def test_a_model_of_recbole_goes_by_the_name_of_its_class() -> None:
    assert recbole_models()["Random"].stem == "random"
    assert model_class("Random").__name__ == "Random"


@pytest.mark.parametrize(
    ("kind", "folder"), [("spaces", "sweep"), ("protocols", "protocol")], ids=["spaces", "protocols"]
)
def test_files_of_the_package(kind: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = shown(capsys, kind)
    names = {file.stem for file in (properties_folder() / folder).glob("*.yaml")}
    assert names <= set(printed)
    assert [name for name in printed if not printed[name]] == []
    assert not any("recbole-hyper sweep" in about for about in printed.values())


def test_other_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    everything = capsys.readouterr().out
    for name in ("SASRecCE", "LightGCN", "sce", "moebius_gru", "poincare", "GT", "global_timepoint", "amazon-beauty"):
        assert name in everything
    assert [name for name in recipes() if name not in everything] == []
    assert max(map(len, everything.splitlines()[:-1])) <= 100


def test_near_misses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "loss"]) == 1
    assert "no list is called 'loss'; did you mean losses?" in capsys.readouterr().err
    assert main(["list", "xyz"]) == 1
    assert "known: models, losses" in capsys.readouterr().err


def test_parts_of_a_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registry, "losses", dict(registry._registry["losses"]))
    file = tmp_path / "mine.py"
    file.write_text(
        "from recbole_hyper.registry import register\nfrom recbole_hyper.losses.base import Loss\n\n\n"
        '@register("losses", "mine")\nclass Mine(Loss):\n    """A loss of mine. It is short."""\n'
    )
    printed = shown(capsys, "losses", f"--plugins={file}")
    assert printed["mine"] == "A loss of mine"
    assert "ce" in printed
    assert main(["list", "losses", "--plugins=gone.py"]) == 1
    assert "plugins: 'gone.py' is not a Python file" in capsys.readouterr().err


def test_nothing_heavy_is_imported() -> None:
    """Counting seconds would depend on the machine: torch and RecBole alone take several."""
    code = """
import sys
from recbole_hyper.cli import main
for typed in (["--help"], ["run", "--help"], ["list", "recipes"], ["list"]):
    try:
        main(typed)
    except SystemExit:
        pass
    assert not {'torch', 'recbole', 'pandas', 'ray', 'matplotlib', 'numba', 'scipy'} & set(sys.modules), typed
"""
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)


def test_keys_of_a_model_and_near_misses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "HSASRecCE", "--geometry=euclidean"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["key", "default"]
    assert any(line.startswith("geometry ") and " euclidean " in line for line in lines)
    assert main(["keys", "HSASReCE"]) == 1
    assert "Did you mean HSASRecCE" in capsys.readouterr().err
    assert main(["keys", "--epochs=3"]) == 1
    assert "--epochs needs a model; write keys MODEL" in capsys.readouterr().err
