"""A run's folder is data: opening one runs no code that the user did not name."""

import shutil
from pathlib import Path

import pytest
import yaml

from recbole_hyper import load
from recbole_hyper.cli import main
from recbole_hyper.errors import ConfigError
from recbole_hyper.runs.plugin_files import trusting
from tests.raising import refused


@pytest.mark.parametrize("command", ["recommend", "evaluate", "export", "similar"])
def test_commands_refuse_code_that_a_folder_names(command, foreign, capsys) -> None:
    folder, plugin, marker = foreign
    more = {"similar": ["i1"], "export": [f"--output={folder.parent / 'graph.onnx'}"]}
    assert main([command, str(folder), *more.get(command, [])]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {folder} names the plugin {plugin}: opening a run runs no code")
    assert "--trust_plugins" in said
    assert not marker.exists()


def test_code_that_is_trusted_runs(foreign: tuple[Path, Path, Path]) -> None:
    folder, _, marker = foreign
    with refused(ConfigError, "names the plugin"):
        load(folder)
    assert not marker.exists()
    assert main(["evaluate", str(folder), "--trust_plugins"]) == 0
    assert marker.exists()
    # it has run: nothing more can happen
    load(folder)


def test_a_users_file_with_the_same_digest_replaces_that_of_the_run(foreign: tuple[Path, Path, Path]) -> None:
    folder, plugin, marker = foreign
    mine = folder.parent / "mine" / "parts.py"
    mine.parent.mkdir()
    shutil.copy(plugin, mine)
    other = folder.parent / "other.py"
    other.write_text("pass\n")
    assert main(["evaluate", str(folder), f"--plugins={other}"]) == 1
    plugin.write_text("raise SystemExit('the file of the folder ran')\n")
    shutil.copy(mine, plugin)
    assert main(["evaluate", str(folder), f"--plugins={mine}"]) == 0
    assert marker.exists()
    with trusting([mine]):
        assert load(folder).config["plugins"] == [str(mine)]


def test_a_module_that_a_folder_names_is_not_imported(foreign, monkeypatch) -> None:
    folder, _, marker = foreign
    (folder.parent / "their_module.py").write_text(f"open({str(marker)!r}, 'a').close()\n")
    monkeypatch.syspath_prepend(folder.parent)
    config = folder / "config.yaml"
    content = {**yaml.safe_load(config.read_text()), "plugins": None}
    for named in ({"loss_type": "their_module:Loss"}, {"eval_args": {"split": {"their_module:Split": 1}}}):
        config.write_text(yaml.safe_dump({**content, **named}))
        with refused(ConfigError, "'their_module'"):
            load(folder)
        assert not marker.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with refused(ConfigError, "nowhere.py"), trusting([tmp_path / "nowhere.py"]):
        pass
