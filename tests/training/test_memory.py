"""Memory: freed pages, and the trial step: what it measures and refuses, and that it leaves nothing behind."""

import gc
import json
import re
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from recbole_hyper import run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.random_numbers import random_state
from recbole_hyper.runs.build import build, read_data
from recbole_hyper.training.memory import give_back_freed, try_step
from recbole_hyper.training.settings import TrainSettings
from tests.conftest import SMALL
from tests.raising import refused

pytestmark = pytest.mark.usefixtures("growing_trials")


def test_holes_in_the_heap_are_returned() -> None:
    process = psutil.Process()
    # below the size from which the C library maps a block by itself; every hundredth stays and keeps the heap long
    blocks = [torch.ones(20_000) for _ in range(2_000)]
    full = process.memory_info().rss
    kept = blocks[::100]
    del blocks
    gc.collect()
    give_back_freed()
    assert full - process.memory_info().rss > 100e6
    assert all(block.sum() == 20_000 for block in kept)


def parts(data: Path, **keys: object) -> tuple:
    config = Config("SASRecBCE", "cycle", config_dict={**SMALL, "data_path": str(data), "use_gpu": False, **keys})
    dataset, split = read_data(config)
    return config, *build(config, dataset, split, split.train_lengths)[:2]


def test_the_longest_windows_are_tried(random_data: Path) -> None:
    config = Config("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data)})
    dataset, split = read_data(config)
    _, batches, _ = build(config, dataset, split, split.train_lengths)
    lengths = np.sort(np.concatenate([batch["item_length"].numpy() for batch in batches]))
    assert batches.longest(5)["item_length"].tolist() == lengths[-5:].tolist()


@pytest.mark.parametrize("rule", ["all", "random"])
def test_it_leaves_nothing_behind(rule: str, cycle: Path) -> None:
    config, model, batches = parts(cycle, train_windows=rule)
    model.register_buffer("steps", torch.zeros(()))
    counted = model.calculate_loss

    def calculate_loss(batch):
        model.steps += 1
        return counted(batch)

    model.calculate_loss = calculate_loss
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = json.dumps(random_state(batches), default=lambda one: one.tolist())
    assert try_step(TrainSettings.of(config), model, batches).bytes > 0
    assert json.dumps(random_state(batches), default=lambda one: one.tolist()) == before
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_larger_step_takes_more(cycle: Path) -> None:
    """The loss keeps 64 MB for each row of a batch, which the measurement finds."""
    config, model, batches = parts(cycle)
    loss_of = model.calculate_loss

    def calculate_loss(batch):
        ballast = torch.ones(len(batch), 2**24, requires_grad=True)
        return loss_of(batch) + 0 * (ballast * ballast).sum()

    model.calculate_loss = calculate_loss
    batches.batch_size = 4
    assert try_step(TrainSettings.of(config), model, batches).bytes >= 4 * 2**26
    limit = 3 * 2**27 + 2**26
    batches.batch_size = 16
    config["memory_limit"] = limit
    with pytest.raises(ConfigError, match=r"would need about [\d.]+ GiB, 0\.4 GiB are free: .*") as caught:
        try_step(TrainSettings.of(config), model, batches)
    batches.batch_size = int(re.findall(r"--train_batch_size=(\d+) would fit", str(caught.value))[0])
    assert batches.batch_size < 8
    assert try_step(TrainSettings.of(config), model, batches).bytes <= limit


def test_what_happens_once_is_not_a_time_of_every_step(cycle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that were loaded for larger batches made a training seem eight times as long, and as large."""
    config, model, batches = parts(cycle)
    batches.batch_size, loading, idle = 64, [1.0], psutil.Process().memory_info().rss
    largest = min(batches.batch_size, batches.count)

    def measured(*given: object) -> tuple[float, float]:
        rows = int(str(given[-1]))
        seconds = 0.1 * rows + (loading.pop() if rows >= 8 and loading else 0.0)
        return idle + 1e9 + 1e6 * rows + (0 if loading else 1e9), seconds

    monkeypatch.setattr("recbole_hyper.training.memory._measured", measured)
    monkeypatch.setattr("recbole_hyper.training.memory._SECONDS", 2.0)  # it ends where the kernels are loaded
    monkeypatch.setattr("recbole_hyper.training.memory._HALVINGS", 4)
    trial = try_step(TrainSettings.of(config), model, batches)
    assert trial.seconds == pytest.approx(0.1 * largest, abs=0.05)
    assert trial.bytes == pytest.approx(2e9, rel=0.1)
    assert not loading


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_step_without_memory_is_refused(error: Exception, cycle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, model, batches = parts(cycle)
    loss_of = model.calculate_loss

    def calculate_loss(batch):
        if len(batch) > 8:
            raise error
        return loss_of(batch)

    monkeypatch.setattr(model, "calculate_loss", calculate_loss)
    with refused(ConfigError, "--train_batch_size=8"):
        try_step(TrainSettings.of(config), model, batches)


def test_a_run_is_refused_before_training_and_leaves_its_folder_free(cycle: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(cycle), "output_dir": str(tmp_path / "run"), "epochs": 1}
    with refused(ConfigError, "GiB", "hidden_size"):
        run("SASRecCE", "cycle", config_dict={**keys, "memory_limit": 1000})
    result = run("SASRecCE", "cycle", config_dict=keys)
    assert result["trial_step_bytes"] > 0
    assert result["peak_memory_bytes_per_phase"]["train"] > 0


def test_weights_larger_than_the_memory_are_refused_before_they_are_made(cycle: Path) -> None:
    config, *_ = parts(cycle)
    with pytest.raises(ConfigError, match=r"weights of the model need about [\d.]+ GiB"):
        config.model_class.require_room(config, 10**12)
