"""The second part of the default model: the evidence against loops, EASE^R's weights, and where they are offered."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from recbole_hyper.models import propose
from recbole_hyper.models.easer import gram_matrix, item_weights
from recbole_hyper.models.evidence import N_EVIDENCE, Evidence, EvidenceReader
from recbole_hyper.models.item_votes import MOST_ITEMS, MOST_WORK, EaseWeights, is_offered
from tests.models.test_propose import N_ITEMS, NEWEST, ROWS, WINDOW, logits_of, proposer, rates
from tests.reference import memory as reference

BEST = 6
MATRIX = scipy.sparse.lil_matrix((len(ROWS), N_ITEMS), dtype=np.float32)
for row, items in enumerate(ROWS):
    MATRIX[row, items] = 1.0
WEIGHTS = item_weights(gram_matrix(MATRIX.tocsr()), 100.0)


def fitted(*, fits: bool = True) -> EaseWeights:
    """Return EASE^R's weights of the rows of the tests."""
    weights = EaseWeights(N_ITEMS)
    if fits:
        weights.fit(MATRIX.tocsr())
    return weights


def vectors_of() -> torch.Tensor:
    return torch.randn(N_ITEMS, 4, generator=torch.Generator().manual_seed(1))


def reader(*, ease: bool = False) -> EvidenceReader:
    return EvidenceReader(rates("after"), rates("before"), fitted(fits=ease), torch.arange(N_ITEMS), window=WINDOW)


def read(*, ease: bool = False) -> Evidence:
    """Return the evidence of the tests' histories."""
    return reader(ease=ease)(proposer()(logits_of(), NEWEST), NEWEST, vectors_of())


@pytest.mark.parametrize("ease", [True, False])
def test_the_evidence_equals_the_loop(ease: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "BEST", BEST)
    network, scores, proposed = proposer()(logits_of(), NEWEST)
    vectors, found = vectors_of(), read(ease=ease)
    assert torch.equal(found.items, proposed)
    assert found.values.shape == (len(NEWEST), BEST, N_EVIDENCE)
    for row, history in enumerate(NEWEST.tolist()):
        recent = [item for item in history if item]
        for place, item in enumerate(proposed[row].tolist()):
            cosines = [float(torch.cosine_similarity(vectors[item], vectors[old], dim=0)) for old in recent[:WINDOW]]
            cosines += [0.0] * (WINDOW - len(cosines))
            expected = [
                float(network[row, item]), float(scores[row, item]), math.log1p(item),
                cosines[0], max(cosines), sum(0.9**age * one for age, one in enumerate(cosines)),
            ]  # fmt: skip
            for side in ("after", "before"):
                matrix = reference.counts(ROWS, N_ITEMS, WINDOW, side)
                votes = [reference.memory(recent[:WINDOW], matrix, decay)[item] for decay in (0.4, 0.9)]
                expected += [math.log(vote + math.exp(-9)) for vote in votes]
            for decay in (0.8, 0.95, 0.99):
                expected.append(ease * sum(decay**age * WEIGHTS[old, item] for age, old in enumerate(recent)))
            np.testing.assert_allclose(found.values[row, place].numpy(), expected, rtol=1e-4, atol=1e-5)
            assert found.scores[row, place] == scores[row, item]


def test_an_empty_place_has_no_evidence() -> None:
    found = read()
    empty = found.items == 0
    assert 0 < int(empty.sum()) < empty.numel()
    assert torch.equal(found.scores == -torch.inf, empty)
    assert bool((found.values[empty] == 0).all())
    assert bool(found.values.isfinite().all())


def test_only_the_largest_weights_of_an_item_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recbole_hyper.models.item_votes._NEIGHBOURS", 4)
    kept = fitted()
    for item in range(1, N_ITEMS):
        own = np.sort(np.abs(kept.weights[item].numpy()))
        np.testing.assert_allclose(own, np.sort(np.abs(WEIGHTS[item]))[-4:], rtol=1e-6)
        np.testing.assert_array_equal(WEIGHTS[item, kept.neighbours[item].numpy()], kept.weights[item].numpy())


def test_a_table_of_many_items_has_fewer_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recbole_hyper.models.item_votes._WEIGHTS", 2 * N_ITEMS)
    assert rates("both").neighbours.shape == (N_ITEMS, 2)


@pytest.mark.parametrize("before", [True, False])
def test_a_state_has_the_weights(before: bool) -> None:
    fresh, given = fitted(fits=not before), fitted(fits=before)
    fresh.load_state_dict(given.state_dict())
    assert fresh.is_fitted is before
    assert torch.equal(fresh.neighbours, given.neighbours)
    assert torch.equal(fresh.weights, given.weights)


@pytest.mark.parametrize(("n_items", "n_interactions", "expected"), [
    (MOST_ITEMS, 10**9, True), (MOST_ITEMS + 1, 10**9, False),
    (1000, 10**6 // MOST_WORK + 1, True), (1000, 10**6 // MOST_WORK, False), (0, 0, True),
    # LastFM, Foursquare, MovieLens-1M; Beauty
    (3_647, 50_371, True), (9_990, 177_302, True), (3_707, 988_129, True), (12_102, 153_776, False),
])  # fmt: skip
def test_auto_offers_ease_by_the_stated_rule(n_items: int, n_interactions: int, expected: bool) -> None:
    assert is_offered(n_items, n_interactions) is expected
