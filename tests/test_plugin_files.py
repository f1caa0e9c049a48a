"""Python files of users: run once, with the modules beside them, which may have the same names in two folders."""

import sys
from pathlib import Path

import pytest

from recbole_hyper import plugin_files


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)


def test_two_folders_may_have_modules_of_one_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        main = "from layers import VALUE\nfrom .layers import VALUE as again\n"
        main += "def late():\n    from .other import VALUE\n    return VALUE\n"
        write(tmp_path / name, main=main, layers=f"VALUE = {name!r}\n", other=f"VALUE = {name!r} * 2\n")
    one, two = (plugin_files.load(tmp_path / name / "main.py") for name in ("one", "two"))
    assert (one.VALUE, two.VALUE) == (one.again, two.again) == ("one", "two")
    assert "layers" not in sys.modules
    # later too, if the import is relative
    assert (one.late(), two.late()) == ("oneone", "twotwo")


def test_an_import_in_a_function_finds_the_module_beside_the_file(tmp_path: Path) -> None:
    write(tmp_path, plugin="def late():\n    import beside\n    return beside.VALUE\n", beside="VALUE = 3\n")
    assert plugin_files.load(tmp_path / "plugin.py").late() == 3


def test_a_file_runs_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        counted="import pathlib\npath = pathlib.Path(__file__).with_suffix('.txt')\npath.open('a').write('x')\n",
    )
    file = tmp_path / "counted.py"
    assert not plugin_files.is_loaded(file)
    assert plugin_files.load(file) is plugin_files.load(file)
    assert plugin_files.is_loaded(file)
    assert (tmp_path / "counted.txt").read_text() == "x"


def test_a_file_that_fails_can_be_mended(tmp_path: Path) -> None:
    write(tmp_path, broken="import helper\n1 / 0\n", helper="VALUE = 1\n")
    before, path = set(sys.modules), list(sys.meta_path)
    with pytest.raises(ZeroDivisionError):
        plugin_files.load(tmp_path / "broken.py")
    assert not plugin_files.is_loaded(tmp_path / "broken.py")
    left = {name for name in set(sys.modules) - before if name.count(".")}
    assert not left
    assert len(sys.meta_path) <= len(path) + 1
    write(tmp_path, broken="import helper\nVALUE = helper.VALUE + 1\n", helper="VALUE = 1 + 1\n")
    assert plugin_files.load(tmp_path / "broken.py").VALUE == 3


def test_installed_modules_win_only_where_they_must(tmp_path: Path) -> None:
    write(tmp_path, uses="import json, numpy, mine\n", json="1 / 0\n", mine="VALUE = 1\n")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "text.py").write_text("")  # no package, and numpy is installed
    module = plugin_files.load(tmp_path / "uses.py")
    assert module.json.loads("3") == 3
    assert hasattr(module.numpy, "ndarray")


def test_modules_of_a_plugin(tmp_path: Path) -> None:
    write(tmp_path, top="from middle import f\nimport json\n", middle="import deep\ndef f(): ...\n", deep="", unused="")
    found = plugin_files.modules_of(plugin_files.load(tmp_path / "top.py"))
    assert sorted(Path(str(module.__file__)).stem for module in found) == ["deep", "middle", "top"]


def test_packages_of_the_current_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a repository whose script is started at its root: models/x.py imports models.functional."""
    write(tmp_path / "models", x="from models.functional import VALUE\nimport models.functional as f\nSAME = f.VALUE\n")
    write(tmp_path / "models", functional="from tools import VALUE\n", __init__="1 / 0\n")
    write(tmp_path, tools="VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "__init__.py").write_text("")
    module = plugin_files.load(tmp_path / "models" / "x.py")
    assert module.VALUE == module.SAME == 7
    assert not {"models", "tools"} & sys.modules.keys()


def test_an_installed_package_is_not_replaced_by_the_current_folder(tmp_path, monkeypatch) -> None:
    """Such as the recbole/ of a fork."""
    write(tmp_path / "recbole", __init__="1 / 0\n")
    write(tmp_path / "models", x="import recbole\n")
    monkeypatch.chdir(tmp_path)
    assert hasattr(plugin_files.load(tmp_path / "models" / "x.py").recbole, "__version__")
