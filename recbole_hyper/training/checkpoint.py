"""Checkpoints that load without running code: weights in safetensors, training state under ``weights_only``."""

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
# folder of the training on train + validation, below that of the run
REFIT = "refit"
# entries of the header of a weights file
_METADATA, _DIGEST = "recbole_hyper", "sha256"
# in front of the names of what RecBole calls other parameters
_OTHER = "other_parameter:"
_REMEDY = "restore it, or start again in another output_dir"
_UNREADABLE = f"cannot be read ({{}}); {_REMEDY}"


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, or of another run."""


class OtherDataError(CheckpointError):
    """A checkpoint that is good, but was trained on other data than those that are there now."""


def save_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors by name, a JSON text of ``metadata`` and a digest of both."""
    on_cpu: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        one = tensor.detach().cpu().contiguous()
        # safetensors refuses tensors that share memory
        on_cpu[name] = one.clone() if any(one.data_ptr() == other.data_ptr() for other in on_cpu.values()) else one
    text = json.dumps(metadata)
    with replaced(path) as part:
        save_file(on_cpu, str(part), metadata={_METADATA: text, _DIGEST: _digest(on_cpu, text)})


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a weights file by name, and its metadata; CheckpointError for none, or a damaged one."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    with checkpoint_errors(path, _UNREADABLE), safe_open(str(path), framework="pt") as file:
        header = file.metadata() or {}
        if _METADATA not in header:
            raise CheckpointError(f"{path} holds no weights that this package wrote")
        text = header[_METADATA]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        if header.get(_DIGEST, digest := _digest(tensors, text)) != digest:
            raise CheckpointError(f"{path} is damaged: its content is not what was written; {_REMEDY}")
        return tensors, dict(json.loads(text))


def load_weights(path: Path, model: nn.Module, data_fingerprint: str = "") -> dict[str, Any]:
    """Load tensors into ``model``, return the metadata; CheckpointError for a wrong file or other data ("" for any)."""
    tensors, metadata = read_weights(path)
    require_same_data(path, metadata, data_fingerprint)
    # what RecBole's models keep beside their parameters
    others = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_OTHER)}
    with checkpoint_errors(path):
        model.load_state_dict(tensors)
        device = next((tensor.device for tensor in model.parameters()), None)
        for name, tensor in others.items():
            model.load_other_parameter({name.removeprefix(_OTHER): tensor.to(device)})  # type: ignore[operator]
    return metadata


def learned_tensors(model: Any) -> dict[str, Tensor]:
    """Return the tensors of a model by name: its state, and what it computed for ranking (NGCF with a dropout)."""
    others = {f"{_OTHER}{name}": value for name, value in model.other_parameter().items() if isinstance(value, Tensor)}
    return {**model.state_dict(), **others}


def _digest(tensors: Mapping[str, Tensor], metadata: str) -> str:
    """Return the sha256 of names, types, shapes and values in the order of names, and of ``metadata``."""
    sha256 = hashlib.sha256(metadata.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha256.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha256.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()


@contextlib.contextmanager
def checkpoint_errors(path: Path, failed: str = "does not fit this model: {}") -> Iterator[None]:
    """Turn whatever the bytes of ``path``, or their use, raise into one CheckpointError, in the words of ``failed``."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        said = failed.format(text if len(text) <= 300 else f"{text[:300]} ...")
        raise CheckpointError(f"{path} {said}") from error


def require_same_data(path: Path, saved: dict[str, Any], data_fingerprint: str) -> None:
    """Raise CheckpointError where a checkpoint names other data: ids follow the file, so its vectors are of others."""
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
    """Read a training state, running no pickled code; CheckpointError for a damaged one, or without ``needed`` keys."""
    with checkpoint_errors(path, _UNREADABLE):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # the checksums, which torch never looks at
        if damaged is not None:
            raise CheckpointError(f"{path} is damaged: its content is not what was written; {_REMEDY}")
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            # torch's own text advises to load it without this check
            raise CheckpointError(
                f"{path} holds more than tensors and plain values, perhaps code: {_REMEDY}"
            ) from error
    missing = sorted(set(needed) - set(state if isinstance(state, dict) else ()))
    if missing or not isinstance(state, dict):
        raise CheckpointError(f"{path} is no checkpoint of a run: {', '.join(missing)} is missing; {_REMEDY}")
    return state
