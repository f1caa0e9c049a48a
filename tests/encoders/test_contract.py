"""What every encoder keeps, with small weights or large: states of their prefixes, newest states, dropout, options."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from recbole_hyper.encoders.base import newest
from recbole_hyper.encoders.fuxi import FuXiEncoder
from recbole_hyper.encoders.gru import GRUEncoder
from recbole_hyper.encoders.hstu import HSTUEncoder
from recbole_hyper.encoders.moebius_gru import MoebiusGRUEncoder
from tests.encoders import test_bsarec, test_fmlp, test_ligr, test_transformer, timed, windowed
from tests.encoders.test_transformer import padded
from tests.raising import refused


def recurrent(encoder: type, **options: Any) -> Any:
    torch.manual_seed(0)
    table = nn.Embedding(30, 8, padding_idx=0)
    made = encoder(table, **{"gru_size": 6, "dropout_prob": 0.0, **options})
    made.table = table  # keeps the shared table alive
    return made.double().eval()


ENCODERS: dict[str, Callable[..., Any]] = {
    **{f"transformer {place}": partial(test_transformer.encoder, place) for place in ("query", "pre", "post")},
    **{f"fmlp {kind}": partial(test_fmlp.make, filter=kind) for kind in ("causal", "circular")},
    **{f"bsarec {kind}": partial(test_bsarec.make, filter=kind) for kind in ("causal", "circular")},
    "ligr": test_ligr.encoder,
    "hstu": partial(timed.made, HSTUEncoder),
    "fuxi": partial(timed.made, FuXiEncoder),
    "windowed_attention": windowed.make_encoder,
    "gru": partial(recurrent, GRUEncoder),
    "moebius_gru": partial(recurrent, MoebiusGRUEncoder),
}
SEQUENCES = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 7], [3, 2]]
each = pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)


@each
def test_a_state_depends_on_its_prefix_alone(make: Callable[..., Any]) -> None:
    """Neither what comes later, nor padding, nor another row of the batch changes it; its own item does."""
    encoder = make()
    together = encoder(*padded(SEQUENCES, width=7))
    for row, sequence in enumerate(SEQUENCES):
        for end in range(1, len(sequence) + 1):
            later = [item % 18 + 1 for item in sequence[end:]]
            alone = encoder(*padded([sequence[:end] + later]))[0]
            torch.testing.assert_close(together[row, :end], alone[:end], rtol=1e-6, atol=1e-9)
            other = encoder(*padded([[*sequence[: end - 1], 19, *sequence[end:]]]))[0]
            assert (other[end - 1] - together[row, end - 1]).abs().max() > 1e-9


@each
@pytest.mark.parametrize("n_layers", [1, 3])
def test_the_newest_states_alone_equal_those_among_all(make: Callable[..., Any], n_layers: int) -> None:
    encoder, batch = make(n_layers=n_layers), padded(SEQUENCES)
    for made in (encoder, encoder.train()):
        torch.testing.assert_close(made.last(*batch), newest(made(*batch), batch[1]), rtol=0, atol=1e-9)


@each
def test_dropout_applies_only_in_training(make: Callable[..., Any]) -> None:
    names = [name for name in make().options() if name.endswith("dropout_prob")]
    encoder, batch = make(**dict.fromkeys(names, 0.5)), padded(SEQUENCES)
    assert torch.equal(encoder(*batch), encoder(*batch))
    encoder.train()
    assert not torch.equal(encoder(*batch), encoder(*batch))


WRONG = {
    **{"n_layers": 0, "n_heads": 0, "layer_norm_eps": 0.0, "initializer_range": 0.0, "hidden_dropout_prob": 1.0},
    **{"hidden_act": "selu", "initializer": "zeros", "norm_placement": "last", "attention_init": "one"},
    **{"filter": "both", "bsarec_alpha": 1.5, "bsarec_c": -1, "n_time_buckets": 0, "linear_dim": 0, "gru_size": 2.5},
}


@each
def test_wrong_options_are_named(make: Callable[..., Any]) -> None:
    known = make().options()
    for name, value in WRONG.items():
        if name in known:
            with refused(ValueError, f"{known[name].key}={value!r}"):
                make(**{name: value})
    if "n_heads" in known:
        with refused(ValueError, "n_heads=5"):
            make(n_heads=5)


@each
def test_too_long_a_sequence_is_refused(make: Callable[..., Any]) -> None:
    if "max_length" in make().options():
        with refused(ValueError, "MAX_ITEM_LIST_LENGTH"):
            make()(*padded([list(range(1, 11))]))
