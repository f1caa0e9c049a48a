"""Every loss with every geometry on the device: the numbers of the CPU, and a fixed small number of transfers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from recbole_hyper import registry
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.negatives import NegativeSampler, _distinct
from tests.devices.foreign import Transfers, counted

LOSSES: dict[str, dict[str, Any]] = {
    "bce": {},
    "bce_plus": {"n_negatives": 8},
    "ce": {},
    "gbce": {"n_negatives": 8, "t": 0.5},
    "rece": {"rounds": 2},
    "sampled_ce": {"n_negatives": 8},
    "sce": {"n_buckets": 4, "bucket_size_x": 20, "bucket_size_y": 30},
}
# how often a loss waits, the draw of negatives apart: for the numbers of rows of its groups
WAITS = {"sampled_ce": 1}


class Given:
    """Negatives that do not depend on the device, whose generator differs from that of the CPU on a real one."""

    grid = None

    def __init__(self, table: Tensor, rows: Tensor) -> None:
        self.table, self.rows = table, rows

    def per_position(self, k: int, **options: Any) -> Tensor:
        return self.table[self.rows, :k]

    def per_sequence(self, k: int) -> tuple[Tensor, Tensor]:
        return self.table[:, :k], self.rows


def evaluate(name: str, geometry: str, device: torch.device | str, n: int = 48, m: int = 200, **options: Any) -> Any:
    """Return the loss and its gradients by states, weight, offset and curvature on the CPU, and the transfers."""
    generator = torch.Generator().manual_seed(3)
    states, weight, offset = (torch.randn(*size, generator=generator) for size in ((n, 16), (m, 16), (m,)))
    states, weight, offset = (t.to(device).requires_grad_() for t in (states, weight, 0.1 * offset))
    targets = torch.randint(1, m // 2, (n,), generator=generator).to(device)
    table = torch.randint(m // 2, m, (12, 8), generator=generator).to(device)
    curvature = torch.tensor(0.3, device=device, requires_grad=True)
    head = OutputHead(registry.resolve("geometry", geometry)(), weight, offset=offset, theta=curvature)
    loss_of = registry.resolve("losses", name)(**{**LOSSES[name], **options})
    negatives = Given(table, torch.arange(n, device=device) % 12)
    torch.manual_seed(1)
    with counted() as transfers:
        loss = loss_of(states, targets, head, negatives)
        gradients = torch.autograd.grad(loss, [states, weight, offset, curvature], allow_unused=True)
    return [None if t is None else t.detach().cpu() for t in (loss, *gradients)], transfers


@pytest.mark.parametrize("geometry", registry.names("geometry"))
@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_the_cpu(name: str, geometry: str, foreign: torch.device) -> None:
    assert sorted(LOSSES) == sorted(registry.names("losses"))
    (found, transfers), (expected, _) = evaluate(name, geometry, foreign), evaluate(name, geometry, "cpu")
    for own, other in zip(found, expected, strict=True):
        # no gradient is one of 0
        own, other = (torch.zeros(()) if one is None else one for one in (own, other))
        torch.testing.assert_close(own, other, rtol=2e-4, atol=1e-5)
    assert transfers.waits == WAITS.get(name, 0), transfers.places


@pytest.mark.parametrize("name", LOSSES)
def test_transfers_do_not_grow_with_rows_or_items(name: str, foreign: torch.device) -> None:
    options = {"memory_budget": 90_000} if name == "ce" else {}
    _, small = evaluate(name, "poincare", foreign, **options)
    _, large = evaluate(name, "poincare", foreign, n=80, m=400, **options)
    assert small == large


@pytest.mark.parametrize(
    ("method", "how"), [("per_position", {}), ("per_position", {"replacement": False}), ("per_sequence", {})]
)
def test_negatives_are_drawn_without_a_wait(method: str, how: dict[str, bool], foreign: torch.device) -> None:
    """Uniform over what each user has not seen; user 2 leaves two items."""
    seen = [torch.tensor([1, 3, 4]), torch.tensor([2]), torch.arange(1, 9)]
    offsets = torch.tensor([0, *map(len, seen)]).cumsum(0)
    sampler = NegativeSampler(11, offsets.to(foreign), torch.cat(seen).to(foreign))
    users, rows = torch.arange(3).repeat(2000).to(foreign), torch.arange(6000).to(foreign)
    targets = torch.tensor([1, 2, 5]).repeat(2000).to(foreign)
    bound = sampler.bind(users, rows, targets)
    torch.manual_seed(0)
    with counted() as transfers:
        drawn = getattr(bound, method)(2, **how)
    assert not transfers, transfers.places
    drawn = (drawn[0] if method == "per_sequence" else drawn).cpu().view(2000, 3, 2)
    assert (method, how) == ("per_position", {}) or bool((drawn[..., 0] != drawn[..., 1]).all())
    for user, items in enumerate(seen):
        counts = torch.bincount(drawn[:, user].flatten(), minlength=11)
        allowed = torch.ones(11, dtype=torch.bool)
        allowed[[0, *items.tolist()]] = False
        assert not counts[~allowed].any()
        expected = 4000 / int(allowed.sum())
        assert float(((counts[allowed] - expected).abs() / expected**0.5).max()) < 4


def test_any_item_but_the_target_takes_no_wait(foreign: torch.device) -> None:
    sampler = NegativeSampler(6, torch.tensor([0, 1, 2]).to(foreign), torch.tensor([1, 3]).to(foreign))
    rows = torch.arange(2).repeat(500).to(foreign)
    with counted() as transfers:
        drawn = sampler.bind(rows[:2], rows, 1 + 2 * rows).per_position(4, exclude_seen=False)
    assert not transfers, transfers.places
    for target, items in zip((1, 3), drawn.cpu().view(500, 2, 4).unbind(1), strict=True):
        assert set(items.flatten().tolist()) == set(range(1, 6)) - {target}


def test_a_user_who_has_seen_everything_gets_all_but_the_targets(foreign: torch.device) -> None:
    sampler = NegativeSampler(6, torch.tensor([0, 5, 6]).to(foreign), torch.tensor([1, 2, 3, 4, 5, 2]).to(foreign))
    rows = torch.tensor([0, 1, 0]).to(foreign)
    bound = sampler.bind(torch.arange(2).to(foreign), rows, torch.tensor([3, 2, 4]).to(foreign))
    with pytest.warns(UserWarning, match="seen every item"):
        own, others, *_ = bound.per_position(100).cpu().tolist()
    assert (set(own), set(others)) == ({1, 2, 4, 5}, {1, 3, 4, 5})
    with pytest.warns(UserWarning, match="seen every item"):
        drawn = bound.per_sequence(3)[0].cpu().tolist()
    assert sorted(drawn[0]) == [1, 2, 5]
    assert set(drawn[1]) <= {1, 3, 4, 5}


@pytest.mark.parametrize(("k", "least"), [(1, 1), (8, 8), (8, 40), (16, 20), (50, 400)])
def test_distinct_numbers_are_distinct_and_uniform(k: int, least: int) -> None:
    generator = torch.Generator().manual_seed(0)
    allowed = torch.full((400, 1), least)
    found = _distinct(allowed, k, least + 1, generator)
    assert found.shape == (400, k)
    assert bool((found.sort(dim=1).values.diff(dim=1) > 0).all())
    counts, expected = torch.bincount(found.flatten(), minlength=least), 400 * k / least
    assert float((counts - expected).abs().max()) < 5 * expected**0.5


def test_the_budget_of_a_loss_follows_the_memory_of_the_device(foreign: torch.device) -> None:
    from recbole_hyper.losses._chunks import default_budget

    assert default_budget(foreign) == (4 << 30) // 16  # of 4 GiB, 2 of them free
    assert isinstance(Transfers.current, type(None))
