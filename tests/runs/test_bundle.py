"""The bundle of a run: which runs have one, and whose code writes it."""

from pathlib import Path

from recbole_hyper import run
from recbole_hyper.errors import ConfigError
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.runs.serve import prepare
from recbole_hyper.serving.bundle import BUNDLE
from tests.raising import refused
from tests.serving.conftest import keys


def test_the_bundle_follows_the_run(bundle: Path, tmp_path: Path) -> None:
    assert not prepare(bundle)  # it is there
    (bundle / "result.json").touch()
    with refused(ConfigError, "finished"):
        prepare(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / BUNDLE).mkdir()
    with refused(ConfigError, "'recbole-hyper serve'"):
        write_bundle(tmp_path)
    (tmp_path / BUNDLE).rmdir()
    with refused(ConfigError, "save_data"):
        write_bundle(tmp_path)


def test_a_model_with_a_vector_per_user_is_not_served(folder: Path, tmp_path: Path) -> None:
    run("BPR", "small", config_dict=keys(folder.parent / "data", tmp_path / "run"))
    with refused(ConfigError, "BPR"):
        write_bundle(tmp_path / "run")


def test_a_bundle_is_written_by_no_code_that_a_folder_names(foreign: tuple[Path, Path, Path]) -> None:
    place, plugin, marker = foreign
    with refused(ConfigError, "names the plugin"):
        write_bundle(place)
    assert not marker.exists()
    with trusting([plugin]):
        write_bundle(place)
    assert marker.exists()
