"""The folder of a sweep: what a resume refuses, and damaged files."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.config import ConfigError
from recbole_hyper.files import locked
from recbole_hyper.sweep import sweep
from tests.raising import refused
from tests.sweep.conftest import SPACE, local

pytestmark = pytest.mark.usefixtures("serial_sweeps")


def test_resume_refuses_a_changed_space(swept: Any) -> None:
    keys, folder, _, _ = swept
    changed = {**SPACE, "learning_rate": {"grid_search": [0.001, 0.02]}}
    with refused(ConfigError, "learning_rate"):
        local(keys, folder, changed, resume=True)
    with refused(ConfigError, "epochs"):
        local(keys, folder, resume=True, epochs=3)
    with refused(ConfigError, "already", "sweep"):
        local(keys, folder)


EVIL = [
    "!!python/object/apply:os.system [touch hacked]", "- a\n- b", "", "model: [1]", "{model: SASRecCE", "\x00", "3",
    "model: SASRecCE\ndataset: tiny\nspace: [1]\nfixed: {}\nsearch: grid\nscheduler: none",
    "model: SASRecCE\ndataset: tiny\nspace: {seed: [1]}\nfixed: {3: x}\nsearch: grid\nscheduler: none",
    "model: SASRecCE\ndataset: tiny\nspace: {seed: [1]}\nfixed: {}\nsearch: {}\nscheduler: none",
]  # fmt: skip


@pytest.mark.parametrize("text", EVIL)
def test_resume_of_a_damaged_sweep_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(text)
    with refused(ConfigError, "yaml is damaged") as raised:
        sweep(config_dict={"output_dir": str(tmp_path), "resume": True})
    assert "\n" not in str(raised.value)
    assert (tmp_path / "sweep.yaml").read_text() == text
    assert not Path("hacked").exists()


def test_resume_without_a_sweep(keys: dict, tmp_path: Path) -> None:
    with refused(ConfigError, "sweep", "resume"):
        local(keys, tmp_path / "nothing", resume=True)
    with refused(ConfigError, "--output_dir"):
        sweep("SASRecCE", "tiny", space=SPACE, config_dict={"resume": True})


def test_another_sweep_in_the_same_folder(keys: dict, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for name, named in (("sweep.yaml", "damaged"), ("trials.csv", "would overwrite")):
        (tmp_path / "s" / name).write_text("learning_rate: [0.1, 0.01]\n")
        with refused(ConfigError, named):
            local(keys, tmp_path / "s")
        (tmp_path / "s" / name).unlink()
    with locked(tmp_path / "s" / ".lock"), refused(ConfigError, "another", "running"):
        local(keys, tmp_path / "s")
