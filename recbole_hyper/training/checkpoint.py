"""Checkpoints that load without running code: weights in safetensors, training state under ``weights_only``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from recbole_hyper.files import replaced

WEIGHTS = "model.safetensors"
STATE = "checkpoint.pt"


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, or of another run."""


def save_weights(path: Path, model: nn.Module, metadata: dict[str, Any]) -> None:
    """Write the model's tensors and a JSON text of ``metadata``, to a temporary name first."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    seen: dict[int, str] = {}
    for name, tensor in list(tensors.items()):
        # safetensors refuses tensors that share memory
        if tensor.data_ptr() in seen and tensor.numel():
            tensors[name] = tensor.clone()
        seen[tensor.data_ptr()] = name
    with replaced(path) as part:
        save_file(tensors, str(part), metadata={"recbole_hyper": json.dumps(metadata)})


def load_weights(path: Path, model: nn.Module, data_fingerprint: str = "") -> dict[str, Any]:
    """Load tensors into ``model`` and return the metadata.

    Raises:
        CheckpointError: no file, tensors that do not fit, or data with another ``data_fingerprint`` ("" for any).
    """
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    with safe_open(str(path), framework="pt") as file:
        metadata = json.loads((file.metadata() or {}).get("recbole_hyper", "{}"))
    require_same_data(path, metadata, data_fingerprint)
    try:
        model.load_state_dict(load_file(str(path)))
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit this model: {error}") from error
    return metadata


def require_same_data(path: Path, saved: dict[str, Any], data_fingerprint: str) -> None:
    """Raise CheckpointError where a checkpoint names other data: ids follow the file, so its vectors are of others."""
    before = saved.get("data_fingerprint")
    if before and data_fingerprint and before != data_fingerprint:
        raise CheckpointError(
            f"{path} was trained on other data (fingerprint {before}, now {data_fingerprint}): the rows of the atomic "
            "files, their order or the filters changed; restore them, or train again in another output_dir"
        )


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a training state of tensors and plain values, to a temporary name first."""
    with replaced(path) as part:
        torch.save(state, part)


def load_state(path: Path) -> dict[str, Any]:
    """Read a training state; no pickled code is run."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read ({error}); start again in another output_dir") from error


def random_state(loader: Any) -> dict[str, Any]:
    """Return the state of every random generator that training uses."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  RecBole draws from numpy's global generator
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": json.dumps([name, np.asarray(keys).tolist(), *rest]),
        "python": json.dumps(random.getstate()),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    generator = getattr(loader, "generator", None)
    if isinstance(generator, np.random.Generator):
        state["loader"] = json.dumps(generator.bit_generator.state)
    elif isinstance(generator, torch.Generator):
        state["loader"] = generator.get_state()
    return state


def restore_random_state(state: dict[str, Any], loader: Any) -> None:
    """Undo what happened to every generator since :func:`random_state`."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = json.loads(state["numpy"])
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    version, internal, gauss = json.loads(state["python"])
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    generator = getattr(loader, "generator", None)
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = json.loads(state["loader"])
    elif isinstance(generator, torch.Generator):
        generator.set_state(state["loader"])
