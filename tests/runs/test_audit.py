"""A run's test figures are those that an independent program finds from its weights and the raw data alone."""

from pathlib import Path

import pytest

from recbole_hyper import run
from recbole_hyper.yaml_files import recbole_folder
from tests.conftest import LEARN
from tests.reference.audit import audit


def test_the_figures_of_a_small_run_follow_from_weights_and_raw_data(walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "epochs": 2, "data_path": str(walk), "output_dir": str(tmp_path / "run")}
    result = run("FMLPRecMemory", "walk", config_dict=keys)
    found = audit(tmp_path / "run", walk / "walk" / "walk.inter")
    assert found == pytest.approx({name: result["test"][name] for name in found}, abs=1e-6)
    assert result["test"]["ndcg@10"] > 0


@pytest.mark.slow
def test_the_figures_of_the_default_on_ml_100k_follow_from_weights_and_raw_data(tmp_path: Path) -> None:
    result = run("FMLPRecMemory", "ml-100k", config_dict={"epochs": 1, "output_dir": str(tmp_path / "run")})
    found = audit(tmp_path / "run", recbole_folder() / "dataset_example" / "ml-100k" / "ml-100k.inter")
    assert found == pytest.approx({name: result["test"][name] for name in found}, abs=1e-6)
