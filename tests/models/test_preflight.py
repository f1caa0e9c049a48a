"""A run that cannot fit is refused before it starts, with a setting that does fit."""

import re
from pathlib import Path

import pytest
import torch

from recbole_hyper import run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.encoders import window_filters
from recbole_hyper.models.preflight import MemoryEstimate, estimate_memory, require_memory
from tests.conftest import SMALL


def config(cycle: Path, **keys: object) -> Config:
    return Config("SASRecCE", "cycle", config_dict={**SMALL, "data_path": str(cycle), **keys})


def test_parts_by_hand(cycle: Path) -> None:
    made = config(cycle, hidden_size=16, n_layers=1, learner="adam")
    estimate = estimate_memory(made, 1000)
    encoder = 4 * 16 * 16 + 2 * 16 * 16 + 10 * 16 + 8 * 16
    assert estimate.parameters == 4 * (1000 * 16 + encoder)
    assert estimate.optimizer == 2 * estimate.parameters
    assert estimate.gradients == estimate.parameters + 4 * 1000 * 16
    assert estimate.total == sum(
        (estimate.parameters, estimate.gradients, estimate.optimizer, estimate.activations, estimate.loss)
    )


def test_item_vectors_of_the_heads_own_count(cycle: Path) -> None:
    shared, own = (estimate_memory(config(cycle, reuse_item_embeddings=reuse), 1000) for reuse in (True, False))
    assert own.parameters == shared.parameters + 4 * 1000 * 16
    # each matrix has one gradient then, where a shared one has two until they are added
    assert own.gradients == own.parameters == shared.gradients


def test_a_gated_feed_forward_part_counts_its_gate(cycle: Path) -> None:
    def parameters(**keys: object) -> int:
        return estimate_memory(config(cycle, encoder="ligr", n_heads=1, **keys), 1000).parameters

    # ~ is four times the width of 16
    assert parameters(inner_size=None) == parameters(inner_size=64)
    plain = estimate_memory(config(cycle, n_heads=1, inner_size=128), 1000).parameters
    assert parameters(inner_size=64) == plain
    made = config(cycle, encoder="ligr", n_heads=1, inner_size=64)
    built = made.model_class.build_encoder(made, torch.nn.Embedding(1000, 16, padding_idx=0))
    exact = 4 * (1000 * 16 + sum(parameter.numel() for parameter in built.parameters()))
    assert exact <= parameters(inner_size=64) <= 1.1 * exact


def test_filters_hold_what_their_wide_feed_forward_part_holds(cycle: Path) -> None:
    def estimate(**keys: object) -> MemoryEstimate:
        return estimate_memory(config(cycle, encoder="fmlp", n_heads=1, **keys), 1000)

    assert estimate(inner_size=None) == estimate(inner_size=64)
    assert estimate(inner_size=64).activations > estimate(inner_size=16).activations


@pytest.mark.parametrize("encoder", ["hstu", "fuxi"])
@pytest.mark.parametrize("keys", [{}, {"attention_dim": 9, "linear_dim": 30}])
def test_encoders_that_read_times_count_their_matrices(encoder: str, keys: dict, cycle: Path) -> None:
    made = config(cycle, encoder=encoder, n_heads=2, **keys)
    estimate = estimate_memory(made, 1000)
    built = made.model_class.build_encoder(made, torch.nn.Embedding(1000, 16, padding_idx=0))
    # the weights of the 129 buckets of time are left out
    exact = 4 * (1000 * 16 + sum(parameter.numel() for parameter in built.parameters()) - 129)
    assert exact <= estimate.parameters <= 1.1 * exact
    plain = made.model_class.build_encoder(config(cycle, n_heads=2), torch.nn.Embedding(9, 16, padding_idx=0))
    assert not plain.reads_times


def test_a_dual_encoder_counts_both_directions(cycle: Path) -> None:
    def estimate(directions: str) -> tuple[int, int]:
        made = estimate_memory(config(cycle, encoder="dual", n_heads=2, dual_directions=directions), 1000)
        return made.parameters - 4 * 1000 * 16, made.activations

    (encoder, activations), shared = estimate("past"), estimate("shared")
    assert estimate("both") == (2 * encoder, 2 * activations)
    assert shared == (encoder, 2 * activations)


@pytest.mark.parametrize("encoder", ["fmlp", "dual_fmlp"])
def test_windows_of_all_prefixes_count(encoder: str, cycle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A circular filter holds a window of 8 positions for each of 16 x 8 prefixes, up to PREFIX_POSITIONS."""

    def activations(**keys: object) -> int:
        return estimate_memory(config(cycle, encoder=encoder, n_heads=1, inner_size=16, **keys), 1000).activations

    def more(positions: int) -> int:
        block = 4 * (16 + 2) * 16 * (positions - 16 * 8)
        return block * (2 if encoder == "dual_fmlp" else 1)

    causal = activations(filter="causal")
    assert activations(filter="circular") == causal + more(16 * 8 * 8)
    monkeypatch.setattr(window_filters, "PREFIX_POSITIONS", 500)
    assert activations(filter="circular") == causal + more(500)
    monkeypatch.setattr(window_filters, "PREFIX_POSITIONS", 50)
    assert activations(filter="circular") == causal


def test_refusal_names_a_setting_that_fits(cycle: Path) -> None:
    limit = estimate_memory(config(cycle, train_batch_size=64), 1000).total
    with pytest.raises(ConfigError, match=r"training would need about .* GiB") as caught:
        require_memory(config(cycle, train_batch_size=4096, memory_limit=limit), 1000)
    found = re.search(r"--train_batch_size=(\d+) would fit", str(caught.value))
    assert found
    fits = config(cycle, train_batch_size=int(found[1]), memory_limit=limit)
    assert require_memory(fits, 1000).total <= limit


def test_a_catalogue_that_no_setting_fits(cycle: Path) -> None:
    with pytest.raises(ConfigError, match="drop rare items"):
        require_memory(config(cycle, memory_limit=1000), 10**6)


def test_a_run_is_refused_before_training(cycle: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(cycle), "memory_limit": 1000, "output_dir": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match="GiB are free"):
        run("SASRecCE", "cycle", config_dict=keys)
    assert not (tmp_path / "run" / "train.csv").exists()


def test_the_result_tells_estimate_and_measurement(cycle: Path, tmp_path: Path) -> None:
    result = run(
        "SASRecCE", "cycle", config_dict={**SMALL, "data_path": str(cycle), "output_dir": str(tmp_path / "run")}
    )
    assert result["estimated_memory_bytes"]["total"] > 0
    assert result["peak_memory_bytes_per_phase"]["train"] > 0
