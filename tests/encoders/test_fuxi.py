"""FuXi-alpha's blocks: equal to a plain loop of their equations, and their start."""

import pytest
import torch

from recbole_hyper.encoders.fuxi import FuXiEncoder
from tests.encoders.timed import made, same_as_loop
from tests.reference import relations


@pytest.mark.parametrize(
    "options",
    [
        {"n_heads": 1, "n_layers": 1},
        {"n_heads": 3, "n_layers": 2},
        {"n_heads": 2, "attention_dim": 5, "linear_dim": 4, "inner_size": 7},
        {"n_heads": 5, "attention_dim": 1, "linear_dim": 2, "n_time_buckets": 7},
    ],
)
def test_equals_a_plain_loop_of_its_equations(options: dict) -> None:
    same_as_loop(made(FuXiEncoder, **options), relations.fuxi)


def test_weights_start_as_published() -> None:
    torch.manual_seed(1)
    table = torch.nn.Embedding(30, 64, padding_idx=0)
    encoder = FuXiEncoder(table, max_length=50)
    block = encoder.blocks[0]
    for weight in (block.gate_query.weight, block.value_key.weight, block.weights.gap, block.weights.place):
        assert weight.std().item() == pytest.approx(0.02, rel=0.25)
    assert block.weights.gap.shape == (129,)
    assert block.output.weight.abs().max() <= (6 / (3 * 64 + 64)) ** 0.5
    # SwiGLU is as wide as the states, and its two matrices are drawn apart
    assert block.feed_forward.inner.weight.shape == (2 * 64, 64)
    assert 0.9 * (6 / 128) ** 0.5 < block.feed_forward.inner.weight.abs().max() <= (6 / 128) ** 0.5
    assert {name for name, _ in block.input_norm.named_parameters()} == set()
