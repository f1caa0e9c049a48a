"""What the tests of the encoders that read times share."""

from typing import Any

import torch
from torch import Tensor, nn

from recbole_hyper.encoders._relations import RelationalEncoder
from tests.encoders.test_transformer import padded

SEQUENCES = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7, 9], [3, 2]]
# Unix seconds, as far apart as a click and years, and two at one moment
TIMES = [
    [1_500_000_000.0, 1_500_000_003.0, 1_500_000_003.0, 1_500_090_000.0, 1_507_000_000.0],
    [1_400_000_000.0],
    [9e8, 9e8 + 1, 9e8 + 3, 9e8 + 30, 9e8 + 400, 9e8 + 5e3, 9e8 + 6e4, 9e8 + 7e5, 9e8 + 8e7],
    [1_000_000_000.0, 1_000_000_060.0],
]


def made(encoder: type[RelationalEncoder], **options: Any) -> Any:
    """Return a float64 encoder over 30 items of width 12 in evaluation mode, with relative weights that count."""
    torch.manual_seed(1)
    table = nn.Embedding(30, 12, padding_idx=0)
    found: Any = encoder(table, **{"max_length": 9, "n_heads": 2, "hidden_dropout_prob": 0.0, **options})
    found.table = table  # keeps the shared table alive
    with torch.no_grad():
        for parameter in found.parameters():
            # not as small as at the start, where nothing but the input would show
            parameter.add_(0.3 * torch.randn_like(parameter))
    return found.double().eval()


def batch(sequences: list[list[int]] = SEQUENCES, times: list[list[float]] = TIMES) -> tuple[Tensor, Tensor, Tensor]:
    """Return items, lengths and times of a right-padded batch."""
    items, lengths = padded(sequences)
    when = torch.zeros(items.shape, dtype=torch.float64)
    for row, own in enumerate(times):
        when[row, : len(own)] = torch.tensor(own, dtype=torch.float64)
    return items, lengths, when


def same_as_loop(found: Any, loop: Any) -> None:
    """Compare states, newest states and every gradient of ``found`` with those of ``loop``, sequence by sequence."""
    items, lengths, times = batch()
    states = found(items, lengths, times)
    weights = torch.randn_like(states)
    expected = [loop(found, sequence, when) for sequence, when in zip(SEQUENCES, TIMES, strict=True)]
    for row, own in enumerate(expected):
        torch.testing.assert_close(states[row, : len(own)], own, rtol=0, atol=1e-10)
        torch.testing.assert_close(found.last(items, lengths, times)[row], own[-1], rtol=0, atol=1e-10)
    real = torch.arange(items.shape[1]) < lengths[:, None]
    parameters = dict(found.named_parameters())
    ours = torch.autograd.grad((states * weights)[real].sum(), list(parameters.values()))
    total = sum((own * weights[row, : len(own)]).sum() for row, own in enumerate(expected))
    for name, one, other in zip(parameters, ours, torch.autograd.grad(total, list(parameters.values())), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
