"""Training on two threads repeats to the bit: no sum depends on which thread comes first."""

import numpy as np
import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.ce import CrossEntropy

ROWS, LENGTH, WIDTH, ITEMS = 96, 50, 64, 400


@pytest.fixture
def _two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def gradients(name: str) -> list[Tensor]:
    """Return the gradients of a step of the encoder with a smoothed exact cross-entropy and offsets."""
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(ITEMS, WIDTH, padding_idx=0)
    encoder = registry.resolve("encoders", name)(embedding, max_length=LENGTH)
    head = OutputHead(registry.resolve("geometry", "euclidean")(), embedding.weight, offset=True)
    generator = np.random.default_rng(0)
    # a few popular items, as in real data
    items, targets = (torch.from_numpy(generator.integers(1, 9, (ROWS, LENGTH))) for _ in range(2))
    lengths = torch.full((ROWS,), LENGTH)

    def loss_of(states: Tensor, wanted: Tensor, rows: Tensor) -> Tensor:
        return CrossEntropy(label_smoothing=0.1)(states, wanted, head)

    loss, _ = encoder.training_loss(items, targets, lengths, loss_of)
    return list(torch.autograd.grad(loss, [embedding.weight, *encoder.parameters(), *head.parameters()]))


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("name", ["fmlp", "dual_fmlp", "transformer"])
def test_a_step_on_two_threads_repeats_to_the_bit(name: str) -> None:
    first = gradients(name)
    for _ in range(3):
        assert all(torch.equal(one, other) for one, other in zip(gradients(name), first, strict=True))
