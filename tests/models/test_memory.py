"""The item-to-item memory: its distribution, its mixture and how that is found, against loops; a model that has one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper import load, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.models.item_memory import (
    DECAYS,
    SHARES,
    ItemMemory,
    Mixture,
    MixtureSearch,
    log_mixture,
    newest_first,
)
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.serving.bundle import GRAPH
from recbole_hyper.serving.export import export
from recbole_hyper.training.build import build
from recbole_hyper.training.checkpoint import read_weights
from recbole_hyper.types import Cases
from tests.conftest import LEARN, SMALL
from tests.data.test_pair_counts import store_of
from tests.reference import memory as reference

N_ITEMS, WINDOW = 30, 3
ROWS = [[1, 2, 3, 4], [2, 1, 5], [3, 2, 1, 2, 6], [4, 5, 6, 1], [5, 2], [7, 1, 2]]
Rows = list[list[int]]


def memory_of(rows: Rows) -> ItemMemory:
    store = store_of(rows, N_ITEMS)
    return ItemMemory(*pair_counts(store, store.lengths, window=WINDOW, neighbours=N_ITEMS), window=WINDOW)


@pytest.mark.parametrize("decay", DECAYS)
def test_the_memory_and_the_mixture_equal_the_loop(decay: float) -> None:
    memory, matrix = memory_of(ROWS), reference.counts(ROWS, N_ITEMS, WINDOW)
    histories = [[2, 1], [6, 2, 1], [7], [3, 4, 5], [8]]  # of item 8 nothing is known
    newest = np.array([row + [0] * (WINDOW - len(row)) for row in histories])
    remembered = memory.after(newest, decay)
    logits = torch.randn(len(histories), N_ITEMS)
    network = logits[:, 1:].double().softmax(1)
    for share in (0.0, 0.3, 0.9):
        scores = log_mixture(logits.clone(), remembered, share)
        assert bool(torch.isfinite(scores[:, 1:]).all())
        for row, recent in enumerate(histories):
            expected = reference.memory(recent, matrix, decay)
            np.testing.assert_allclose(remembered[row].toarray()[0], expected, rtol=1e-5, atol=1e-9)
            mixed = reference.mixture([0.0, *network[row].tolist()], expected, share)
            np.testing.assert_allclose(scores[row].exp().numpy(), mixed, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(scores.exp().sum(1), torch.ones(len(histories)))


def test_the_logarithm_stays_finite_where_a_probability_does_not() -> None:
    logits = torch.tensor([[0.0, 200.0, -200.0, 0.0]])
    found = log_mixture(logits, memory_of([[1, 2], [2, 3]]).after(np.array([[2]]), 0.5)[:, :4], 0.5)
    assert found[0, 2].item() == pytest.approx(-400 + np.log(0.5), rel=1e-5)


@given(rows=st.lists(st.lists(st.integers(1, N_ITEMS - 1), min_size=2, max_size=7), min_size=2, max_size=6),
       exclude_seen=st.booleans(), seed=st.integers(0, 99))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_every_trial_is_the_ndcg_of_its_mixture(rows: Rows, exclude_seen: bool, seed: int) -> None:
    """The few items that are compared give what a loop over all items gives."""
    store = store_of(rows, N_ITEMS)
    memory, matrix = memory_of(ROWS), reference.counts(ROWS, N_ITEMS, WINDOW)
    cases = Cases.build(store, np.arange(len(rows)), store.lengths - 1)
    logits = torch.randn(len(rows), N_ITEMS, generator=torch.Generator().manual_seed(seed))
    network = torch.cat((torch.zeros(len(rows), 1), logits[:, 1:].softmax(1)), dim=1)
    search = MixtureSearch(memory, exclude_seen=exclude_seen)
    for start in range(0, len(rows), 2):
        search.add(logits[start : start + 2].clone(), cases[start : start + 2])
    assert search.cases == len(rows)
    for number, decay in enumerate(DECAYS):
        for place, share in enumerate(SHARES):
            gains = []
            for row, items in enumerate(rows):
                remembered = reference.memory(items[:-1][::-1][:WINDOW], matrix, decay)
                scores = reference.mixture(network[row].tolist(), remembered, share)
                gains.append(reference.gain(scores, items[-1], items[:-1] if exclude_seen else []))
            assert search.gains[number, place] == pytest.approx(sum(gains), abs=1e-6)


def test_the_smallest_of_equal_shares_is_taken() -> None:
    search = MixtureSearch(memory_of(ROWS), exclude_seen=True)
    search.cases, search.gains[:] = 4, 1.0
    assert search.best() == ((0.0, DECAYS[0]), 0.25, 0.25)
    search.gains[1, 3] = 2.0
    assert search.best() == ((SHARES[3], DECAYS[1]), 0.5, 0.25)


def test_newest_first() -> None:
    found = newest_first(np.array([[1, 2, 3], [4, 0, 0]]), np.array([3, 1]))
    assert found.tolist() == [[3, 2, 1], [4, 0, 0]]


@pytest.mark.parametrize("keys", [{}, {"encoder": "transformer", "geometry": "poincare", "loss_type": "bce"}])
def test_learns_the_planted_walk(keys: dict[str, Any], walk: Path, tmp_path: Path) -> None:
    given_keys = {**LEARN, "data_path": str(walk), "output_dir": str(tmp_path / "run"), **keys}
    result = run("FMLPRecMemory", "walk", config_dict=given_keys)
    assert result["test"]["hit@1"] > (0.7 if keys else 0.85)


def test_the_memory_alone_finds_the_blocks(blocks: Path, tmp_path: Path) -> None:
    """With a rate of nearly nothing the network knows nothing: what is found, the memory found."""
    keys = {**LEARN, "data_path": str(blocks), "output_dir": str(tmp_path / "run"), "learning_rate": 1e-9, "epochs": 1}
    alone = run("FMLPRecMemory", "blocks", config_dict=keys)
    network = run("FMLPRecCE", "blocks", config_dict={**keys, "output_dir": str(tmp_path / "network")})
    assert alone["test"]["hit@5"] > 0.6
    assert network["test"]["hit@5"] < 0.3


def test_a_loaded_run_scores_as_the_run_did(walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "epochs": 5, "data_path": str(walk), "output_dir": str(tmp_path / "run")}
    run("FMLPRecMemory", "walk", config_dict=keys)
    config = Config("FMLPRecMemory", "walk", config_dict=keys)
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    loaded = load(tmp_path / "run")
    made, _, _ = build(config, dataset, split, split.train_lengths)
    made.load_state_dict(loaded.model.state_dict())
    expected = made.eval().case_scorer(config)(split.test)
    asked = split.test
    histories = [
        asked.store.item_tokens[asked.store.row(row)[:end]].tolist()
        for row, end in zip(asked.rows, asked.ends, strict=True)
    ]
    found = loaded.score(histories)
    np.testing.assert_allclose(found, expected[:, 1:].numpy(), rtol=1e-4, atol=1e-5)
    bundle = write_bundle(tmp_path / "run")  # served by the model itself: a graph of states and vectors has no memory
    assert not (bundle / GRAPH).exists()
    with pytest.raises(ConfigError, match="FMLPRecMemory scores by more than states"):
        export(loaded.model, loaded.store.item_tokens, 8, tmp_path / "graph.pt2", format="program", top_k=3)


@pytest.mark.parametrize("key", ["memory_window", "memory_neighbours"])
def test_settings_that_make_no_sense_are_refused(key: str, walk: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=key):
        run("FMLPRecMemory", "walk", config_dict={**SMALL, "data_path": str(walk), "output_dir": str(tmp_path), key: 0})


def made_of(data: Path, **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return model, configuration, data and split."""
    config = Config("FMLPRecMemory", "random", config_dict={**SMALL, "data_path": str(data), **keys})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    model, loader, _ = build(config, dataset, split, split.train_lengths)
    return model, config, dataset, (split, loader)


def test_a_case_is_scored_by_the_newest_items_of_its_history(random_data: Path) -> None:
    """The scorer of the ranking, which reads whole histories, agrees with RecBole's interface, which reads batches."""
    model, config, dataset, (split, _) = made_of(random_data)
    model.eval()
    model.mixture = Mixture(0.5, 0.6)
    batch = dataset.build()[1].inter_feat
    found = model.case_scorer(config)(split.valid)
    torch.testing.assert_close(found[:, 1:], model.full_sort_predict(batch)[:, 1:], rtol=1e-4, atol=1e-5)


def test_validation_chooses_what_is_best_on_its_cases(random_data: Path) -> None:
    model, config, _, (split, _) = made_of(random_data)
    model.choose(split.valid)
    chosen = model.mixture
    scores = {}
    for share, decay in itertools.product(SHARES, DECAYS):
        model.mixture = Mixture(share, decay)
        ranks = rank_cases(model.case_scorer(config), split.valid, n_items=split.store.n_items, k=10).ranks
        scores[share, decay] = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).mean()
    assert scores[chosen] == pytest.approx(max(scores.values()), abs=1e-6)


def test_a_refit_takes_what_validation_chose(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "output_dir": str(tmp_path / "run"), "refit": True, "epochs": 1}
    run("FMLPRecMemory", "random", config_dict=keys)
    selected, _ = read_weights(tmp_path / "run" / "model.safetensors")
    refit, _ = read_weights(tmp_path / "run" / "refit" / "model.safetensors")
    assert torch.equal(selected["choice"], refit["choice"])
    assert not torch.equal(selected["item_embedding.weight"], refit["item_embedding.weight"])


def test_averaged_weights_keep_what_was_chosen_for_them(random_data: Path, tmp_path: Path) -> None:
    keys = {
        **SMALL,
        "data_path": str(random_data),
        "output_dir": str(tmp_path / "run"),
        "ema_decay": 0.9,
        "eval_step": 1,
    }
    result = run("FMLPRecMemory", "random", config_dict=keys)
    log = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    chosen = re.findall(r"memory: share (\S+), decay (\S+);", log)[result["best_epoch"]]
    assert load(tmp_path / "run").model.mixture == tuple(float(value) for value in chosen)
