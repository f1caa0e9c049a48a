"""Encoders that read times, HSTU and FuXi: their equations, blind to the clock, able to learn what time alone tells."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_hyper import registry, run
from recbole_hyper.config import ConfigError
from recbole_hyper.encoders._relations import time_buckets
from recbole_hyper.encoders.dual import DualEncoder
from tests.conftest import LEARN, SMALL, write_inter
from tests.encoders.timed import SEQUENCES, TIMES, batch, made, same_as_loop
from tests.models.fitting import built
from tests.protocols.part_files import NAMES, write_parts
from tests.raising import refused
from tests.reference import relations

ENCODERS = ["hstu", "fuxi"]
each = pytest.mark.parametrize("name", ENCODERS)


def encoder(name: str, **options: Any) -> Any:
    return made(registry.resolve("encoders", name), **options)


def test_buckets_by_their_formula() -> None:
    generator = np.random.default_rng(3)
    # beyond 2^24 seconds float32 would round; 0, 1 and 2 s, and gaps that are no whole number
    times = 1.5e9 + np.concatenate([[0, 1, 2, 0.5], np.exp(generator.uniform(0, 21, 26)).round()])
    given = torch.from_numpy(times.reshape(3, 10))
    none = torch.zeros(10, 10, dtype=torch.bool)
    for last in (128, 20):
        found = time_buckets(given, given, last, none)
        for row in range(3):
            for i in range(10):
                for j in range(10):
                    expected = relations.bucket(float(given[row, j]), float(given[row, i]), last)
                    assert found[row, i, j] == expected
    assert time_buckets(given, given, 128, ~none).eq(129).all()


def test_buckets_of_many_rows_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    times = torch.randint(0, 10**9, (7, 6), dtype=torch.float64)
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    at_once = time_buckets(times, times, 128, later)
    monkeypatch.setattr("recbole_hyper.encoders._relations._GAPS", 80)
    assert torch.equal(time_buckets(times, times, 128, later), at_once)


LOOPS = {"hstu": relations.hstu, "fuxi": relations.fuxi}


@each
@pytest.mark.parametrize(
    "options",
    [
        {"n_heads": 1, "n_layers": 1},
        {"n_heads": 3, "n_layers": 2},
        {"n_heads": 2, "attention_dim": 5, "linear_dim": 4},
        {"n_heads": 5, "attention_dim": 1, "linear_dim": 2, "n_time_buckets": 7},
    ],
)
def test_equals_a_plain_loop_of_its_equations(name: str, options: dict[str, Any]) -> None:
    more = {"inner_size": 7} if name == "fuxi" and "linear_dim" in options else {}
    same_as_loop(encoder(name, **options, **more), LOOPS[name])


@each
def test_weights_start_as_published(name: str) -> None:
    torch.manual_seed(1)
    found = registry.resolve("encoders", name)(torch.nn.Embedding(30, 64, padding_idx=0), max_length=50)
    block = found.blocks[0]
    for weight in (block.gate_query.weight, block.value_key.weight, block.weights.gap, block.weights.place):
        assert weight.std().item() == pytest.approx(0.02, rel=0.25)
    assert block.weights.gap.shape == (129,)
    assert {name for name, _ in block.input_norm.named_parameters()} == set()
    assert block.output.weight.abs().max() <= (6 / ((3 if name == "fuxi" else 1) * 64 + 64)) ** 0.5
    if name == "hstu":
        positions = found.position_embedding.weight
        assert positions.abs().max() <= 2 / 8
        assert positions.std().item() == pytest.approx(0.88 / 8, rel=0.05)
    else:
        # SwiGLU is as wide as the states, and its two matrices are drawn apart
        inner = block.feed_forward.inner.weight
        assert inner.shape == (2 * 64, 64)
        assert 0.9 * (6 / 128) ** 0.5 < inner.abs().max() <= (6 / 128) ** 0.5


@each
def test_no_state_depends_on_a_later_item_or_a_later_time(name: str) -> None:
    found, sequence, times = encoder(name), SEQUENCES[2], TIMES[2]
    states = found(*batch([sequence], [times]))[0]
    for position in range(1, len(sequence)):
        other_item = [*sequence[:position], 29, *sequence[position + 1 :]]
        other_time = [*times[:position], *(time + 5e8 for time in times[position:])]
        for given in ((other_item, times), (sequence, other_time)):
            changed = found(*batch([given[0]], [given[1]]))[0]
            torch.testing.assert_close(changed[:position], states[:position], rtol=0, atol=1e-12)
            assert (changed[position] - states[position]).abs().max() > 1e-6
    # nor on how much comes after it
    cut = found(*batch([sequence[:4]], [times[:4]]))[0]
    torch.testing.assert_close(cut, states[:4], rtol=0, atol=1e-12)


@each
def test_only_differences_of_times_count(name: str) -> None:
    found = encoder(name).float()
    items, lengths, times = batch()
    real = torch.arange(items.shape[1]) < lengths[:, None]
    early = found(items, lengths, times - 9e8)
    # a century later, in whole seconds: what float32 holds of such a time is off by minutes
    assert torch.equal(found(items, lengths, times + 3_155_760_000)[real], early[real])
    assert not torch.allclose(found(items, lengths, times.float().double())[real], early[real], atol=1e-4)


@each
def test_without_times_all_times_are_equal(name: str) -> None:
    found = encoder(name)
    items, lengths, times = batch()
    real = torch.arange(items.shape[1]) < lengths[:, None]
    unknown = found(items, lengths)
    assert torch.equal(unknown[real], found(items, lengths, torch.full_like(times, 1e9))[real])
    assert torch.equal(found.last(items, lengths), found.last(items, lengths, torch.full_like(times, 1e9)))
    assert not torch.allclose(unknown[real], found(items, lengths, times)[real], atol=1e-4)


def test_a_dual_encoder_passes_on_no_times() -> None:
    with refused(TypeError, "HSTUEncoder"):
        type("DualHSTU", (DualEncoder,), {}, backbone=registry.resolve("encoders", "hstu"))


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """Return a data_path that holds "clock": the time between the two newest items decides the next."""
    generator, rows = np.random.default_rng(4), []
    for user in range(150):
        # of many lengths: positions count from the oldest, and each must have been trained
        pauses = generator.integers(4, size=generator.integers(6, 17))
        times = 1_500_000_000 + np.cumsum(30.0 ** (pauses + 1)).astype(int)
        items = [int(generator.integers(4)), int(generator.integers(4)), *pauses[1:-1]]
        rows += [(f"u{user}", f"i{item}", time) for item, time in zip(items, times, strict=True)]
    return write_inter(tmp_path / "data", "clock", rows)


CLOCK = {
    **LEARN,
    "loss_type": "ce",
    "learning_rate": 0.005,
    "epochs": 60,
    "eval_step": 60,
    "MAX_ITEM_LIST_LENGTH": 12,
    "n_layers": 2,
    "topk": [1, 2],
    "valid_metric": "NDCG@2",
    "exclude_seen": False,
    "n_threads": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "learns"), [("transformer", False), *((name, True) for name in ENCODERS)])
def test_a_pattern_in_times_alone_is_learned(name: str, learns: bool, clock: Path, tmp_path: Path) -> None:
    keys = {**CLOCK, "data_path": str(clock), "output_dir": str(tmp_path / "run"), "encoder": name}
    hits = run("SASRecCE", "clock", config_dict=keys)["test"]["hit@1"]
    # chance is one in four
    assert hits > 0.8 if learns else hits < 0.4


@pytest.mark.parametrize(("name", "geometry"), [("hstu", "poincare"), ("fuxi", "euclidean")])
def test_every_loss_reaches_the_weights_of_time(name: str, geometry: str, random_data: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "encoder": name, "geometry": geometry, "curvature": 0.1}
    keys |= {"n_negatives": 4, "sce_bucket_size_y": 20, "train_windows": "random"}
    for loss in registry.names("losses"):
        model, _, _, loader = built("SASRecCE", "random", {**keys, "loss_type": loss})
        batch, _ = next(iter(loader.share(1, 2)))
        assert batch["timestamp_list"].shape == batch["item_id_list"].shape
        assert batch["timestamp_list"].max() > 1e9
        model.calculate_loss(batch).backward()
        for block in model.encoder.blocks:
            assert block.weights.gap.grad.abs().sum() > 0, loss
            assert block.weights.gap.grad.isfinite().all(), loss


def test_a_batch_without_the_times_that_are_read_is_refused(random_data: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data)}
    model, _, _, loader = built("SASRecCE", "random", {**keys, "encoder": "hstu"})
    batch = next(iter(loader))
    del batch.interaction["timestamp_list"]
    with refused(ValueError, "'timestamp_list'", "HSTUEncoder"):
        model.calculate_loss(batch)
    # nothing is gathered for an encoder that reads none
    assert "timestamp_list" not in next(iter(built("SASRecCE", "random", keys)[3]))


def test_data_without_times_are_refused_before_training(tmp_path: Path) -> None:
    rows = [(f"u{user}", f"i{(user + step) % 12}") for user in range(9) for step in range(4)]
    data = write_parts(tmp_path / "data", [rows] * 3, "user_id:token\titem_id:token\n")
    keys = {**SMALL, "data_path": str(data), "benchmark_filename": NAMES}
    with refused(ConfigError, "encoder=hstu", "d.train.inter"):
        run("SASRecCE", "d", config_dict={**keys, "encoder": "hstu", "output_dir": str(tmp_path / "run")})
    assert not (tmp_path / "run" / "train.csv").exists()
    run("SASRecCE", "d", config_dict={**keys, "output_dir": str(tmp_path / "other")})
