"""Every model of this package trains and ranks on the device: few transfers, and the numbers of the CPU."""

from pathlib import Path

import pytest
import torch

from recbole_hyper import registry, run
from recbole_hyper.config import Config
from recbole_hyper.encoders import base
from recbole_hyper.models import rank
from recbole_hyper.runs.build import build_model, read_data
from recbole_hyper.training.checkpoint import read_weights
from tests.devices.foreign import INDEX_BACKWARD, counted
from tests.devices.steps import small_keys, step_and_ranking, write_random
from tests.raising import refused

# most waits of a ranked batch: ranks, counts, lists and their scores come back, and whether all are finite; ItemKNN
# multiplies on the host, and its similarities come there once
RANKING_WAITS = {"ItemKNN": 12}
# waits of a step: FMLPRec and BSARec look for the prefixes
WAITS = {"FMLPRec": 1, "BSARec": 1}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_random(tmp_path / "data")


@pytest.mark.parametrize("model", registry.names("models"))
def test_a_step_and_a_ranked_batch_wait_a_fixed_number_of_times(model, data, tmp_path, foreign) -> None:
    step, ranking, cases = step_and_ranking(model, data, tmp_path / "run")
    assert cases > 20
    if step is not None:
        assert (step.waits, step["number"]) == (WAITS.get(model, 0), 0), step.places
        assert step["to device"] <= 1, step.places
        assert INDEX_BACKWARD not in step.operations
    assert ranking.waits <= RANKING_WAITS.get(model, 10), ranking.places


@pytest.mark.parametrize("drawn", [50_000, 30])
def test_a_validation_of_the_default_waits_for_its_result_alone(drawn, data, tmp_path, foreign, monkeypatch) -> None:
    """The evidence is read, the networks fitted and the cases ranked on the device."""
    monkeypatch.setattr("recbole_hyper.models.memory.RANKED_CASES", drawn)
    keys = small_keys("FMLPRecMemory", data, output_dir=str(tmp_path / "run"), memory_ease=True)
    config = Config("FMLPRecMemory", "random", config_dict=keys)
    dataset, split = read_data(config)
    model = build_model(config, dataset, split.store, split.train_lengths)
    model.choose(split.valid)  # fits EASE^R on the host
    with counted() as choice:
        model.choose(split.valid)
    assert choice.waits == 0, choice.places
    with counted() as ranking:
        scores = model.case_scorer(config, "valid")(split.valid)
    assert ranking.waits == 0, ranking.places
    assert scores.device == foreign


@pytest.mark.parametrize("model", ["HSASRecCE", "SASRecSCE", "DualRec"])
def test_transfers_do_not_grow_with_users_or_items(model: str, tmp_path: Path, foreign: torch.device) -> None:
    found = []
    for users, items in ((40, 300), (120, 500)):
        data = write_random(tmp_path / f"{users}", users, items)
        step, ranking, _ = step_and_ranking(model, data, tmp_path / f"run{users}", train_batch_size=users)
        found.append((dict(step or {}), dict(ranking)))
    assert found[0] == found[1]


@pytest.mark.parametrize("model", ["HSASRecCE", "GRU4RecCE", "DualRec", "PureSVDN"])
def test_metrics_are_those_of_the_cpu(model: str, data: Path, tmp_path: Path, foreign: torch.device) -> None:
    """Without dropout, whose masks the device draws in another order."""
    still = dict.fromkeys(("hidden_dropout_prob", "attn_dropout_prob", "dropout_prob"), 0.0)
    found = {}
    for use_gpu in (True, False):
        folder = tmp_path / str(use_gpu)
        keys = small_keys(model, data, output_dir=str(folder), use_gpu=use_gpu, epochs=2, learning_rate=0.01)
        found[use_gpu] = run(
            model, "random", config_dict=keys | {k: v for k, v in still.items() if model != "PureSVDN"}
        )
    assert found[True]["device"]["type"] == "foreign"
    assert found[False]["device"]["type"] == "cpu"
    assert found[True]["test"] == pytest.approx(found[False]["test"], abs=2e-5)


def test_a_ranker_is_fitted_and_ranks_as_on_the_cpu(data, tmp_path, foreign, monkeypatch) -> None:
    monkeypatch.setattr(rank, "_worth", lambda scores, *_: scores.new_ones(()))
    found = {}
    for use_gpu in (True, False):
        keys = small_keys("FMLPRecMemory", data, output_dir=str(tmp_path / str(use_gpu)), use_gpu=use_gpu, epochs=2)
        found[use_gpu] = run("FMLPRecMemory", "random", config_dict={**keys, "hidden_dropout_prob": 0.0})
        weights, _ = read_weights(tmp_path / str(use_gpu) / "model.safetensors")
        assert bool(weights["ranking.ranker._extra_state"].any())
    for part in ("valid", "test"):
        assert found[True][part] == pytest.approx(found[False][part], abs=2e-5)


def test_a_planted_cpu_tensor_in_a_step_fails(data, tmp_path, foreign, monkeypatch) -> None:
    monkeypatch.setattr(base, "positions_from_end", lambda lengths, width: torch.zeros(len(lengths), width).long())
    from recbole_hyper.encoders import transformer

    monkeypatch.setattr(transformer, "positions_from_end", base.positions_from_end)
    with refused(RuntimeError, "tensors", "foreign"):
        step_and_ranking("SASRecCE", data, tmp_path / "run")
