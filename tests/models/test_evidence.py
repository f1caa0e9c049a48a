"""The second part of the default model: the evidence against loops, EASE^R's weights, and where they are offered."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from recbole_hyper.models import item_votes, nearest_ease, propose
from recbole_hyper.models.easer import gram_matrix, item_weights
from recbole_hyper.models.evidence import N_EVIDENCE, Evidence, EvidenceReader
from recbole_hyper.models.item_votes import MOST_PAIRS, EaseWeights, is_offered
from tests.models.test_propose import N_ITEMS, NEWEST, ROWS, WINDOW, logits_of, proposer, rates
from tests.reference import memory as reference

BEST = 6
MATRIX = scipy.sparse.lil_matrix((len(ROWS), N_ITEMS), dtype=np.float32)
for row, items in enumerate(ROWS):
    MATRIX[row, items] = 1.0


def regressed(matrix: np.ndarray, nearest: int, ridge: float = 100.0) -> np.ndarray:
    """Return the weights (n_items, n_items): each item regressed on those nearest to it, one after another."""
    gram = matrix.T.astype(np.float64) @ matrix
    weights, scale = np.zeros_like(gram), (1 / np.sqrt(gram.diagonal() + ridge)).astype(np.float32)
    for item in range(len(gram)):
        others = np.flatnonzero((gram[item] > 0) & (np.arange(len(gram)) != item))
        order = np.argsort(-gram[item, others].astype(np.float32) * scale[others], kind="stable")
        near = others[order[:nearest]]
        weights[near, item] = np.linalg.solve(gram[np.ix_(near, near)] + ridge * np.eye(len(near)), gram[near, item])
    return weights


def dense(found: EaseWeights, n_items: int) -> np.ndarray:
    weights = np.zeros((n_items, n_items))
    np.put_along_axis(weights, found.neighbours.numpy().astype(np.int64), found.weights.numpy(), axis=1)
    return weights


WEIGHTS = regressed(MATRIX.toarray(), N_ITEMS)


def fitted(*, fits: bool = True) -> EaseWeights:
    """Return EASE^R's weights of the rows of the tests."""
    weights = EaseWeights(N_ITEMS)
    if fits:
        weights.fit(MATRIX.tocsr())
    return weights


def vectors_of() -> torch.Tensor:
    return torch.randn(N_ITEMS, 4, generator=torch.Generator().manual_seed(1))


def reader(*, ease: bool = False) -> EvidenceReader:
    counts = torch.stack((torch.arange(N_ITEMS), torch.arange(N_ITEMS) // 2))
    return EvidenceReader(rates("after"), rates("before"), fitted(fits=ease), counts, window=WINDOW)


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
                float(network[row, item]), float(scores[row, item]), math.log1p(item), math.log1p(item // 2),
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
        np.testing.assert_allclose(own, np.sort(np.abs(WEIGHTS[item]))[-4:], rtol=1e-5)
        np.testing.assert_allclose(WEIGHTS[item, kept.neighbours[item].numpy()], kept.weights[item].numpy(), rtol=1e-5)


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


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize(("n_items", "nearest"), [(40, 6), (40, 100), (700, 30)])
def test_each_item_is_regressed_on_its_nearest(
    n_items: int, nearest: int, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_ease, "KERNEL_FROM", 0 if kernel else 10**6)
    draws = np.random.default_rng(n_items + nearest)
    matrix = (draws.random((300, n_items)) < draws.random(n_items) * 0.3).astype(np.float32)
    matrix[:, 0] = 0
    monkeypatch.setattr(item_votes, "_NEAREST", nearest)
    monkeypatch.setattr(item_votes, "_NEIGHBOURS", n_items)
    found = EaseWeights(n_items)
    found.fit(scipy.sparse.csr_matrix(matrix))
    expected = regressed(matrix, nearest)
    np.testing.assert_allclose(dense(found, n_items), expected, atol=1e-5)


def test_many_users_lose_no_digits() -> None:
    """A small ridge stands for large counts: float32 has no Cholesky factor here."""
    draws = np.random.default_rng(3)
    matrix = np.repeat((draws.random((12, 40)) < 0.5).astype(np.float32), 500, axis=0)
    matrix[:, 0] = 0
    found = nearest_ease.nearest_weights(scipy.sparse.csr_matrix(matrix), 20, 1e-3).toarray()
    np.testing.assert_allclose(found, regressed(matrix, 20, 1e-3), rtol=1e-3, atol=1e-4)


def test_items_that_all_occur_together_have_the_weights_of_ease() -> None:
    matrix = (np.random.default_rng(0).random((400, 30)) < 0.4).astype(np.float32)
    matrix[:, 0] = 0
    found = EaseWeights(30)
    found.fit(scipy.sparse.csr_matrix(matrix))
    expected = item_weights(gram_matrix(scipy.sparse.csr_matrix(matrix)), 100.0)
    np.testing.assert_allclose(dense(found, 30), expected, atol=1e-5)


@pytest.mark.parametrize(("n_items", "lengths", "expected"), [
    # few items, or short histories of many; long histories of many
    (10_000, [10_000] * 100_000, True), (10**6, [50] * 50_000, True), (10**6, [50] * 60_000, False), (0, [], True),
    (10**6, [int(MOST_PAIRS**0.5)], True), (10**6, [int(MOST_PAIRS**0.5) + 1], False),
])  # fmt: skip
def test_auto_offers_ease_by_the_stated_rule(n_items: int, lengths: list[int], expected: bool) -> None:
    assert is_offered(n_items, np.array(lengths, dtype=np.int64)) is expected
