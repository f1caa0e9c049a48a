"""Files of weights and states: what is damaged, foreign or does not fit is one error; a full disk is another."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from recbole_hyper.errors import NoSpaceError
from recbole_hyper.training.checkpoint import (
    CheckpointError,
    load_state,
    load_weights,
    read_weights,
    save_state,
    save_weights,
)
from tests.raising import refused

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.tensor([True, False, True]),
    "c": torch.tensor(7),
    "none": torch.empty(0, 4),
    "half": torch.ones(3, dtype=torch.bfloat16),
}
STATE = {"model": TENSORS, "epoch": 3, "history": [{"epoch": 0, "train_loss": 0.5}], "random": {"numpy": "text"}}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def write_weights(path: Path) -> None:
    save_weights(path, TENSORS, {"epoch": 3, "data_fingerprint": "abc"})


def write_state(path: Path) -> None:
    save_state(path, STATE)


def content_of_weights(path: Path) -> Any:
    tensors, metadata = read_weights(path)
    return [dict(sorted(tensors.items())), metadata]


FILES = pytest.mark.parametrize(
    ("name", "write", "read"),
    [("model.safetensors", write_weights, content_of_weights), ("checkpoint.pt", write_state, load_state)],
)


def refusal(read: Callable, path: Path) -> str:
    """Return the message of the CheckpointError that reading raises, "" for none."""
    try:
        read(path)
    except CheckpointError as error:
        return str(error)
    return ""


@FILES
def test_a_flipped_bit_is_noticed_or_changes_nothing(name, write, read, tmp_path) -> None:
    path = tmp_path / name
    write(path)
    whole, before = path.read_bytes(), read(path)
    noticed = 0
    positions = range(0, len(whole), max(1, len(whole) // 500))
    for position in positions:
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        message = refusal(read, path)
        assert str(path) in message if message else equal(read(path), before), position
        assert "\n" not in message
        noticed += bool(message)
    # the rest are the marks of a digest, without which a file is one from before it was written, and padding
    assert noticed > 0.6 * len(positions)


@FILES
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", None])
def test_a_file_that_is_not_a_checkpoint_is_named(content, name, write, read, tmp_path) -> None:
    path = tmp_path / name
    write(path)
    path.write_bytes(path.read_bytes()[:300] if content is None else content)
    with refused(CheckpointError, f"{name} cannot be read") as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    save_file(TENSORS, str(tmp_path / "other.safetensors"))
    with refused(CheckpointError, "written", "package"):
        read_weights(tmp_path / "other.safetensors")
    for content in ([1, 2], TENSORS["a"], {"epoch": 1}):
        torch.save(content, tmp_path / "other.pt")
        with refused(CheckpointError, "checkpoint"):
            load_state(tmp_path / "other.pt", {"epoch", "model"})
    write_weights(tmp_path / "model.safetensors")
    with refused(CheckpointError, "this", "model") as caught:
        load_weights(tmp_path / "model.safetensors", nn.Linear(2, 2))
    assert "\n" not in str(caught.value)


def test_tensors_that_share_memory_are_saved_separately(tmp_path: Path) -> None:
    shared = torch.ones(3)
    single = torch.ones(1, dtype=torch.long).as_strided((1,), (0,))
    save_weights(tmp_path / "one.safetensors", {"a": single}, {})
    save_weights(tmp_path / "model.safetensors", {"a": shared, "b": shared, "c": shared}, {})
    assert equal(read_weights(tmp_path / "model.safetensors")[0], dict.fromkeys("abc", shared))


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse to make a file larger than ``size``, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@FILES
@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_full_disk_is_one_error_and_leaves_what_was_there(size, name, write, read, tmp_path) -> None:
    path = tmp_path / name
    write(path)
    before = path.read_bytes()
    large = {"large": torch.zeros(10_000)}
    with largest_file(size), refused(NoSpaceError, "no space left", name):
        save_state(path, large) if name == "checkpoint.pt" else save_weights(path, large, {})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


class Hostile:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("true",)


def test_a_hostile_checkpoint_is_refused_without_advice_to_run_it(tmp_path: Path) -> None:
    torch.save({"epoch": Hostile()}, tmp_path / "checkpoint.pt")
    with refused(CheckpointError, "contains", "tensors") as caught:
        load_state(tmp_path / "checkpoint.pt")
    assert "weights_only" not in str(caught.value)
