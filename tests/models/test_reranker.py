"""The reranker: its evidence and its scores against loops, its fit, and what a run keeps of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.config import Config
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.evaluation.ranking import best_here, rank_cases
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.models import reranker as module
from recbole_hyper.models.ease_votes import EaseVotes, log_probabilities
from recbole_hyper.models.item_memory import ItemMemory
from recbole_hyper.models.memory import FMLPRecMemory
from recbole_hyper.models.reranker import (
    N_EVIDENCE,
    CasesOfReranker,
    Changes,
    Evidence,
    EvidenceReader,
    Reranker,
    SparseVotes,
    VoteTables,
    reranked,
)
from recbole_hyper.runs.build import build_model, read_data
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.serving.bundle import open_bundle
from recbole_hyper.training.averaging import WeightAverage
from recbole_hyper.training.checkpoint import read_weights
from tests.conftest import LEARN, SMALL, write_inter
from tests.data.test_pair_counts import store_of
from tests.models.test_ease_votes import fitted
from tests.reference import memory as reference

N_ITEMS, WINDOW, LENGTH, BEST = 30, 3, 5, 6
ROWS = [[1, 2, 3, 4], [2, 1, 5], [3, 2, 1, 2, 6], [4, 5, 6, 1], [5, 2], [7, 1, 2]]
NEWEST = torch.tensor([[2, 1, 0, 0, 0], [6, 2, 1, 3, 4], [8, 0, 0, 0, 0]])


@pytest.fixture(autouse=True)
def few_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEST", BEST)


def sides() -> list[ItemMemory]:
    store = store_of(ROWS, N_ITEMS)
    options = {"window": WINDOW, "neighbours": N_ITEMS}
    return [
        ItemMemory(*pair_counts(store, store.lengths, side=side, **options), window=WINDOW)
        for side in ("after", "before")
    ]


def reader(votes: Any, *, exclude_seen: bool = True) -> EvidenceReader:
    return EvidenceReader(votes, torch.arange(N_ITEMS), window=WINDOW, exclude_seen=exclude_seen)


def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probabilities of a mixture and of a network, and item vectors."""
    draws = torch.Generator().manual_seed(0)
    scores, network = (log_probabilities(torch.randn(3, N_ITEMS, generator=draws)) for _ in range(2))
    return scores, network, torch.randn(N_ITEMS, 4, generator=draws)


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("ease", [EaseVotes(), fitted()[0]])
@pytest.mark.parametrize("large", [True, False])
def test_the_evidence_equals_the_loop(exclude_seen: bool, ease: EaseVotes, large: bool) -> None:
    scores, network, vectors = given()
    read = reader(SparseVotes(sides(), ease), exclude_seen=exclude_seen)
    found = read(scores.clone(), network, NEWEST, vectors, large=large)
    assert found.values.shape == (3, BEST, N_EVIDENCE)
    probability = network[:, 1:].double().softmax(1).log()
    for row, history in enumerate(NEWEST.tolist()):
        recent = [item for item in history if item]
        hidden = recent if exclude_seen else []
        best = sorted((item for item in range(1, N_ITEMS) if item not in hidden), key=lambda one: -scores[row, one])[
            :BEST
        ]
        assert found.items[row].tolist() == best
        for place, item in enumerate(best):
            cosines = [float(torch.cosine_similarity(vectors[item], vectors[old], dim=0)) for old in recent[:WINDOW]]
            cosines += [0.0] * (WINDOW - len(cosines))
            expected = [
                float(probability[row, item - 1]), float(scores[row, item]), math.log1p(item),
                cosines[0], max(cosines), sum(0.9**age * one for age, one in enumerate(cosines)),
            ]  # fmt: skip
            for side in ("after", "before"):
                matrix = reference.counts(ROWS, N_ITEMS, WINDOW, side)
                votes = [reference.memory(recent[:WINDOW], matrix, decay)[item] for decay in (0.4, 0.9)]
                expected += [math.log(vote + math.exp(-9)) for vote in votes]
            for decay in (0.8, 0.95, 0.99):
                dense = torch.zeros(N_ITEMS, N_ITEMS)
                if ease.bits.numel():
                    dense.scatter_(1, ease.neighbours.long(), ease.weights)
                expected.append(sum(decay**age * float(dense[old, item]) for age, old in enumerate(recent)))
            np.testing.assert_allclose(found.values[row, place].numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ease", [EaseVotes(), fitted()[0]])
def test_tables_for_a_device_vote_as_the_sparse_counts(ease: EaseVotes) -> None:
    items = torch.randint(1, N_ITEMS, (3, 7), generator=torch.Generator().manual_seed(1))
    found, expected = (votes(sides(), ease)(NEWEST, items) for votes in (VoteTables, SparseVotes))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def filled(seed: int = 0) -> Reranker:
    """Return a reranker with random numbers."""
    model = Reranker()
    model.bits.copy_(torch.randn(model.bits.shape, generator=torch.Generator().manual_seed(seed)).view(torch.int32))
    return model


def changed_scores(
    model: Reranker, scores: torch.Tensor, evidence: Evidence, folds: torch.Tensor | None = None
) -> torch.Tensor:
    return reranked(scores.clone(), Changes(evidence.items, model(evidence.values, folds)))


def test_the_scores_equal_the_formula_and_keep_the_probability() -> None:
    scores, network, vectors = given()
    evidence = reader(SparseVotes(sides(), EaseVotes()))(scores, network, NEWEST, vectors)
    torch.testing.assert_close(changed_scores(Reranker(), scores, evidence), scores)
    model = filled()
    found = changed_scores(model, scores, evidence)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(3))
    width = 16
    for row in range(3):
        changed = {}
        for place, item in enumerate(evidence.items[row].tolist()):
            changes = []
            for numbers in model.numbers.double().numpy():
                mean, scale, linear = numbers[: 3 * N_EVIDENCE].reshape(3, N_EVIDENCE)
                weight = numbers[3 * N_EVIDENCE : -2 * width].reshape(N_EVIDENCE, width)
                bias, out = numbers[-2 * width : -width], numbers[-width:]
                x = (evidence.values[row, place].double().numpy() - mean) * scale
                changes.append(linear @ x + np.tanh(x @ weight + bias) @ out)
            changed[item] = math.exp(float(scores[row, item]) + np.mean(changes))
        together = sum(math.exp(float(scores[row, item])) for item in changed)
        for item in range(1, N_ITEMS):
            expected = math.exp(float(scores[row, item]))
            if item in changed:
                expected = changed[item] / sum(changed.values()) * together
            assert float(found[row, item].exp()) == pytest.approx(expected, rel=1e-3)


def test_a_user_is_ranked_in_validation_by_the_network_that_was_not_fitted_to_it() -> None:
    scores, network, vectors = given()
    evidence, model, folds = (
        reader(SparseVotes(sides(), EaseVotes()))(scores, network, NEWEST, vectors),
        filled(),
        [0, 1, 0],
    )
    found = changed_scores(model, scores, evidence, torch.tensor(folds))
    for row, fold in enumerate(folds):
        other = Reranker()
        other.bits.copy_(model.bits[1 - fold].expand(2, -1))
        torch.testing.assert_close(found[row], changed_scores(other, scores, evidence)[row])


def cases(count: int, seed: int = 0) -> CasesOfReranker:
    """Return cases whose targets have the largest popularity among the best items, which the mixture ignores."""
    draws = torch.Generator().manual_seed(seed)
    evidence = torch.randn(count, BEST, N_EVIDENCE, generator=draws)
    scores = evidence[:, :, 1] * 0.1
    places = evidence[:, :, 2].argmax(1)
    places[::5] = -1
    items = torch.arange(1, BEST + 1).expand(count, BEST)
    return CasesOfReranker(items, evidence, scores, places, torch.arange(count) % 2)


def gain(model: Reranker, given_cases: CasesOfReranker) -> float:
    """Return what NDCG@10 gains by the networks that were not fitted to a user."""
    return given_cases.gain(model(given_cases.evidence, given_cases.folds))


def test_a_fit_finds_what_tells_the_target() -> None:
    model, given_cases, state = Reranker(), cases(1000), torch.get_rng_state()
    model.fit(given_cases)
    assert gain(model, given_cases) > 0.2
    assert torch.equal(torch.get_rng_state(), state)
    new = cases(500, seed=1)
    changed = new.scores + model(new.evidence)
    known = new.places >= 0
    assert (changed.argmax(1) == new.places)[known].float().mean() > 0.9
    again = Reranker()
    again.fit(given_cases)
    assert torch.equal(again.bits, model.bits)


def test_the_gain_is_that_of_users_that_the_network_has_not_seen() -> None:
    """Targets that nothing tells: a network that learns them by heart gains on its own users alone."""
    given_cases = cases(300)
    random = torch.randint(0, BEST, (300,), generator=torch.Generator().manual_seed(2))
    given_cases, model = given_cases._replace(places=random), Reranker()
    model.fit(given_cases)
    assert gain(model, given_cases) < 0.01
    assert given_cases.gain(model(given_cases.evidence)) > 0.03


def test_too_few_cases_change_nothing() -> None:
    model = filled()
    model.fit(cases(90))
    assert not model.is_fitted
    assert gain(model, cases(90)) == 0


def test_hidden_items_take_no_part_in_the_fit() -> None:
    given_cases = cases(600)
    hidden = given_cases.scores.clone()
    hidden[:, 0] = -torch.inf
    places = torch.where(given_cases.places == 0, -1, given_cases.places)
    model = Reranker()
    given_cases = given_cases._replace(scores=hidden, places=places)
    model.fit(given_cases)
    assert bool(model.numbers.isfinite().all())
    assert gain(model, given_cases) > 0.1


def test_an_average_of_weights_leaves_it_alone() -> None:
    model = filled()
    before = model.bits.clone()
    average = WeightAverage(model, 0.9)
    average.update()
    with average.applied():
        assert torch.equal(model.bits, before)


def test_a_file_of_an_earlier_version_has_none() -> None:
    model = Reranker()
    model.load_state_dict({})
    assert not model.is_fitted


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data on which the order of two items tells what follows: after a pair comes its third item, before it another."""
    random, rows = np.random.default_rng(0), []
    for user in range(600):
        items: list[int] = []
        while len(items) < 9:
            first = int(random.integers(0, 40))
            items += [item for item in (first, (first + 1) % 40, (first + 2) % 40) if item not in items[-12:]]
        rows += [(f"u{user}", f"i{item}", time) for time, item in enumerate(items[: int(random.integers(6, 10))])]
    return write_inter(tmp_path_factory.mktemp("data"), "order", rows)


def trained(data: Path, folder: Path, **keys: Any) -> dict[str, Any]:
    """Run one epoch in which the network learns next to nothing."""
    given_keys = {**LEARN, "data_path": str(data), "epochs": 1, "learning_rate": 1e-6, "output_dir": str(folder)}
    return run("FMLPRecMemory", "order", config_dict=given_keys | keys)


@pytest.mark.parametrize("memory_ease", [True, False])
def test_a_run_gains_keeps_it_and_serves_it(memory_ease: bool, ordered: Path, tmp_path: Path) -> None:
    result = trained(ordered, tmp_path / "run", memory_ease=memory_ease)
    without = trained(ordered, tmp_path / "without", memory_ease=memory_ease, memory_rerank=False)
    assert result["valid"]["ndcg@10"] > without["valid"]["ndcg@10"] + 0.02
    assert result["test"]["ndcg@10"] > without["test"]["ndcg@10"] + 0.02
    loaded, histories = load(tmp_path / "run"), [["i1", "i2", "i30"], ["i7"]]
    assert loaded.model._reranker.is_fitted
    write_bundle(tmp_path / "run")
    served = open_bundle(tmp_path / "run", load).recommender
    np.testing.assert_allclose(served.score(histories), loaded.score(histories), rtol=1e-4, atol=1e-5)


def test_a_kernel_finds_the_same_best_items_in_large_data(
    ordered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, used = trained(ordered, tmp_path / "run"), []

    def noted(*arguments: Any) -> torch.Tensor:
        used.append(len(arguments[0]))
        return best_here(*arguments)

    monkeypatch.setattr("recbole_hyper.evaluation.ranking.KERNEL_FROM", 0)
    monkeypatch.setattr(module, "best_here", noted)
    found = trained(ordered, tmp_path / "kernel")
    assert used
    assert found["valid"] == pytest.approx(expected["valid"], abs=1e-6)
    assert found["test"] == pytest.approx(expected["test"], abs=1e-6)


def test_validation_is_cross_fitted_and_the_test_uses_both_networks(ordered: Path, tmp_path: Path) -> None:
    result = trained(ordered, tmp_path / "run")
    loaded = load(tmp_path / "run")
    model, (_, split) = loaded.model, read_data(loaded.config)
    options = {"n_items": split.store.n_items, "k": 10, "exclude_seen": True}

    def ndcg(score: Any, part: Any) -> float:
        return float(case_values("ndcg@10", rank_cases(score, part, **options).ranks).mean())

    found = ndcg(model.validation_scorer(loaded.config), split.valid)
    assert found == pytest.approx(result["valid"]["ndcg@10"], abs=1e-5)
    assert ndcg(model.case_scorer(loaded.config), split.test) == pytest.approx(result["test"]["ndcg@10"], abs=1e-5)
    # other numbers of one network change the validation of the other's users alone
    folds, before = split.valid.rows % 2, model.validation_scorer(loaded.config)(split.valid)
    model._reranker.bits[0] = filled().bits[0]
    after = model.validation_scorer(loaded.config)(split.valid)
    changed = (before[:, 1:] != after[:, 1:]).any(1).numpy()
    assert not changed[folds == 0].any()
    assert changed[folds == 1].all()


def test_a_refit_keeps_it(ordered: Path, tmp_path: Path) -> None:
    trained(ordered, tmp_path, refit=True, memory_ease=True)
    selected, refit = (read_weights(tmp_path / part / "model.safetensors")[0] for part in ("", "refit"))
    assert bool(selected["_reranker.bits"].any())
    assert torch.equal(selected["_reranker.bits"], refit["_reranker.bits"])
    assert refit["_ease.bits"].numel()


def test_what_does_not_gain_is_not_kept(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config("FMLPRecMemory", "random", config_dict={**SMALL, "data_path": str(random_data)})
    data, split = read_data(config)
    model = build_model(config, data, split.store, split.train_lengths)
    assert isinstance(model, FMLPRecMemory)
    monkeypatch.setattr(Reranker, "fit", lambda self, _: self.bits.fill_(1))
    monkeypatch.setattr(CasesOfReranker, "gain", lambda *_: -0.1)
    model.choose(split.valid)
    assert not model._reranker.is_fitted


def test_fewer_items_than_are_reranked() -> None:
    scores, network, vectors = given()
    few, votes = 4, lambda newest, items: torch.zeros(*items.shape, 7)
    read = EvidenceReader(votes, torch.arange(few), window=WINDOW, exclude_seen=True)
    evidence = read(scores[:, :few].clone(), network[:, :few], NEWEST.clamp(max=few - 1), vectors[:few])
    assert evidence.items.shape == (3, few - 1)
    assert bool(evidence.values.isfinite().all())
    assert not bool(changed_scores(filled(), scores[:, :few], evidence).isnan().any())
