"""The item-to-item memory: its distribution, its mixture and how that is found, against loops; a model that has one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.models import memory
from recbole_hyper.models.item_memory import (
    DECAYS,
    SHARES,
    Mixture,
)
from recbole_hyper.models.reranker import CasesOfReranker, Reranker
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.build import build
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.serving.bundle import GRAPH, open_bundle
from recbole_hyper.training.checkpoint import read_weights
from tests.conftest import LEARN, SMALL


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
    bundle = write_bundle(tmp_path / "run")
    assert (bundle / GRAPH).exists()
    served = open_bundle(tmp_path / "run", load).recommender
    np.testing.assert_allclose(served.score(histories), found, rtol=1e-4, atol=1e-5)


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


def test_a_validation_encodes_each_case_once(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, config, _, (split, _) = made_of(random_data, memory_ease=True)
    encoded: list[int] = []
    encode, reads = memory.encode_cases, []
    model._evidence_reader().register_forward_hook(lambda part, given, found: reads.append(len(found.items)))

    def noted(model: Any, cases: Any, *more: Any) -> torch.Tensor:
        encoded.append(len(cases))
        return encode(model, cases, *more)

    def rank() -> Any:
        return rank_cases(model.validation_scorer(config), split.valid, n_items=split.store.n_items, k=10)

    def fitted(reranker: Reranker, _: Any) -> None:
        reranker.bits.copy_(torch.ones_like(reranker.numbers).view(torch.int32))

    monkeypatch.setattr(memory, "encode_cases", noted)
    monkeypatch.setattr(Reranker, "fit", fitted)
    monkeypatch.setattr(CasesOfReranker, "gain", lambda *_: 0.1)
    model.choose(split.valid)
    rank()
    assert sum(encoded) == sum(reads) == len(split.valid)
    # of a draw the ranking knows the states and the changes, and computes those of the other cases
    monkeypatch.setattr(memory, "RERANKED_CASES", len(split.valid) - 3)
    model.choose(split.valid)
    reads.clear()
    encoded.clear()
    found = rank()
    assert encoded == reads == [3]
    again = rank()  # nothing is known any more
    assert sum(reads) == 3 + len(split.valid)
    np.testing.assert_array_equal(found.ranks, again.ranks)
    monkeypatch.undo()
    # no state outlives its weights
    model.choose(split.valid)
    model.train()
    with torch.no_grad():
        model.item_embedding.weight.mul_(2)
    model.eval()
    found = model.validation_scorer(config)(split.valid)
    assert torch.equal(found, model.validation_scorer(config)(split.valid))


def test_a_refit_keeps_the_choice_of_validation(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "output_dir": str(tmp_path / "run"), "refit": True, "epochs": 1}
    run("FMLPRecMemory", "random", config_dict=keys)
    selected, _ = read_weights(tmp_path / "run" / "model.safetensors")
    refit, _ = read_weights(tmp_path / "run" / "refit" / "model.safetensors")
    assert torch.equal(selected["choice"], refit["choice"])
    assert not torch.equal(selected["item_embedding.weight"], refit["item_embedding.weight"])


def test_averaged_weights_keep_their_mixture(random_data: Path, tmp_path: Path) -> None:
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
