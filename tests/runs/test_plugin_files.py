"""A run is read by the plugin files that it was trained with, or not at all."""

from pathlib import Path

import pytest

from recbole_hyper import load, registry, run
from recbole_hyper.config import ConfigError
from recbole_hyper.evaluation.results import headline
from recbole_hyper.runs.evaluate import evaluate
from tests.conftest import SMALL
from tests.raising import refused

PLUGIN = """
from recbole_hyper.encoders.transformer import TransformerEncoder
from recbole_hyper.registry import register

@register("encoders", "shifted_{tag}")
class Shifted(TransformerEncoder):
    def forward(self, items, lengths, *times):
        return {sign} super().forward(items, lengths, *times)
"""


def test_a_plugin_that_changed_is_not_run(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "parts.py"
    text = PLUGIN.format(tag=tmp_path.name, sign="")
    file.write_text(text)
    keys = {**SMALL, "data_path": str(random_data), "output_dir": str(tmp_path / "run"), "epochs": 1}
    keys |= {"plugins": [str(file)], "encoder": f"shifted_{tmp_path.name}"}
    first = run("SASRecCE", "random", config_dict=keys)
    assert headline(first).startswith(f"SASRecCE with encoder={keys['encoder']} on random: ")
    assert evaluate(tmp_path / "run")["test"] == first["test"]
    file.write_text(PLUGIN.format(tag=tmp_path.name, sign="-"))
    monkeypatch.setattr(registry, "load_plugins", lambda files: pytest.fail("the file was run"))
    again = {"output_dir": str(tmp_path / "run"), "resume": True, "epochs": 2}
    for read in (load, evaluate, lambda _: run(config_dict=again)):
        with refused(ConfigError, "parts.py"):
            read(tmp_path / "run")
    monkeypatch.undo()
    file.write_text(text)
    assert evaluate(tmp_path / "run")["test"] == first["test"]
