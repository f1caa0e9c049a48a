"""RecBole's functions find models of both packages by name, and search over them."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from recbole.config import Config as RecBoleConfig
from recbole.quick_start import objective_function, run
from recbole.trainer import HyperTuning
from recbole.utils import get_model

import recbole_hyper
from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError
from tests.conftest import SMALL
from tests.hosted.conftest import ours
from tests.raising import refused


def test_get_model_by_name() -> None:
    from recbole.model.general_recommender import BPR
    from recbole.model.general_recommender import Pop as RecBolePop

    assert get_model("HSASRecCE") is recbole_hyper.HSASRecCE
    assert get_model("BPR") is BPR
    assert get_model("Pop") is RecBolePop
    with refused(ValueError, "'SASRecCEE'", "RecBole", "SASRecCE"):
        get_model("SASRecCEE")
    with refused(ValueError, "BPR"):
        get_model("bpr")


@pytest.mark.parametrize("name", ["XGBoost", "LightGBM"])
def test_a_missing_package_is_named(name: str) -> None:
    if all(map(find_spec, ("xgboost", "lightgbm"))):
        pytest.skip("both are installed")
    with pytest.raises(ModuleNotFoundError, match=f"RecBole's {name} needs the package '(xgboost|lightgbm)'"):
        get_model(name)


def test_objective_function(settings: dict[str, Any]) -> None:
    result = objective_function({**settings, "model": "SASRecCE", "dataset": "random"})
    assert result["model"] == "SASRecCE"
    assert dict(result["test_result"]) == ours("SASRecCE", settings)["test"]


def test_hyper_tuning(settings: dict[str, Any]) -> None:
    pytest.importorskip("hyperopt")
    lines = [f"{key}: {value!r}\n" for key, value in settings.items() if key not in ("hidden_size", "data_path")]
    Path("fixed.yaml").write_text(
        "".join(lines) + f"data_path: {settings['data_path']}\nmodel: SASRecCE\ndataset: random\n"
    )
    Path("space.hyper").write_text("hidden_size choice [8,16]\n")
    tuning = HyperTuning(
        objective_function, algo="exhaustive", params_file="space.hyper", fixed_config_file_list=["fixed.yaml"]
    )
    tuning.run()
    tuning.export_result("found.txt")
    assert len(tuning.params2result) == 2
    best = ours("SASRecCE", {**settings, **tuning.best_params})
    assert tuning.best_score == best["valid"]["ndcg@5"]
    assert "hidden_size" in Path("found.txt").read_text()


def test_more_processes_are_refused(settings: dict[str, Any]) -> None:
    with refused(ConfigError, "nproc", "torchrun"):
        RecBoleConfig("SASRecCE", "random", config_dict={**settings, "nproc": 2})
    assert run("EASER", "random", config_dict=settings)["test_result"]


@pytest.mark.parametrize("name", ["AsymKNN", "GRU4RecCPR", "SASRecCPR"])
def test_models_of_recbole_121(name: str, cycle: Path) -> None:
    keys = {**SMALL, "data_path": str(cycle), "epochs": 1}
    if version("recbole") == "1.2.0":
        with refused(ConfigError, name):
            Config(name, "cycle", config_dict=keys)
        return
    keys |= {"k": 5} if name == "AsymKNN" else {"reranker_CAN_NUM": 5}
    result = recbole_hyper.run(name, "cycle", config_dict={**keys, "output_dir": str(cycle / name)})
    assert result["test"]["ndcg@10"] > 0
