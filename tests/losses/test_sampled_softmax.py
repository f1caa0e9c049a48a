"""The sampled softmax against sums in float64, and its estimate against the exact cross-entropy."""

import pytest
import torch
from torch import Tensor

from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.ce import CrossEntropy
from recbole_hyper.losses.negatives import NegativeSampler
from recbole_hyper.losses.sampled_softmax import sampled_softmax
from tests.losses.sampled import GEOMETRIES, assert_same, problem

N, ITEMS = 7, 12


def by_loops(logits: Tensor, targets: Tensor, items: Tensor, log_expected: Tensor) -> Tensor:
    losses = []
    for row, target in enumerate(targets.tolist()):
        total = logits[row, target].exp()
        for item, expected in zip(items.tolist(), log_expected.exp(), strict=True):
            if item != target:
                total = total + logits[row, item].exp() / expected
        losses.append(total.log() - logits[row, target])
    return torch.stack(losses)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_it_is_the_sum_over_target_and_sample(geometry: str) -> None:
    states, targets, head = problem(geometry, N, ITEMS)
    items = torch.tensor([1, 4, 4, int(targets[0]), 9])
    log_expected = torch.tensor([0.5, 2.0, 2.0, 0.1, 1.3], dtype=torch.float64).log()
    losses = by_loops(head.logits(states), targets, items, log_expected)
    weights = torch.linspace(0.0, 1.0, N, dtype=torch.float64)
    ours = sampled_softmax(states, targets, head, items, log_expected, weights)
    assert_same(ours, losses.dot(weights), states, head)
    mean = sampled_softmax(states, targets, head, items, log_expected)
    torch.testing.assert_close(mean, losses.mean())


def test_a_flat_head_may_have_a_theta_that_it_does_not_use() -> None:
    states, targets, head = problem("euclidean", N, ITEMS)
    items, log_expected = torch.tensor([1, 4, 9]), torch.zeros(3, dtype=torch.float64)
    theta = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    learning = OutputHead(head.geometry, head.weight, offset=head.offset, theta=theta)
    loss = sampled_softmax(states, targets, learning, items, log_expected)
    torch.testing.assert_close(loss, sampled_softmax(states, targets, head, items, log_expected))
    loss.backward()
    assert theta.grad is None or theta.grad == 0


def test_every_item_once_is_the_exact_cross_entropy() -> None:
    states, targets, head = problem("euclidean", N, ITEMS)
    every = torch.arange(1, ITEMS)
    ours = sampled_softmax(states, targets, head, every, torch.zeros(ITEMS - 1, dtype=torch.float64))
    torch.testing.assert_close(ours, CrossEntropy()(states, targets, head))


def test_the_sum_is_estimated_without_bias() -> None:
    """exp(loss) - 1 is the sum over the other items relative to the target; its mean over many samples is exact."""
    states, targets, head = problem("euclidean", N, ITEMS)
    offsets = torch.tensor([0, 3, 8, 9])
    sampler = NegativeSampler(
        ITEMS, offsets, torch.tensor([1, 2, 3, 1, 2, 7, 8, 9, 1]), generator=torch.Generator().manual_seed(2)
    )
    logits = head.logits(states.detach())
    exact = (logits[:, 1:].exp().sum(1) / logits.gather(1, targets[:, None])[:, 0].exp()) - 1
    sums = []
    with torch.no_grad():
        for _ in range(250):
            items, log_expected = sampler.shared(256)
            losses = [
                sampled_softmax(states[row : row + 1], targets[row : row + 1], head, items, log_expected)
                for row in range(2)
            ]
            sums.append(torch.stack(losses).exp() - 1)
    drawn = torch.stack(sums)
    error = drawn.std(0) / len(drawn) ** 0.5
    assert ((drawn.mean(0) - exact[:2]).abs() < 4 * error).all()
    assert (error < 0.02 * exact[:2]).all()


def test_shared_items_are_drawn_half_by_popularity() -> None:
    offsets, items = torch.tensor([0, 2, 3, 4]), torch.tensor([5, 6, 5, 5])
    sampler = NegativeSampler(ITEMS, offsets, items, generator=torch.Generator().manual_seed(0))
    drawn, log_expected = sampler.shared(40_000)
    shares = torch.full((ITEMS,), 0.5 / (ITEMS - 1), dtype=torch.float64)
    shares[0], shares[5], shares[6] = 0.0, shares[1] + 0.5 * 3 / 4, shares[1] + 0.5 / 4
    torch.testing.assert_close(drawn.bincount(minlength=ITEMS) / 40_000, shares.float(), atol=0.01, rtol=0)
    torch.testing.assert_close(log_expected.double(), (40_000 * shares[drawn]).log())


def test_cross_entropy_over_a_sample() -> None:
    states, targets, head = problem("euclidean", N, ITEMS, dtype=torch.float32)
    sampler = NegativeSampler(ITEMS, torch.tensor([0, 1]), torch.tensor([3]))
    loss = CrossEntropy(softmax_items=8)
    bound = sampler.bind(torch.zeros(1, dtype=torch.int64), torch.zeros(N, dtype=torch.int64), targets)
    torch.manual_seed(5)
    ours = loss(states, targets, head, bound)
    torch.manual_seed(5)
    torch.testing.assert_close(ours, sampled_softmax(states, targets, head, *sampler.shared(8)))
    assert loss.uses_negatives
    assert not CrossEntropy().uses_negatives
