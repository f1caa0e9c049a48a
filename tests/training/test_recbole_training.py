"""RecBole models in a run: a resume, and models that cannot resume exactly."""

from pathlib import Path

from recbole_hyper import run
from recbole_hyper.training.checkpoint import CheckpointError
from tests.raising import refused
from tests.training.common import settings


def test_a_resumed_model_of_recbole_tests_its_best_epoch(random_data: Path, tmp_path: Path) -> None:
    """LightGCN ranks with vectors that are no parameters; here its first epochs are the best."""
    keys = {"learning_rate": 0.3, "stopping_step": 20, "embedding_size": 8}
    whole = run("LightGCN", "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    assert whole["best_epoch"] < 3
    run("LightGCN", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=4))
    parts = run("LightGCN", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, resume=True))
    assert (parts["valid"], parts["test"]) == (whole["valid"], whole["test"])


def test_a_model_that_cannot_resume_exactly_is_refused(random_data: Path, tmp_path: Path) -> None:
    run("DiffRec", "random", config_dict=settings(random_data, tmp_path / "out", epochs=1))
    with refused(CheckpointError, "DiffRec"):
        run("DiffRec", "random", config_dict=settings(random_data, tmp_path / "out", epochs=2, resume=True))
