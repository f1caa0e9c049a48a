"""The public functions refuse what they cannot compute, with one clear message."""

import pytest
import torch

from recbole_hyper import registry
from recbole_hyper.functional import cross_entropy, poincare_logits
from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.geometry.head import OutputHead
from tests.raising import refused


def arguments(**changes: object) -> dict:
    given = {
        "states": torch.zeros(3, 2),
        "targets": torch.tensor([1, 2, 3]),
        "weight": torch.zeros(5, 2),
        "offset": torch.zeros(5),
    }
    return given | changes


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"states": torch.zeros(3, 4)}, ("(3, 4)", "(5, 2)")),
        ({"states": torch.zeros(2)}, ("share d",)),
        ({"weight": torch.zeros(5, 2).int()}, ("weight", "torch.int32")),
        ({"offset": torch.zeros(4)}, ("offset", "(5,)", "(4,)")),
        ({"targets": torch.tensor([1, 2])}, ("targets", "(3,)")),
        ({"targets": torch.tensor([1, 2, 3]).int()}, ("targets", "int64")),
        ({"targets": torch.tensor([1, 2, 5])}, ("0..4", "from 1 to 5")),
        ({"targets": torch.tensor([-1, 2, 3])}, ("targets", "0..4")),
        ({"targets": torch.tensor([0, 2, 3]), "padding_idx": 0}, ("padding_idx=0",)),
        ({"padding_idx": 5}, ("padding_idx", "got 5")),
        ({"states": torch.zeros(0, 2), "targets": torch.zeros(0, dtype=torch.int64)}, ("empty",)),
        ({"geometry": "poincaré"}, ("'poincaré'", "poincare")),
        ({"geometry": "poincare", "curvature": 0.0}, ("curvature", "0.0")),
        ({"label_smoothing": 1.0}, ("label_smoothing=1.0",)),
        ({"memory_budget": 1}, ("memory_budget=1",)),
    ],
)
def test_bad_input(changes: dict, named: tuple[str, ...]) -> None:
    with refused(ValueError, *named):
        cross_entropy(**arguments(**changes))


def test_one_class() -> None:
    loss = cross_entropy(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.randn(1, 2))
    assert loss == 0
    with refused(ValueError, "padding_idx=0"):
        cross_entropy(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), torch.randn(1, 2), padding_idx=0)


def test_bad_logits_input() -> None:
    with refused(ValueError, "offset", "shape"):
        poincare_logits(torch.zeros(3, 2), torch.zeros(5, 2), torch.zeros(3), 1.0)
    assert poincare_logits(torch.zeros(3, 2), torch.zeros(5, 2), None, 1.0).shape == (3, 5)


@pytest.mark.parametrize("geometry", [Cosine(temperature="learn"), "poincare"])
def test_a_tensor_is_what_the_head_learns(geometry: object) -> None:
    """The temperature of a geometry that learns it, or the curvature: as in the loss of a model."""
    weight, states = torch.nn.Parameter(torch.randn(7, 4)), torch.randn(3, 4)
    theta = torch.tensor(0.3, requires_grad=True)
    targets = torch.tensor([1, 2, 3])
    loss = cross_entropy(states, targets, weight, geometry=geometry, curvature=theta, padding_idx=0)
    made = registry.resolve("geometry", geometry)() if isinstance(geometry, str) else geometry
    of_model = registry.resolve("losses", "ce")()(states, targets, OutputHead(made, weight, theta=theta))
    assert loss == of_model
    assert torch.equal(*(torch.autograd.grad(one, theta)[0] for one in (loss, of_model)))


@pytest.mark.parametrize("name", ["ce", "bce", "gbce", "bce_plus", "sampled_ce"])
def test_a_nan_in_the_padding_row_reaches_no_gradient(name: str) -> None:
    weight = torch.randn(7, 4)
    weight[0] = torch.nan
    head = OutputHead(registry.resolve("geometry", "euclidean")(), torch.nn.Parameter(weight))
    states = torch.randn(3, 4, requires_grad=True)
    options = {} if name == "ce" else {"n_negatives": 2}
    loss = registry.resolve("losses", name)(**options)(states, torch.tensor([1, 2, 3]), head)
    for gradient in (loss, *torch.autograd.grad(loss, (states, head.weight))):
        assert torch.isfinite(gradient).all()
