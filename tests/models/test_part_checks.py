"""Parts from outside are tried before training: what sees the future or returns no loss is one line, not a result."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from recbole_hyper import run
from recbole_hyper.config import ConfigError
from recbole_hyper.encoders.base import Encoder
from recbole_hyper.encoders.transformer import TransformerEncoder
from recbole_hyper.losses.base import Loss
from recbole_hyper.losses.ce import CrossEntropy
from tests.conftest import small
from tests.raising import refused


class Future(TransformerEncoder):
    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        states = super().forward(items, lengths) * (items > 0)[..., None]
        return states + states.flip(1).cumsum(1).flip(1)


class Allowed(Future):
    causal = False


class Neighbours(TransformerEncoder):
    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        states = super().forward(items, lengths)
        return states - states.mean(0, keepdim=True)


class Padding(TransformerEncoder):
    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return super().forward(items, lengths) * items.shape[1]


class Newest(TransformerEncoder):
    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return super().forward(items, lengths)[:, -1]


class NoGradient(TransformerEncoder):
    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return super().forward(items, lengths).detach()


class Signature(TransformerEncoder):
    def forward(self, items: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(items, items)


class NoSuper(Encoder):
    def __init__(self, item_embedding: torch.nn.Embedding) -> None:
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(items)


def returning(make: Any) -> type[Loss]:
    class Odd(CrossEntropy):
        def forward(self, states: Tensor, *arguments: Any) -> Any:
            return make(super().forward(states, *arguments))

    return Odd


settings = partial(small, epochs=1)


@pytest.mark.parametrize(
    ("key", "part", "named"),
    [
        ("encoder", Future, ("Future.forward", "later items", "causal = False")),
        ("encoder", Neighbours, ("Neighbours.forward", "the other rows")),
        ("encoder", Padding, ("Padding.forward", "the padding")),
        ("encoder", Newest, ("Newest.forward", "(3, 16)", "(3, 6, 16)")),
        ("encoder", NoGradient, ("NoGradient.forward", "without a gradient")),
        ("encoder", Signature, ("Signature.forward failed: TypeError", "positional arguments")),
        ("encoder", NoSuper, ("NoSuper.__init__ failed: AttributeError", "call super().__init__() first")),
        ("loss_type", returning(lambda loss: None), ("Odd.forward returned None",)),
        ("loss_type", returning(float), ("Odd.forward returned a float",)),
        ("loss_type", returning(lambda loss: loss.repeat(3)), ("Odd.forward returned", "(3,)")),
        ("loss_type", returning(lambda loss: loss.detach()), ("Odd.forward returned", "without a gradient")),
        ("loss_type", returning(lambda loss: loss * float("nan")), ("Odd.forward returned nan",)),
        ("loss_type", returning(lambda loss: loss.wrong), ("Odd.forward failed: AttributeError",)),
        ("loss_type", returning(lambda loss: torch.ones((), requires_grad=True)), ("Odd.forward", "the states")),
    ],
)
def test_a_part_that_is_wrong_is_named_before_training(key, part, named, random_data, tmp_path) -> None:
    with refused(ConfigError, *named):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **{key: part}))
    assert not (tmp_path / "run" / "train.csv").exists()


def test_an_encoder_that_may_see_the_future_is_noted_and_a_right_one_trains(random_data: Path, tmp_path: Path) -> None:
    class Same(TransformerEncoder):
        """No difference."""

    results = [
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / name, encoder=encoder))
        for name, encoder in (("allowed", Allowed), ("same", Same), ("plain", "transformer"))
    ]
    assert [result.get("causal") for result in results] == [False, None, None]
    # nothing that is drawn for the checks moves a run
    assert results[1]["test"] == results[2]["test"]
