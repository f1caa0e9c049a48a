"""Numbers drawn in the context are those that torch draws after a seed, and torch's generator stays as it was."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from recbole_hyper.random_numbers import OwnDraws

DRAWS: dict[str, Callable[[], Tensor]] = {
    "linear": lambda: nn.Linear(3, 4).weight,
    "recurrent": lambda: torch.cat([part.flatten() for part in nn.GRU(3, 4, num_layers=2).parameters()]),
    "embedding": lambda: nn.Embedding(5, 3, padding_idx=0).weight,
    "truncated": lambda: nn.init.trunc_normal_(torch.empty(4)),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(3, 3)),
    "rand": lambda: torch.rand(4),
    "randn": lambda: torch.randn(2, 3),
    "randn_like": lambda: torch.randn_like(torch.empty(3)),
    "randint": lambda: torch.randint(5, (8,)),
    "randint_low": lambda: torch.randint(2, 9, (8,)),
    "randperm": lambda: torch.randperm(9),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 3),
    "in place": lambda: torch.empty(3).exponential_(),
    "dropout": lambda: nn.functional.dropout(torch.ones(9)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_after_a_seed_and_torchs_generator_does_not_move(name: str) -> None:
    torch.manual_seed(7)
    expected = DRAWS[name]()
    before = torch.get_rng_state()
    with OwnDraws(seed=7):
        found = DRAWS[name]()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert (torch.get_rng_state() == before).all()


def test_a_generator_that_is_given_is_the_one_drawn_from() -> None:
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    with OwnDraws(seed=7):
        found = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert (found == expected).all()
