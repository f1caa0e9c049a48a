"""Every model of this package trains and ranks on the device: few transfers, and the numbers of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recbole_hyper import registry, run
from recbole_hyper.encoders import base
from recbole_hyper.models import reranker
from recbole_hyper.models.item_memory import VoteTable
from recbole_hyper.training.checkpoint import read_weights
from tests.devices.foreign import INDEX_BACKWARD
from tests.devices.steps import small_keys, step_and_ranking, write_random
from tests.models.test_ease_votes import fitted
from tests.models.test_item_memory import N_ITEMS
from tests.raising import refused

# most waits of a ranked batch: ranks, counts, lists and their scores come back, and whether all are finite; of
# FMLPRecMemory also what the memory has chosen; ItemKNN multiplies on the host, and its similarities come there once
RANKING_WAITS = {"FMLPRecMemory": 12, "ItemKNN": 12}
# waits of a step: FMLPRec and BSARec look for the prefixes
WAITS = {"FMLPRec": 1, "BSARec": 1}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_random(tmp_path / "data")


@pytest.mark.parametrize("model", registry.names("models"))
def test_a_step_and_a_ranked_batch_wait_a_fixed_number_of_times(
    model: str, data: Path, tmp_path: Path, foreign: torch.device
) -> None:
    step, ranking, cases = step_and_ranking(model, data, tmp_path / "run")
    assert cases > 20
    if step is not None:
        assert (step.waits, step["number"]) == (WAITS.get(model, 0), 0), step.places
        assert step["to device"] <= 1, step.places
        assert INDEX_BACKWARD not in step.operations
    assert ranking.waits <= RANKING_WAITS.get(model, 10), ranking.places


def test_votes_of_ease_in_blocks_are_those_of_the_cpu(foreign: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    votes, _ = fitted()
    newest = torch.randint(0, N_ITEMS, (7, 5), generator=torch.Generator().manual_seed(1))
    expected = votes.scores(newest, 0.9)
    monkeypatch.setattr("recbole_hyper.models.ease_votes._BLOCK", 1)
    torch.testing.assert_close(votes.to(foreign).scores(newest.to(foreign), 0.9).cpu(), expected)


@pytest.mark.parametrize("model", ["HSASRecCE", "SASRecSCE", "DualRec"])
def test_transfers_do_not_grow_with_users_or_items(model: str, tmp_path: Path, foreign: torch.device) -> None:
    found = []
    for users, items in ((40, 300), (120, 500)):
        data = write_random(tmp_path / f"{users}", users, items)
        step, ranking, _ = step_and_ranking(model, data, tmp_path / f"run{users}", train_batch_size=users)
        found.append((dict(step or {}), dict(ranking)))
    assert found[0] == found[1]


@pytest.mark.parametrize("model", ["HSASRecCE", "FMLPRecMemory", "GRU4RecCE", "DualRec", "EASER", "PureSVDN", "Pop"])
def test_metrics_are_those_of_the_cpu(model: str, data: Path, tmp_path: Path, foreign: torch.device) -> None:
    """Without dropout, whose masks the device draws in another order."""
    still = dict.fromkeys(("hidden_dropout_prob", "attn_dropout_prob", "dropout_prob"), 0.0)
    found = {}
    for use_gpu in (True, False):
        folder = tmp_path / str(use_gpu)
        keys = small_keys(model, data, output_dir=str(folder), use_gpu=use_gpu, epochs=2, learning_rate=0.01)
        found[use_gpu] = run(model, "random", config_dict=keys | {k: v for k, v in still.items() if model[0] in "HGDF"})
    assert found[True]["device"]["type"] == "foreign"
    assert found[False]["device"]["type"] == "cpu"
    assert found[True]["test"] == pytest.approx(found[False]["test"], abs=2e-5)


@pytest.mark.parametrize("fits", [True, False])
def test_a_reranker_is_fitted_and_ranks_as_on_the_cpu(
    fits: bool, data: Path, tmp_path: Path, foreign: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the tables of the memories do not fit on the device."""
    if not fits:
        monkeypatch.setattr(VoteTable, "fits", lambda *_: False)
    monkeypatch.setattr(reranker, "_FEWEST", 1)
    # what was found is kept on random data too
    monkeypatch.setattr(reranker.CasesOfReranker, "gain", lambda *_: 1.0)
    found = {}
    for use_gpu in (True, False):
        keys = small_keys("FMLPRecMemory", data, output_dir=str(tmp_path / str(use_gpu)), use_gpu=use_gpu, epochs=2)
        found[use_gpu] = run("FMLPRecMemory", "random", config_dict={**keys, "hidden_dropout_prob": 0.0})
        weights, _ = read_weights(tmp_path / str(use_gpu) / "model.safetensors")
        assert bool(weights["_reranker.bits"].any())
    for part in ("valid", "test"):
        assert found[True][part] == pytest.approx(found[False][part], abs=2e-5)


def test_a_planted_cpu_tensor_in_a_step_fails(
    data: Path, tmp_path: Path, foreign: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "positions_from_end", lambda lengths, width: torch.zeros(len(lengths), width).long())
    from recbole_hyper.encoders import transformer

    monkeypatch.setattr(transformer, "positions_from_end", base.positions_from_end)
    with refused(RuntimeError, "tensors", "foreign"):
        step_and_ranking("SASRecCE", data, tmp_path / "run")
