"""Checkpoints that load without running code: weights in safetensors, training state with ``weights_only``."""

import contextlib
import hashlib
import json
import pickle
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from recbole_hyper.files import replaced

WEIGHTS = "model.safetensors"
STATE = "checkpoint.pt"
# folder of the training on train + validation, inside that of the run
REFIT = "refit"
# entries in the header of a weights file
_METADATA, _DIGEST = "recbole_hyper", "sha256"
# prefix of the names of RecBole's "other parameters"
_OTHER = "other_parameter:"
_REMEDY = "restore it, or start again in another output_dir"
_UNREADABLE = f"cannot be read ({{}}); {_REMEDY}"
_DAMAGED = f"is damaged: its content is not what was written; {_REMEDY}"


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, or from another run."""


class OtherDataError(CheckpointError):
    """A good checkpoint that was trained on other data than the present data."""


def save_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors by name, ``metadata`` as JSON, and a digest of both."""
    on_cpu: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        # safetensors refuses tensors that share memory
        on_cpu[name] = copy.clone() if any(copy.data_ptr() == other.data_ptr() for other in on_cpu.values()) else copy
    text = json.dumps(metadata)
    with replaced(path) as part:
        save_file(on_cpu, str(part), metadata={_METADATA: text, _DIGEST: _digest(on_cpu, text)})


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a weights file by name, and its metadata; CheckpointError if it is missing or damaged."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    with checkpoint_errors(path, _UNREADABLE), safe_open(str(path), framework="pt") as file:
        header = file.metadata() or {}
        if _METADATA not in header:
            raise CheckpointError(f"{path} was not written by this package")
        text = header[_METADATA]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is not a mapping
        if header.get(_DIGEST) != _digest(tensors, text):
            raise CheckpointError(f"{path} {_DAMAGED}")
        return tensors, dict(json.loads(text))


def load_weights(path: Path, model: nn.Module, data_fingerprint: str = "") -> dict[str, Any]:
    """Load tensors into ``model`` and return the metadata; CheckpointError for a wrong file or other data ("": any)."""
    tensors, metadata = read_weights(path)
    require_same_data(path, metadata, data_fingerprint)
    # values that RecBole's models save in addition to their parameters
    others = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_OTHER)}
    with checkpoint_errors(path):
        model.load_state_dict(tensors)
        device = next((tensor.device for tensor in model.parameters()), None)
        for name, tensor in others.items():
            model.load_other_parameter({name.removeprefix(_OTHER): tensor.to(device)})  # type: ignore[operator]
    return metadata


def learned_tensors(model: Any) -> dict[str, Tensor]:
    """Return the state of a model, and what it computed for ranking (NGCF with a dropout), by name."""
    others = {f"{_OTHER}{name}": value for name, value in model.other_parameter().items() if isinstance(value, Tensor)}
    return {**model.state_dict(), **others}


def _digest(tensors: Mapping[str, Tensor], metadata: str) -> str:
    """Return the sha256 of ``metadata`` and of names, types, shapes and values, sorted by name."""
    sha256 = hashlib.sha256(metadata.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha256.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha256.update(tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data)
    return sha256.hexdigest()


@contextlib.contextmanager
def checkpoint_errors(path: Path, failed: str = "does not fit this model: {}; train it again") -> Iterator[None]:
    """Turn any error while reading or using ``path`` into a CheckpointError with the text of ``failed``."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        short = text if len(text) <= 300 else f"{text[:300]} ..."
        raise CheckpointError(f"{path} {failed.format(short)}") from error


def require_same_data(path: Path, saved: dict[str, Any], data_fingerprint: str) -> None:
    """Raise OtherDataError if a checkpoint names other data: numbers of items and users depend on the data."""
    before = saved.get("data_fingerprint")
    if before and data_fingerprint and before != data_fingerprint:
        raise OtherDataError(
            f"{path} was trained on other data (fingerprint {before}, now {data_fingerprint}): the rows of the atomic "
            "files, their order or the filters changed; restore them, or train again in another output_dir"
        )


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a training state of tensors and plain values."""
    with replaced(path) as part:
        torch.save(state, part)


def load_state(path: Path, needed: Collection[str] = ()) -> dict[str, Any]:
    """Read a training state without running pickled code; CheckpointError if damaged, or without ``needed`` keys."""
    with checkpoint_errors(path, _UNREADABLE):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch does not verify the checksums
        if damaged is not None:
            raise CheckpointError(f"{path} {_DAMAGED}")
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            # torch's own message recommends loading it without this check
            raise CheckpointError(f"{path} contains more than tensors and values, perhaps code: {_REMEDY}") from error
    missing = sorted(set(needed) - set(state if isinstance(state, dict) else ()))
    if missing or not isinstance(state, dict):
        raise CheckpointError(f"{path} is not a checkpoint of a run: {', '.join(missing)} is missing; {_REMEDY}")
    return state
