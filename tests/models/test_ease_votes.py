"""Votes of EASE^R in the mixture: the distribution against a loop, its choice, and what a run's folder keeps of it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from recbole_hyper import load, run
from recbole_hyper.config import Config
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.models.ease_votes import (
    MOST_ITEMS,
    MOST_WORK,
    VOTES,
    EaseVotes,
    Votes,
    ease_scores,
    is_offered,
    log_probabilities,
    with_votes,
)
from recbole_hyper.models.easer import gram_matrix, item_weights
from recbole_hyper.models.item_memory import Mixture, MixtureTable, RankedCases, VoteTable, log_mixture, newest_first
from recbole_hyper.models.memory import MemoryRecommender
from recbole_hyper.runs.build import build_model, read_data
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.serving.bundle import open_bundle
from recbole_hyper.training.checkpoint import read_weights
from tests.conftest import LEARN, write_inter
from tests.models.test_item_memory import N_ITEMS, ROWS, WINDOW, memory_of


def fitted() -> tuple[EaseVotes, np.ndarray]:
    """Return votes of the rows of the tests, and EASE^R's weights."""
    matrix = scipy.sparse.lil_matrix((len(ROWS), N_ITEMS), dtype=np.float32)
    for row, items in enumerate(ROWS):
        matrix[row, items] = 1.0
    votes = EaseVotes()
    votes.fit(matrix.tocsr())
    return votes, item_weights(gram_matrix(matrix.tocsr()), 100.0)


def test_the_distribution_equals_the_loop() -> None:
    votes, weights = fitted()
    newest = torch.tensor([[2, 1, 0, 0], [6, 2, 1, 3], [8, 0, 0, 0]])
    logits = torch.randn(3, N_ITEMS, generator=torch.Generator().manual_seed(0))
    for chosen in (VOTES[0], VOTES[5], VOTES[-1]):
        found = with_votes(log_probabilities(logits), votes.scores(newest, chosen.decay), chosen)
        for row, recent in enumerate(newest.tolist()):
            scores = np.zeros(N_ITEMS)
            for age, item in enumerate(recent):
                if item:
                    scores += chosen.decay**age * weights[item]
            ease = np.exp(chosen.sharpness * scores[1:])
            network = logits[row, 1:].double().softmax(0).numpy()
            mixed = (1 - chosen.share) * network + chosen.share * ease / ease.sum()
            np.testing.assert_allclose(found[row, 1:].exp().numpy(), mixed, rtol=2e-4, atol=1e-7)
            assert found[row, 0] == -torch.inf


def test_a_product_of_sparse_matrices_has_the_same_bits() -> None:
    votes, _ = fitted()
    newest = torch.randint(0, N_ITEMS, (7, 5), generator=torch.Generator().manual_seed(1))
    newest[3] = 0
    assert torch.equal(votes.scores(newest, 0.9), ease_scores(newest, votes.neighbours, votes.weights, 0.9))


def test_only_the_largest_weights_of_an_item_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _, weights = fitted()
    monkeypatch.setattr("recbole_hyper.models.ease_votes._NEIGHBOURS", 4)
    votes, _ = fitted()
    for item in range(1, N_ITEMS):
        kept = np.sort(np.abs(votes.weights[item].numpy()))
        np.testing.assert_allclose(kept, np.sort(np.abs(weights[item]))[-4:], rtol=1e-6)
        np.testing.assert_array_equal(weights[item, votes.neighbours[item].numpy()], votes.weights[item].numpy())


def test_the_mixture_of_a_graph_equals_that_of_the_model() -> None:
    votes, _ = fitted()
    votes.chosen = VOTES[8]
    memory, mixture = memory_of(ROWS), Mixture(0.4, 0.6)
    items = torch.tensor([[2, 1, 0, 0, 0], [6, 2, 1, 3, 4], [8, 0, 0, 0, 0]])
    lengths = (items > 0).sum(1)
    logits = torch.randn(3, N_ITEMS)
    newest = newest_first(items.numpy(), lengths.numpy())
    scores = votes.scores(torch.from_numpy(newest), votes.chosen.decay)
    mixed = with_votes(log_probabilities(logits), scores, votes.chosen)
    expected = log_mixture(mixed, memory.after(newest[:, :WINDOW], mixture.decay), mixture.share)
    found = MixtureTable(VoteTable(memory), mixture, ease=votes)(logits, items, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n_items", "n_interactions", "expected"), [
    (MOST_ITEMS, 10**9, True), (MOST_ITEMS + 1, 10**9, False),
    (1000, 10**6 // MOST_WORK + 1, True), (1000, 10**6 // MOST_WORK, False), (0, 0, True),
    # LastFM, Foursquare, MovieLens-1M; Beauty
    (3_647, 50_371, True), (9_990, 177_302, True), (3_707, 988_129, True), (12_102, 153_776, False),
])  # fmt: skip
def test_auto_offers_ease_by_the_stated_rule(n_items: int, n_interactions: int, expected: bool) -> None:
    assert is_offered(n_items, n_interactions) is expected


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data on which EASE^R helps: two items of each history's own six follow, far from the newest ones."""
    random, rows = np.random.default_rng(0), []
    for user in range(300):
        own = user % 12
        wanted = random.permutation(own * 6 + np.arange(6))[:5]
        items = [wanted[0], *random.integers(72, 200, 14), *wanted[1:]]
        rows += [(f"u{user}", f"i{item}", time) for time, item in enumerate(items)]
    return write_inter(tmp_path_factory.mktemp("data"), "sets", rows)


def test_a_run_chooses_and_keeps_the_votes(pairs: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "data_path": str(pairs), "epochs": 1, "learning_rate": 1e-6, "memory_ease": True}
    result = run("FMLPRecMemory", "sets", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    tensors, _ = read_weights(tmp_path / "run" / "model.safetensors")
    assert VOTES[int(tensors["_ease.choice"])].share > 0
    without = run(
        "FMLPRecMemory", "sets", config_dict={**keys, "memory_ease": False, "output_dir": str(tmp_path / "b")}
    )
    assert result["valid"]["ndcg@10"] > without["valid"]["ndcg@10"]
    loaded, history = load(tmp_path / "run"), [["i1", "i2", "i100"], ["i70"]]
    assert not np.allclose(load(tmp_path / "b").score(history), loaded.score(history))


@pytest.mark.slow
def test_a_bundle_serves_the_votes(pairs: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "data_path": str(pairs), "epochs": 1, "learning_rate": 1e-6, "memory_ease": True}
    run("FMLPRecMemory", "sets", config_dict={**keys, "output_dir": str(tmp_path)})
    loaded, history = load(tmp_path), [["i1", "i2", "i100"], ["i70"]]
    write_bundle(tmp_path)
    served = open_bundle(tmp_path, load).recommender
    np.testing.assert_allclose(served.score(history), loaded.score(history), rtol=1e-4, atol=1e-5)


def test_validation_chooses_the_best_votes_by_the_scores_of_the_model(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value of each choice is the NDCG@10 that the model then has; if nothing is kept it is the same."""
    keys = {**LEARN, "data_path": str(pairs), "epochs": 0, "memory_ease": True, "save_data": False}
    keys["memory_rerank"] = False
    config = Config("FMLPRecMemory", "sets", config_dict=keys)
    data, split = read_data(config)
    model = build_model(config, data, split.store, split.train_lengths)
    model.choose(split.valid)
    best = model.mixture, model._ease.chosen
    assert best[1].share > 0

    def ndcg(mixture: Mixture, votes: Votes) -> float:
        model.mixture, model._ease.chosen = mixture, votes
        ranks = rank_cases(model.case_scorer(config), split.valid, n_items=model.n_items, k=10).ranks
        return float(case_values("ndcg@10", ranks).mean())

    value = ndcg(*best)
    for votes in (VOTES[0], *VOTES[1::5]):
        assert ndcg(best[0], votes) <= value + 1e-6
    found = {}
    model._ease.chosen = best[1]

    def noted(blocks: object, mixture: Mixture, before: float) -> tuple:
        found["value"] = MemoryRecommender._choose_votes(model, blocks, mixture, before)
        return found["value"]

    monkeypatch.setattr(model, "_choose_votes", noted)
    model.choose(split.valid)
    assert found["value"][2] == pytest.approx(value, abs=1e-6)
    monkeypatch.setattr("recbole_hyper.models.memory.RERANKED_CASES", 0)
    model.choose(split.valid)
    assert (model.mixture, model._ease.chosen) == best


def test_cases_that_no_mixture_ranks_high_are_left_out(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {**LEARN, "data_path": str(pairs), "epochs": 0, "memory_ease": True, "memory_rerank": False}
    config = Config("FMLPRecMemory", "sets", config_dict=keys)
    data, split = read_data(config)
    model = build_model(config, data, split.store, split.train_lengths)
    model.choose(split.valid)
    logits, left = torch.randn(len(split.valid), model.n_items), []
    within_reach = RankedCases.within_reach

    def noted(cases: RankedCases, *parts: torch.Tensor) -> torch.Tensor:
        rows = within_reach(cases, *parts)
        left.append(len(cases.targets) - len(rows))
        return rows

    def gains() -> dict:
        return dict(model._gains(logits.clone(), split.valid, [Mixture(0.2, 0.9), Mixture(0.4, 0.9)]))

    monkeypatch.setattr(RankedCases, "within_reach", noted)
    found = gains()
    monkeypatch.setattr(RankedCases, "within_reach", lambda cases, *parts: torch.arange(len(cases.targets)))
    assert found == gains()
    assert min(left) > 0


def test_a_weights_file_without_votes_loads() -> None:
    votes, _ = fitted()
    fresh = EaseVotes()
    fresh.load_state_dict({})
    assert not fresh.chosen.share
    fresh.load_state_dict(votes.state_dict())
    torch.testing.assert_close(fresh.weights, votes.weights)


def test_every_choice_has_its_own_number() -> None:
    votes = EaseVotes()
    for one, other in itertools.pairwise(VOTES):
        votes.chosen = one
        assert votes.chosen == one != other
