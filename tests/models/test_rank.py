"""The third part of the default model: its scores against a loop, its fit, and whom its networks have not seen."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from recbole_hyper.models import rank
from recbole_hyper.models.evidence import N_EVIDENCE, Evidence
from recbole_hyper.models.rank import Ranker
from recbole_hyper.training.averaging import WeightAverage
from tests.models.test_evidence import read

K, WIDTH = 6, 16


def filled(seed: int = 0) -> Ranker:
    """Return a ranker with random numbers."""
    model = Ranker()
    model.numbers.normal_(generator=torch.Generator().manual_seed(seed))
    return model


def test_the_scores_equal_the_formula_and_keep_the_probability() -> None:
    evidence, model = read(ease=True), filled()
    torch.testing.assert_close(Ranker()(evidence), evidence.scores)
    found = model(evidence)
    torch.testing.assert_close(found.exp().sum(1), evidence.scores.exp().sum(1))
    for row, items in enumerate(evidence.items.tolist()):
        changed = {}
        for place in (place for place, item in enumerate(items) if item):
            changes = []
            for numbers in model.numbers.double().numpy():
                mean, scale, linear = numbers[: 3 * N_EVIDENCE].reshape(3, N_EVIDENCE)
                weight = numbers[3 * N_EVIDENCE : -2 * WIDTH].reshape(N_EVIDENCE, WIDTH)
                bias, out = numbers[-2 * WIDTH : -WIDTH], numbers[-WIDTH:]
                x = (evidence.values[row, place].double().numpy() - mean) * scale
                changes.append(linear @ x + np.tanh(x @ weight + bias) @ out)
            changed[place] = float(evidence.scores[row, place]) + np.mean(changes)
        together = math.log(sum(math.exp(float(evidence.scores[row, place])) for place in changed))
        largest = max(changed.values())
        total = largest + math.log(sum(math.exp(one - largest) for one in changed.values()))
        for place in range(len(items)):
            expected = changed[place] - total + together if place in changed else -math.inf
            assert float(found[row, place]) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_a_user_is_ranked_by_the_network_that_was_not_fitted_to_it() -> None:
    evidence, model, folds = read(), filled(), [0, 1, 0, 1]
    found = model(evidence, torch.tensor(folds))
    for row, fold in enumerate(folds):
        other = Ranker()
        other.numbers.copy_(model.numbers[1 - fold].expand(2, -1))
        torch.testing.assert_close(found[row], other(evidence)[row])


def cases(count: int, seed: int = 0) -> tuple[Evidence, torch.Tensor, torch.Tensor]:
    """Return evidence, targets and folds: targets have the largest popularity, which the mixture ignores."""
    draws = torch.Generator().manual_seed(seed)
    values = torch.randn(count, K, N_EVIDENCE, generator=draws)
    targets = 1 + values[:, :, 2].argmax(1)
    targets[::5] = K + 1  # was not proposed
    items = torch.arange(1, K + 1).expand(count, K)
    return Evidence(items, values[:, :, 1] * 0.1, values), targets, torch.arange(count) % 2


def ndcg(evidence: Evidence, scores: torch.Tensor, targets: torch.Tensor) -> float:
    order = evidence.items.gather(1, scores.argsort(dim=1, descending=True)).tolist()
    places = [items.index(target) for items, target in zip(order, targets.tolist(), strict=True) if target in items]
    return sum(1 / math.log2(place + 2) for place in places) / len(targets)


def gain(model: Ranker, evidence: Evidence, targets: torch.Tensor, folds: torch.Tensor | None) -> float:
    """Return what NDCG gains, by the networks that were not fitted to a user if there are folds."""
    return ndcg(evidence, model(evidence, folds), targets) - ndcg(evidence, evidence.scores, targets)


def test_a_fit_finds_what_tells_the_target() -> None:
    model, given, state = Ranker(), cases(2000), torch.get_rng_state()
    model.fit(*given)
    assert gain(model, *given) > 0.2
    assert torch.equal(torch.get_rng_state(), state)
    evidence, targets, _ = cases(500, seed=1)
    known = targets <= K
    assert (1 + model(evidence).argmax(1) == targets)[known].float().mean() > 0.9
    again = Ranker()
    again.fit(*given)
    assert torch.equal(again.numbers, model.numbers)


def test_what_tells_nothing_of_users_that_the_network_has_not_seen_is_worth_little() -> None:
    """Targets that nothing tells: a network that learns them by heart gains on its own users alone."""
    evidence, _, folds = cases(300)
    found = []
    for draw in range(8):
        random, model = torch.randint(1, K + 1, (300,), generator=torch.Generator().manual_seed(draw)), Ranker()
        model.numbers.copy_(rank._fit(evidence, random - 1, folds == torch.arange(2)[:, None], torch.arange(300), 300))
        gains = [gain(model, evidence, random, some) for some in (1 - folds, folds)]
        before = model._change(evidence, None).std()
        model.fit(evidence, random, folds)
        found.append([*gains, float(model._change(evidence, None).std() / before)])
    own, others, kept = torch.tensor(found).mean(dim=0).tolist()
    assert own > 3 * others
    assert kept < 0.5


@pytest.mark.parametrize(("signal", "noise"), [(0.0, 1.0), (0.0, 0.0), (-1.0, 0.3), (0.5, 1.0), (1.0, 0.3), (9.0, 0.0)])
def test_what_a_change_is_worth_is_the_best_factor(signal: float, noise: float) -> None:
    draws = torch.Generator().manual_seed(1)
    scores, noises = torch.randn(2, 400, K, generator=draws).double()
    places, hit = torch.randint(K, (400,), generator=draws), torch.rand(400, generator=draws) < 0.7
    scores[:, 5] = scores[:, 5].masked_fill(places != 5, -math.inf)  # an empty place
    scores[~hit] = -math.inf
    change = noise * noises + signal * torch.nn.functional.one_hot(places, K)

    def cost(factor: float) -> float:
        likely = (scores + factor * change)[hit].log_softmax(dim=1)
        return float(1.5 * factor**2 - likely[torch.arange(len(likely)), places[hit]].sum())

    best = minimize_scalar(cost, bounds=(0, 1), method="bounded").x
    assert float(rank._worth(scores, change, places, hit)) == pytest.approx(best, abs=2e-3)


def test_the_mean_of_two_networks_is_worth_more_than_one(monkeypatch) -> None:
    changes = []
    for worth in (1.0, 0.5, 0.0):
        monkeypatch.setattr(rank, "_worth", lambda scores, *_, worth=worth: scores.new_tensor(worth))
        model, given = Ranker(), cases(300)
        model.fit(*given)
        changes.append(model._change(given[0], None))
    assert changes[0].abs().mean() > 0.1
    torch.testing.assert_close(torch.stack(changes), changes[0] * torch.tensor([1, 2 / 3, 0])[:, None, None])


def test_a_half_of_the_users_without_targets_changes_nothing() -> None:
    evidence, targets, folds = cases(200)
    items, scores = evidence.items.clone(), evidence.scores.clone()
    items[0], scores[0] = 0, -math.inf  # a user who has seen every item
    model = Ranker()
    model.fit(evidence._replace(items=items, scores=scores), targets.where(folds == 1, torch.tensor(K + 1)), folds)
    torch.testing.assert_close(model(evidence), evidence.scores)


def test_empty_places_take_no_part_in_the_fit() -> None:
    evidence, targets, folds = cases(600)
    items, scores, values = evidence.items.clone(), evidence.scores.clone(), evidence.values.clone()
    items[:, 0], scores[:, 0], values[:, 0] = 0, -torch.inf, 0.0
    model, given = Ranker(), Evidence(items, scores, values)
    model.fit(given, targets, folds)
    assert bool(model.numbers.isfinite().all())
    assert gain(model, given, targets, folds) > 0.1
    other = Ranker()
    other.fit(given._replace(values=values.index_fill(1, torch.tensor(0), 7.0)), targets, folds)
    torch.testing.assert_close(other.numbers, model.numbers)


def test_an_average_of_weights_leaves_it_alone() -> None:
    model = filled()
    before = model.numbers.clone()
    average = WeightAverage(model, 0.9)
    average.update()
    with average.applied():
        assert torch.equal(model.numbers, before)
    fresh = Ranker()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.numbers, before)
