"""Steps as graphs: what is replayed is what runs without them. The device of the tests records its operators.

tests/test_devices.py has what is tested on CUDA.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recbole_hyper.batches.device_windows import PackedBatch
from recbole_hyper.config import Config
from recbole_hyper.runs.build import build, read_data
from recbole_hyper.training import graphs
from recbole_hyper.training.graphs import WARM_STEPS, StepGraphs, why_no_graphs
from recbole_hyper.training.loop import Loop
from tests.devices.foreign import Recording
from tests.devices.steps import small_keys, torch_scaler, write_random

EVERYTHING = {
    "ema_decay": 0.9,
    "lr_schedule": "cosine",
    "warmup_ratio": 0.3,
    "clip_grad_norm": {"max_norm": 0.5},
    "weight_decay": 0.01,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_random(tmp_path / "data")


def trained(model: str, data: Path, folder: Path, steps: int, *, replayed: bool, **keys: Any) -> tuple[Loop, int]:
    """Train ``steps`` steps on the batches of a few epochs, and return the loop and the number of replays."""
    config = Config(model, "random", config_dict=small_keys(model, data, output_dir=str(folder), epochs=9, **keys))
    dataset, split = read_data(config)
    torch.manual_seed(0)
    made, batches, _ = build(config, dataset, split, split.train_lengths)
    loop = Loop(config, made, folder)
    if replayed:
        loop.graphs = StepGraphs(loop.device, Recording.capture)
    made.train()
    torch.manual_seed(1)
    one = next(iter(batches))
    # other batches of the same shape, and between them one of another shape, which runs without a graph
    halves = batches.on_device.pack(batches._windows[::3])
    queue = [one, _shuffled(one), halves, one, one, _shuffled(one), halves, _shuffled(one), one][:steps]
    assert all(isinstance(batch, PackedBatch) for batch in queue)
    for number, batch in enumerate(queue):
        if loop.schedule is not None:
            loop.schedule.set_rates(0, number, steps)
        loop.train_step(batch, torch_scaler(loop))
    loop._read_losses()
    return loop, 0 if loop.graphs is None else loop.graphs.replays


def _shuffled(batch: PackedBatch) -> PackedBatch:
    """Return a batch of the same shape with other users' items."""
    numbers = batch.numbers.clone()
    rows = batch.shape.rows
    numbers[:rows] = (numbers[:rows] - 1).clamp(min=0)
    return replace(batch, numbers=numbers)


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("SASRecCE", EVERYTHING),
        ("HSASRecCE", {"curvature": "learn", "curvature_init": 0.1}),
        ("FMLPRecMemory", {}),
        ("gSASRec", {}),
        ("eSASRec", {}),
        ("HSTU", {}),
        ("DualRec", {}),
        ("SASRecBCEPlus", {"loss_type": "bce"}),
    ],
)
def test_replayed_steps_are_those_without_graphs(model, keys, data, tmp_path, foreign) -> None:
    """Weights, average, moments and losses, with dropout, negatives, schedule and clipping."""
    found = [trained(model, data, tmp_path / str(one), 9, replayed=one, **keys) for one in (False, True)]
    (plain, _), (loop, replays) = found
    assert replays >= 2
    for one, other in zip(plain.model.state_dict().values(), loop.model.state_dict().values(), strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-5, atol=1e-7)
    assert plain.under_way.sums == pytest.approx(loop.under_way.sums, rel=1e-5)
    if plain.average is not None and loop.average is not None:
        averages = (part.average.state_dict()["tensors"].values() for part in (plain, loop))
        for one, other in zip(*averages, strict=True):
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-5, atol=1e-7)


def test_a_number_of_the_host_would_go_stale(data, tmp_path, foreign, monkeypatch) -> None:
    """The test above can fail: a rate that is a number of Python stays that of the recording."""
    monkeypatch.setattr("recbole_hyper.training.optim.torch.tensor", lambda value, device: value)
    found = [trained("SASRecCE", data, tmp_path / str(one), 9, replayed=one, **EVERYTHING) for one in (False, True)]
    weights = [loop.model.item_embedding.weight.detach().cpu() for loop, _ in found]
    assert not torch.allclose(*weights, rtol=1e-5, atol=1e-7)


def test_a_step_that_cannot_be_recorded_runs_as_usual(data, tmp_path, foreign, monkeypatch, caplog) -> None:
    def refused(function: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    (plain, _) = trained("SASRecCE", data, tmp_path / "plain", 9, replayed=False, hidden_dropout_prob=0.0)
    monkeypatch.setattr(Recording, "capture", refused)
    with caplog.at_level("WARNING", "recbole_hyper"):
        loop, replays = trained("SASRecCE", data, tmp_path / "graphs", 9, replayed=True, hidden_dropout_prob=0.0)
    assert replays == 0
    assert [one.getMessage() for one in caplog.records if "cannot be recorded" in one.getMessage()] == [
        "cuda_graphs: a step cannot be recorded, so the next run as usual: "
        "operation not permitted when stream is capturing"
    ]
    for one, other in zip(plain.model.state_dict().values(), loop.model.state_dict().values(), strict=True):
        assert torch.equal(one.cpu(), other.cpu())


def test_few_shapes_are_recorded(data: Path, tmp_path: Path, foreign: torch.device, monkeypatch: Any) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 0)
    _, replays = trained("SASRecCE", data, tmp_path / "run", 6, replayed=True)
    assert WARM_STEPS < 6
    assert replays == 0


@pytest.mark.parametrize(
    ("model", "keys", "reason"),
    [
        ("SASRecCE", {}, None),
        ("SASRecSCE", {}, "ScalableCrossEntropy plans on the host"),
        ("FMLPRec", {}, "FMLPEncoder chooses positions by their values"),
        ("SASRecCE", {"learner": "sgd"}, "learner SGD reads values on the host"),
    ],
)
def test_what_cannot_be_recorded_says_why(model, keys, reason, data, tmp_path, foreign) -> None:
    loop, _ = trained(model, data, tmp_path / "run", 0, replayed=False, **keys)
    batches = SimpleNamespace(on_device=True)
    assert why_no_graphs(loop, batches) == "there is no CUDA device"
    loop.device = torch.device("cuda")
    assert why_no_graphs(loop, batches) == reason
    assert why_no_graphs(loop, SimpleNamespace()) is not None
