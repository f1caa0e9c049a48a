"""Warm start: a new run on more data that starts from the weights of an earlier run; items and users match by id."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.config import Config
from recbole_hyper.config.parts import PARTS
from recbole_hyper.data.item_features import ItemFeatures
from recbole_hyper.data.tables.ids import Ids
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.models.item_vectors import FeaturedEmbedding, NumberFeature
from recbole_hyper.registry import parts_of
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.runs.folder import RESULT, read_config, require_finished
from recbole_hyper.runs.saved_data import SavedData, read_saved_data
from recbole_hyper.runs.trained_on import TrainedOn, learned_by
from recbole_hyper.training.checkpoint import REFIT, WEIGHTS, CheckpointError, read_weights
from recbole_hyper.yaml_files import config_file, read_yaml

# defaults of a warm start, as shares of the earlier run's learning rate and best epoch
RATE, EPOCHS = 1 / 2, 1 / 4


def continuation(folder: Path, config_files: Sequence[str | Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration of the finished run in ``folder``, and the keys that a warm start changes.

    ``learning_rate`` is half of the earlier one, ``epochs`` a quarter of the epochs up to its best, at least 2; after
    another warm start both stay. Keys in ``config_files`` do not change.
    """
    before = read_config(folder)
    require_finished(folder)
    result = read_json(folder / RESULT)
    changes = {"output_dir": None, "resume": False, "interactions": "files"}
    # halving the rate every night would end near 0
    if not before.get("init_from"):
        changes["epochs"] = max(2, math.ceil(EPOCHS * (result["best_epoch"] + 1)))
        if isinstance(before.get("learning_rate"), float | int):
            changes["learning_rate"] = before["learning_rate"] * RATE
    own_keys = {key for file in config_files for key in read_yaml(config_file(file))}
    return before, {key: value for key, value in changes.items() if key not in own_keys}


def require_same_model(config: Config) -> None:
    """Raise ConfigError if ``config`` has another model or another part than the run that it starts from."""
    folder = Path(config["init_from"])
    if config["MODEL_TYPE"].name == "TRADITIONAL":
        raise ConfigError(f"init_from: {config['model']} is fitted in one step, without initial weights")
    before = read_config(folder)
    keys = ("model", *(PARTS if parts_of(config.model_class) else ()))
    if changed := [key for key in keys if config[key] != before.get(key)]:
        detail = ", ".join(f"{key}={before.get(key)!r} there and {config[key]!r} here" for key in changed)
        raise ConfigError(
            f"init_from={str(folder)!r}: it has another model: {detail}; leave out {' and '.join(changed)}, or train "
            "without init_from"
        )


def learned_there(folder: Path) -> list[TrainedOn]:
    """Return what the run in ``folder`` was trained on, also before; CheckpointError if it saved no data."""
    saved = _saved_data(folder)
    return learned_by(folder, saved.split, saved.store, refitted=(folder / REFIT / WEIGHTS).is_file())


def _saved_data(folder: Path) -> SavedData:
    if (saved := read_saved_data(folder)) is None:
        raise CheckpointError(f"init_from: {folder} saved no data (save_data), so it has no item ids to match")
    return saved


@torch.no_grad()
def start_from(folder: Path, model: Any, data: SequenceDataset) -> dict[str, int]:
    """Copy the weights of the run in ``folder`` to a new ``model`` on ``data``; return numbers of known and new rows.

    Items and users match by id, tokens of features by their text. New rows keep their initial values, but a new item
    with features starts from its features alone. ConfigError for a model of another size; CheckpointError for a folder
    without weights or ids.
    """
    saved = _saved_data(folder)
    refit = folder / REFIT / WEIGHTS
    earlier, _ = read_weights(refit if refit.is_file() else folder / WEIGHTS)
    rows = {
        "item": _Rows.matched(saved.store.item_tokens, data.store.item_tokens),
        "user": _Rows.matched(saved.store.user_tokens, data.store.user_tokens),
    }
    by_feature = _feature_rows(model, data.item_features, saved.item_features)
    own = {k: v for k, v in model.state_dict().items() if not k.startswith(getattr(model, "fits_itself", ()))}
    for name in own.keys() - earlier.keys():
        raise ConfigError(f"init_from={str(folder)!r}: {name} is missing in that run: it used a different model")
    for name, tensor in own.items():
        before = earlier[name]
        matched = by_feature.get(name) or _rows_of(name, tensor, before, rows)
        if matched is not None:
            matched.copy(before, tensor)
        elif before.shape == tensor.shape:
            tensor.copy_(before)
        else:
            raise ConfigError(
                f"init_from={str(folder)!r}: {name} has the shape {tuple(before.shape)} there and "
                f"{tuple(tensor.shape)} here; use the keys of that run"
                + ("" if isinstance(model, OwnModel) else ", or train without init_from: ids match rows only")
            )
    for part in model.modules():
        if isinstance(part, FeaturedEmbedding):
            part.weight[torch.from_numpy(rows["item"].new)] = 0.0
    counts = {f"known_{kind}s": len(one.here) - 1 for kind, one in rows.items()}
    return counts | {f"new_{kind}s": len(one.new) for kind, one in rows.items()}


@dataclass(frozen=True)
class _Rows:
    """Matching rows of a table (n, ...) and an earlier one (n_before, ...): row ``here[i]`` was row ``there[i]``."""

    n_before: int
    n: int
    here: npt.NDArray[np.int64]
    there: npt.NDArray[np.int64]

    @classmethod
    def matched(cls, before: npt.NDArray[np.str_], now: npt.NDArray[np.str_]) -> "_Rows":
        """Match ids; entry 0 of both is padding."""
        rows = Ids(before).find(now[1:])
        here = np.flatnonzero(rows > 0)
        return cls(len(before), len(now), np.concatenate(([0], here + 1)), np.concatenate(([0], rows[here])))

    @property
    def new(self) -> npt.NDArray[np.int64]:
        """The rows that match no earlier row."""
        return np.setdiff1d(np.arange(self.n), self.here)

    def copy(self, before: Tensor, now: Tensor) -> None:
        """Copy the matching rows, and the rows after the last id (RecBole's mask) in order."""
        now[torch.from_numpy(self.here)] = before[torch.from_numpy(self.there)].to(now.device)
        if len(now) > self.n:
            now[self.n :] = before[self.n_before :].to(now.device)


def _rows_of(name: str, tensor: Tensor, before: Tensor, rows: Mapping[str, _Rows]) -> _Rows | None:
    """Return the matching rows of a table of items or users, None for any other tensor."""
    is_named = any(word in name for word in ("item", "user", "offset"))
    if not tensor.dim() or tensor.shape[1:] != before.shape[1:] or (tensor.shape == before.shape and not is_named):
        return None
    kinds = ("user", "item") if "user" in name else ("item", "user")
    for kind in kinds:
        more = len(tensor) - rows[kind].n
        if more == len(before) - rows[kind].n_before and 0 <= more <= 2:
            return rows[kind]
    return None


def _feature_rows(model: Any, now: ItemFeatures | None, before: ItemFeatures | None) -> dict[str, _Rows]:
    """Return the matching tokens of each column of item features, by the name of its weight."""
    by_feature: dict[str, _Rows] = {}
    if now is None or before is None:
        return by_feature
    columns = {column.name: column for column in before.columns}
    for name, part in model.named_modules():
        if not isinstance(part, FeaturedEmbedding):
            continue
        for number, (feature, column) in enumerate(zip(part.features, now.columns, strict=True)):
            if isinstance(feature, NumberFeature) or column.name not in columns:
                continue
            tokens = [np.concatenate(([""], one.meaning)) for one in (columns[column.name], column)]
            by_feature[f"{name}.features.{number}.weight"] = _Rows.matched(*tokens)
    return by_feature
