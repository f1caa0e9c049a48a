"""BSARec: the published network on every prefix, its causal form, and where they agree."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.bsarec import BSARecEncoder, low_pass
from tests.encoders.test_transformer import padded
from tests.reference import bsarec as reference

N_ITEMS, LENGTH = 20, 7


def make(seed: int = 0, **options: Any) -> BSARecEncoder:
    torch.manual_seed(seed)
    embedding = nn.Embedding(N_ITEMS, 6, padding_idx=0, dtype=torch.float64)
    given_options = {"max_length": LENGTH, "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "bsarec_c": 3}
    encoder = BSARecEncoder(embedding, **({"initializer_range": 0.5} | given_options | options)).double()
    for layer in encoder.layers:  # built in float32
        layer.matrix = low_pass(LENGTH, 2, circular=encoder.circular).double()
    return encoder.eval()


@pytest.fixture(autouse=True)
def _exact() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_matrix_keeps_the_lowest_frequencies(n: int, count: int) -> None:
    window = torch.randn(n, 3)
    circular, causal = (low_pass(n, count, circular=kind) for kind in (True, False))
    torch.testing.assert_close(circular @ window, reference.low_frequencies(window, count))
    torch.testing.assert_close(causal, circular.tril())


@pytest.mark.parametrize("heads", [1, 3])
def test_every_prefix_has_the_state_of_the_published_network(heads: int) -> None:
    encoder = make(filter="circular", n_heads=heads)
    rows = [[3, 5, 3, 7, 1, 2, 9], [4, 8, 6]]
    states = encoder(*padded(rows))
    newest = encoder.last(*padded(rows))
    for row, history in enumerate(rows):
        for end in range(1, len(history) + 1):
            expected = reference.last_state(encoder, history[:end], 2)
            torch.testing.assert_close(states[row, end - 1], expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(newest[row], states[row, len(history) - 1])


def test_one_layer_gives_a_full_window_the_same_state_in_both_forms() -> None:
    history = [[3, 5, 3, 7, 1, 2, 9]]
    circular, causal = (make(filter=kind, n_layers=1) for kind in ("circular", "causal"))
    torch.testing.assert_close(circular.last(*padded(history)), causal.last(*padded(history)))


@pytest.mark.parametrize("filter", ["causal", "circular"])
def test_gradients(filter: str) -> None:
    encoder = make(filter=filter, n_heads=2)
    items, lengths = padded([[3, 5, 3], [4]])
    names = [name for name, _ in encoder.named_parameters()]
    leaves = [parameter.detach().clone().requires_grad_() for parameter in encoder.parameters()]

    def states(*parameters: Tensor) -> Tensor:
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(encoder, named, (items, lengths)) * (items > 0).unsqueeze(-1)

    assert torch.autograd.gradcheck(states, leaves, fast_mode=True)
