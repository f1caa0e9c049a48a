"""How long a training will take: measured on a fraction, said before it starts, and what follows from it."""

from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch

from recbole_hyper import run
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.training import cost
from recbole_hyper.training.memory import Trial, try_step
from recbole_hyper.training.settings import TrainSettings
from tests.conftest import SMALL
from tests.training.test_memory import parts

CPU = torch.device("cpu")


class Batches:
    batch_size, count = 4, 40

    def __len__(self) -> int:
        return 10

    def share_of_longest(self, rows: int) -> float:
        assert rows == 4
        return 0.5


def test_all_items_are_taken_where_they_take_at_most_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_seconds_of_a_logit", lambda *_: 1e-8)
    assert cost.softmax_items(3.5e11, 10**6, 64, Euclidean(), CPU) == (None, 3500.0)
    assert cost.softmax_items(3.7e11, 10**6, 64, Euclidean(), CPU) == (cost.SAMPLED_ITEMS, 3700.0)
    assert cost.softmax_items(3.7e11, 4000, 64, Euclidean(), CPU)[0] is None


def test_small_trainings_measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_seconds_of_a_logit", None)
    assert cost.softmax_items(1e11, 10**5, 64, Euclidean(), CPU)[0] is None


def test_a_logit_is_measured() -> None:
    assert 1e-11 < cost._seconds_of_a_logit(2000, 16, Euclidean(), CPU) < 1e-5


@pytest.mark.parametrize(
    ("seconds", "n_items", "exact", "ends"),
    [
        (60.0, 100, True, "5 min 0 s, 12 epochs 1 h 0 min"),
        (70.0, 100, True, "--epochs=10 would take 58 min 20 s"),
        (70.0, 10**6, False, "--epochs=10 would take 58 min 20 s"),
        (70.0, 10**6, True, "--softmax_items=4096 shortens it most: a sample of the items in each step"),
        (9999.0, 100, True, "--epochs=1 would take 13 h 53 min"),
    ],
)
def test_the_line_before_training(seconds: float, n_items: int, exact: bool, ends: str) -> None:
    text = cost.plan(Trial(0, seconds), Batches(), 12, n_items, exact=exact)
    assert text.startswith("an epoch of 10 steps will take about ")
    assert text.endswith(ends)


@pytest.mark.usefixtures("growing_trials")
def test_a_slow_step_is_not_tried_whole(cycle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 0.05 s a window is tried on some windows; its seconds and memory follow for the whole batch."""
    config, model, batches = parts(cycle)
    batches.batch_size, tried, loss_of = 16, [], model.calculate_loss

    def calculate_loss(batch: Any) -> torch.Tensor:
        end = perf_counter() + 0.05 * len(batch)
        while perf_counter() < end:
            pass
        tried.append(len(batch))
        return loss_of(batch)

    monkeypatch.setattr(model, "calculate_loss", calculate_loss)
    monkeypatch.setattr("recbole_hyper.training.memory._SECONDS", 0.3)
    trial = try_step(TrainSettings.of(config), model, batches)
    assert max(tried) < 16
    assert 0.8 * 0.8 < trial.seconds < 3 * 0.8


def test_a_run_with_a_large_catalogue_samples_items_and_validation_cases(random_data, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("recbole_hyper.runs.ready._FEWEST_CASES", 5)
    monkeypatch.setattr("recbole_hyper.runs.ready.softmax_items", lambda *_: (3, 9999.0))
    keys = {**SMALL, "data_path": str(random_data), "softmax_items": "auto", "valid_cases": "auto", "epochs": 1}
    result = run("SASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert result["config"]["softmax_items"] == 3
    assert result["config"]["valid_cases"] == result["n_valid_cases"] < result["n_test_cases"]
    assert result["protocol_counts"]["validation cases"] == result["n_valid_cases"]
    assert result["data_defaults"]["chosen"] == {"softmax_items": 3, "valid_cases": result["n_valid_cases"]}
    again = run(config_dict={"output_dir": str(tmp_path / "run"), "resume": True, "epochs": 2})
    assert again["n_valid_cases"] == result["n_valid_cases"]
