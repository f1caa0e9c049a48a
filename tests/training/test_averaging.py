"""The average of the weights: the recurrence in float64, what sees it, a resume, a refit, and what is refused."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from recbole.quick_start import run_recbole
from torch import nn

from recbole_hyper import load
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.run import run
from recbole_hyper.training.averaging import WeightAverage
from recbole_hyper.training.checkpoint import load_state
from recbole_hyper.training.loop import Loop
from recbole_hyper.training.progress import Training
from tests.raising import refused
from tests.training.common import same, settings, weights

EMA = {"ema_decay": 0.95, "learning_rate": 0.02, "stopping_step": 20}


def of_path(path: list[torch.Tensor], decay: float) -> torch.Tensor:
    """Return the average of weights (the first is where they start) by a loop in float64."""
    average = path[0].double()
    for t, point in enumerate(path[1:]):
        share = min(decay, (1 + t) / (10 + t))
        average = share * average + (1 - share) * point.double()
    return average


class Watched:
    """The raw weights behind every step of a run, by name, from the step that the run (or this process) begins with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path: dict[str, list[torch.Tensor]] = {}
        self.at_validation: list[int] = []
        step, follow, validate = Loop.train_step, Training._use_optimizer, Training._validate

        def note(training: Training) -> None:
            for name, parameter in training.model.named_parameters():
                if parameter.requires_grad:
                    self.path.setdefault(name, []).append(parameter.detach().clone())

        def followed(training: Training, optimizer: torch.optim.Optimizer) -> None:
            note(training)
            follow(training, optimizer)
            if not isinstance(training, Loop):
                optimizer.register_step_post_hook(lambda *_: note(training))

        def stepped(training: Loop, *arguments: Any) -> Any:
            found = step(training, *arguments)
            note(training)
            return found

        def validated(training: Training, *arguments: Any) -> Any:
            self.at_validation.append(self.steps)
            return validate(training, *arguments)

        monkeypatch.setattr(Loop, "train_step", stepped)
        monkeypatch.setattr(Training, "_use_optimizer", followed)
        monkeypatch.setattr(Training, "_validate", validated)

    @property
    def steps(self) -> int:
        return len(next(iter(self.path.values()))) - 1

    def average(self, decay: float, steps: int) -> dict[str, torch.Tensor]:
        return {name: of_path(points[: steps + 1], decay) for name, points in self.path.items()}


def close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert expected.keys() <= found.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].double(), tensor, rtol=1e-5, atol=1e-6, msg=name)


def toy() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[2].bias.requires_grad_(False)
    model.register_parameter("scale", nn.Parameter(torch.tensor(0.5)))
    return model


@pytest.mark.parametrize("decay", [0.3, 0.9])
def test_every_step_is_the_recurrence(decay: float) -> None:
    model = toy()
    average = WeightAverage(model, decay)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    path: dict[str, list[torch.Tensor]] = {}
    for step in range(40):
        for name, tensor in model.state_dict().items():
            path.setdefault(name, []).append(tensor.clone())
        if step == 39:
            break
        optimizer.zero_grad()
        (model.scale * model(torch.randn(8, 3))).square().sum().backward()
        optimizer.step()
        average.update()
    raw = {name: points[-1] for name, points in path.items()}
    with average.applied():
        within = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, points in path.items():
        assert torch.equal(model.state_dict()[name], raw[name])
        if name in ("1.num_batches_tracked", "2.bias"):  # counts, and what is not trained, stay
            assert torch.equal(within[name], raw[name])
        else:
            torch.testing.assert_close(within[name].double(), of_path(points, decay), rtol=1e-5, atol=1e-6)
            assert not torch.allclose(within[name], raw[name], rtol=1e-4)


def test_weights_are_swapped_in_place_and_restored() -> None:
    model = nn.ParameterList([torch.randn(10, 3), torch.randn(4, 9).T, torch.randn(0, 5), torch.randn(())])
    average = WeightAverage(model, 0.9)
    raw = [parameter.detach().clone() for parameter in model]
    places = [parameter.data_ptr() for parameter in model]
    with torch.no_grad():
        for parameter in model:
            parameter += 1
    with average.applied():
        assert all(map(torch.equal, model, raw))
        with average.applied():  # a block in a block
            assert all(map(torch.equal, model, raw))
        assert all(map(torch.equal, model, raw))
    assert all(torch.equal(parameter, before + 1) for parameter, before in zip(model, raw, strict=True))
    assert [parameter.data_ptr() for parameter in model] == places


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("SASRecCE", {}),
        ("HSASRecCE", {"curvature": "learn", "item_bias": True}),
        ("HGRU4Rec", {"learner": "riemannian_adam", "hidden_size": 8}),
        ("BPR", {"embedding_size": 8}),
    ],
)
def test_the_average_is_saved_tested_and_served(model, keys, random_data, tmp_path, monkeypatch) -> None:
    watched = Watched(monkeypatch)
    result = run(model, "random", config_dict=settings(random_data, tmp_path / "run", **EMA, **keys, epochs=4))
    steps = watched.at_validation[result["best_epoch"]]
    expected = watched.average(0.95, steps)
    close(weights(tmp_path / "run"), expected)
    served = load(tmp_path / "run")
    close(served.model.state_dict(), expected)
    # training went on with the raw ones, and both are kept
    state = load_state(tmp_path / "run" / "checkpoint.pt")
    assert state["average"]["steps"] == watched.steps
    close(state["average"]["tensors"], watched.average(0.95, watched.steps))
    for name, points in watched.path.items():
        assert torch.equal(state["model"][name], points[-1])
    if keys.get("curvature") == "learn":
        assert result["curvature"] == pytest.approx(float(expected["head.log_curvature"].exp()), rel=1e-5)


def test_training_does_not_see_the_average(random_data: Path, tmp_path: Path) -> None:
    for name, keys in (("with", EMA), ("without", {**EMA, "ema_decay": None})):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / name, **keys))
    states = [load_state(tmp_path / name / "checkpoint.pt") for name in ("with", "without")]
    assert all(torch.equal(tensor, states[1]["model"][name]) for name, tensor in states[0]["model"].items())
    assert states[1]["average"] is None
    losses = [pd.read_csv(tmp_path / name / "train.csv") for name in ("with", "without")]
    assert losses[0]["train_loss"].tolist() == losses[1]["train_loss"].tolist()
    assert losses[0]["valid_ndcg@10"].tolist() != losses[1]["valid_ndcg@10"].tolist()


@pytest.mark.parametrize(
    ("model", "keys"), [("HSASRecCE", {"curvature": "learn"}), ("LightGCN", {"embedding_size": 8})]
)
def test_a_resumed_run_has_the_average_of_one_that_was_not_stopped(model, keys, random_data, tmp_path, monkeypatch):
    keys = {**EMA, **keys, "lr_plateau": {"factor": 0.5, "patience": 1}, "eval_step": 2, "epochs": 7}
    whole = run(model, "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    follow = Training._use_optimizer

    def stop_at_fifth(training: Training, optimizer: torch.optim.Optimizer) -> None:
        def stop(*_: Any) -> None:
            if len(training.history) == 4:
                raise KeyboardInterrupt

        optimizer.register_step_pre_hook(stop)
        follow(training, optimizer)

    monkeypatch.setattr(Training, "_use_optimizer", stop_at_fifth)
    with pytest.raises(KeyboardInterrupt):
        run(model, "random", config_dict=settings(random_data, tmp_path / "parts", **keys))
    monkeypatch.undo()
    parts = run(model, "random", config_dict=settings(random_data, tmp_path / "parts", **keys, resume=True))
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert (parts["valid"], parts["test"]) == (whole["valid"], whole["test"])
    states = [load_state(tmp_path / name / "checkpoint.pt") for name in ("whole", "parts")]
    assert states[0]["average"]["steps"] == states[1]["average"]["steps"] > 0
    for part in ("model", "average"):
        one, other = (state[part].get("tensors", state[part]) for state in states)
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_run_with_more_epochs_resumes_from_the_raw_weights(random_data: Path, tmp_path: Path) -> None:
    keys = {**EMA, "eval_step": 2, "refit": True, "eval_args": {"split": {"GT": {"valid": 0.7, "test": 0.85}}}}
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, epochs=4))
    parts = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "parts", **keys, resume=True))
    whole = run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "whole", **keys))
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert same(tmp_path / "whole" / "refit", tmp_path / "parts" / "refit")
    assert (parts["valid"], parts["test"]) == (whole["valid"], whole["test"])


@pytest.mark.parametrize("saved", [True, False])
def test_recboles_own_functions_rank_and_keep_the_average(saved, random_data, tmp_path, monkeypatch) -> None:
    watched = Watched(monkeypatch)
    monkeypatch.setattr("sys.argv", ["script"])
    monkeypatch.chdir(tmp_path)
    keys = settings(random_data, tmp_path / "run", **EMA, epochs=2, checkpoint_dir=str(tmp_path / "files"))
    del keys["output_dir"]
    tested: list[dict[str, torch.Tensor]] = []
    measure = Training.measure

    def measured(loop: Any, evaluation: Any, *arguments: Any) -> Any:
        if evaluation.name == "test":
            tested.append({name: tensor.clone() for name, tensor in loop.model.state_dict().items()})
        return measure(loop, evaluation, *arguments)

    monkeypatch.setattr(Training, "measure", measured)
    run_recbole(model="SASRecCE", dataset="random", config_dict=keys, saved=saved)
    steps = watched.steps
    if saved:
        (file,) = (tmp_path / "files").glob("SASRecCE-*.pth")
        content = torch.load(file, weights_only=False)
        steps = watched.at_validation[content["epoch"]]
        close(content["state_dict"], watched.average(0.95, steps))
    assert len(tested) == 1
    close(tested[0], watched.average(0.95, steps))


@pytest.mark.parametrize("value", [0, 1, "x"])
def test_a_decay_out_of_range_is_refused(value: object, random_data: Path, tmp_path: Path) -> None:
    with refused(ConfigError, "ema_decay="):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path, ema_decay=value))
