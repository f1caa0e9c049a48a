"""FMLP-Rec: the published filter, its causal form, and where they agree."""

import math

import pytest
import torch
from torch import nn

from recbole_hyper.encoders.fmlp import FMLPEncoder, FrequencyFilter
from recbole_hyper.registry import resolve
from tests.encoders.windowed import random_batch

N_ITEMS = 30


def make(seed: int = 0, **options):
    torch.manual_seed(seed)
    embedding = nn.Embedding(N_ITEMS, 6, padding_idx=0, dtype=torch.float64)
    encoder = FMLPEncoder(embedding, **({"max_length": 9, "hidden_dropout_prob": 0.0} | options)).double()
    with torch.no_grad():
        for layer in encoder.layers:
            layer.filter.weight.mul_(40)
    return encoder.eval()


def kernel_by_sums(filter: FrequencyFilter) -> torch.Tensor:
    """The real kernel w (N, d) from the half spectrum, by the sum that defines the inverse transform."""
    n = filter.length
    real, imaginary = filter.weight.detach().double().unbind(-1)
    kernel = torch.zeros(n, real.shape[1], dtype=torch.float64)
    for t in range(n):
        for f in range(n // 2 + 1):
            # frequencies between 0 and N/2 stand for themselves and their mirror
            twice = 1 if f == 0 or 2 * f == n else 2
            angle = 2 * math.pi * f * t / n
            kernel[t] += twice * (real[f] * math.cos(angle) - (0 if twice == 1 else imaginary[f]) * math.sin(angle)) / n
    return kernel


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_filters_are_convolutions(n, length):
    if length > n:
        pytest.skip("longer than the filter")
    torch.manual_seed(0)
    filter = FrequencyFilter(n, 3).double()
    kernel = kernel_by_sums(filter)
    inputs = torch.randn(2, length, 3, dtype=torch.float64)
    causal = torch.zeros_like(inputs)
    for i in range(length):
        for j in range(i + 1):
            causal[:, i] += kernel[i - j] * inputs[:, j]
    torch.testing.assert_close(filter.causal(inputs), causal)
    if length == n:
        circular = torch.zeros_like(inputs)
        for i in range(n):
            for j in range(n):
                circular[:, i] += kernel[(i - j) % n] * inputs[:, j]
        torch.testing.assert_close(filter.circular(inputs), circular)
        torch.testing.assert_close(filter.circular(inputs)[:, -1], filter.causal(inputs)[:, -1])


def test_circular_states_are_those_of_the_published_network_on_every_prefix():
    """Each prefix as a separate row, left-padded to N, the published block, last position: written out plainly."""
    encoder = make(filter="circular")
    items, lengths = random_batch([9, 4])
    states = encoder(items, lengths)
    for row, length in enumerate(lengths.tolist()):
        for end in range(1, length + 1):
            window = torch.zeros(9, dtype=torch.int64)
            window[9 - end :] = items[row, :end]
            real = (window > 0)[:, None]
            # position parameters count from the newest item
            x = encoder.norm(encoder.item_embedding(window) + encoder.position.flip(0)) * real
            for layer in encoder.layers:
                spectrum = torch.fft.rfft(x, dim=0, norm="ortho") * torch.view_as_complex(layer.filter.weight)
                hidden = layer.filter_norm(x + torch.fft.irfft(spectrum, n=9, dim=0, norm="ortho"))
                inner = layer.narrow(torch.nn.functional.gelu(layer.widen(hidden)))
                x = layer.output_norm(hidden + inner) * real
            torch.testing.assert_close(states[row, end - 1], x[-1])


def test_one_layer_recommends_the_same_with_either_filter():
    causal, circular = make(n_layers=1), make(n_layers=1, filter="circular")
    circular.load_state_dict(causal.state_dict())
    items, lengths = random_batch([9, 4, 1])
    last = torch.arange(3), lengths - 1
    torch.testing.assert_close(causal(items, lengths)[last], circular(items, lengths)[last])
    two, two_circular = make(), make(filter="circular")
    two_circular.load_state_dict(two.state_dict())
    assert not torch.allclose(two(items, lengths)[last], two_circular(items, lengths)[last])


@pytest.mark.parametrize("filter", ["causal", "circular"])
def test_gradients_against_finite_differences(filter):
    encoder = make(max_length=4, n_layers=1, inner_size=5, filter=filter, layer_norm_eps=1e-3)
    items, lengths = random_batch([4, 2])
    names = [name for name, _ in encoder.named_parameters()]
    real = (torch.arange(4) < lengths[:, None]).unsqueeze(-1)

    def run(*parameters):
        call = torch.func.functional_call(encoder, dict(zip(names, parameters, strict=True)), (items, lengths))
        return call * real

    assert torch.autograd.gradcheck(run, tuple(p.detach().clone().requires_grad_() for p in encoder.parameters()))


def test_parameters_and_their_start():
    torch.manual_seed(0)
    encoder = FMLPEncoder(nn.Embedding(100, 64, padding_idx=0))
    assert encoder.layers[0].filter.weight.shape == (26, 64, 2)
    assert encoder.layers[0].widen.out_features == 256
    assert abs(encoder.layers[0].filter.weight.std().item() - 0.02) < 0.001
    assert resolve("encoders", "fmlp") is FMLPEncoder
