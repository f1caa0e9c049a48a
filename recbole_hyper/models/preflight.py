"""What a run will need in memory, told before anything of that size is allocated."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recbole_hyper import registry
from recbole_hyper.config.parts import reads_times
from recbole_hyper.data.item_features import ItemFeatures
from recbole_hyper.devices import free_memory, total_memory
from recbole_hyper.encoders.base import Size
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.tables import table
from recbole_hyper.losses.base import Problem
from recbole_hyper.options import arguments

_FLOAT = 4
# moments of an optimizer per parameter
_MOMENTS = {"adam": 2, "adamw": 2, "riemannian_adam": 2, "sgd": 0, "riemannian_sgd": 0, "adagrad": 1, "rmsprop": 1}
# tensors of (B, L, d) that a block keeps for its backward: inputs, norms, query, key, value, output, dropout masks
_TENSORS_PER_BLOCK = 16
# tensors of (B, h, L, L) that attention keeps: weights, dropout mask, their product
_MAPS_PER_BLOCK = 3


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one training step, by what they hold; with the optimizer's moments counts the average of the weights."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    loss: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.loss

    def table(self) -> str:
        """Return the parts as a plain table in MiB."""
        parts = {**self.__dict__, "total": self.total}
        return table([{"memory": name, "MiB": round(value / 2**20, 1)} for name, value in parts.items()])


def estimate_memory(config: Any, n_items: int, features: ItemFeatures | None = None) -> MemoryEstimate:
    """Estimate the memory of one training step of a model of this package over ``n_items`` ids with ``features``.

    The item matrix is exact; the encoder counts as so many transformer blocks as its size says, an upper bound for the
    recurrent ones; the loss answers for itself.
    """
    width, layers = int(config["hidden_size"]), int(config["n_layers"] or config["num_layers"] or 1)
    batch, length = int(config["train_batch_size"]), int(config["MAX_ITEM_LIST_LENGTH"])
    size = _encoder_size(config, width, batch, length)
    inner = size.inner_size
    encoder = size.networks * (layers * (4 * width * width + 2 * width * inner + 10 * width) + length * width)
    matrix = _FLOAT * n_items * width
    tied = bool(config["reuse_item_embeddings"])
    parameters = matrix * (1 if tied else 2) + _FLOAT * (n_items * bool(config["item_bias"]) + encoder)
    moments = _MOMENTS.get(str(config["learner"]).lower(), 2)
    tokens = batch * length
    blocks = layers * size.positions * (_TENSORS_PER_BLOCK * width + 2 * inner)
    maps = layers * _MAPS_PER_BLOCK * batch * int(config["n_heads"] or 1) * length * length
    # the buckets of time, an int32 for each pair, which all layers share
    maps += batch * length * length * reads_times(config)
    loss = config.model_class.build_loss(config)
    geometry = config.model_class.build_geometry(config)
    columns, weights, fused = _of_features(config, features, tokens)
    parameters += weights
    return MemoryEstimate(
        parameters=parameters + columns,
        # the encoder's gradient of a shared item matrix and the head's meet as two tensors of its size
        gradients=parameters + (matrix if tied else 0),
        optimizer=(moments + (config["ema_decay"] is not None)) * parameters,
        activations=size.passes * _FLOAT * (blocks + maps + 4 * tokens * width) + fused,
        loss=loss.memory_bytes(Problem(tokens, width, n_items, linked=geometry.has_link, lifts=geometry.lifts)),
    )


def _of_features(config: Any, features: ItemFeatures | None, tokens: int) -> tuple[int, int, int]:
    """Return the bytes of the columns of features, of their weights, and of what a step computes of both."""
    if features is None:
        return 0, 0, 0
    width, output, parts = int(config["hidden_size"]), bool(config["feature_output"]), 1 + len(features.columns)
    weights = sum(column.size for column in features.columns) * width
    weights += parts * width * width if config["feature_fusion"] == "concat" else 0
    # of each row of vectors: its parts, their sum or the map of all, and gradients of as many
    rows = tokens + output * features.n_items
    held = 2 * (parts + 1) * rows * width
    codes = sum(column.values.shape[1] for column in features.columns) * rows
    # a head with item vectors of its own has weights of its own too
    tables = 2 if output and not config["reuse_item_embeddings"] else 1
    return tables * features.nbytes, _FLOAT * tables * weights, _FLOAT * (held + codes)


def _encoder_size(config: Any, width: int, rows: int, length: int) -> Size:
    part = registry.resolve("encoders", config["encoder"])
    return part.size(width, rows, length, arguments(part.options(), config.final_config_dict))


def require_memory(config: Any, n_items: int, features: ItemFeatures | None = None) -> MemoryEstimate:
    """Return the estimate of a run over ``n_items`` ids with ``features``; refuse a run that cannot fit.

    ``memory_limit`` (bytes) is what the run may take; None is what is free. ConfigError where the estimate is larger;
    its message names the nearest setting that fits.
    """
    estimate = estimate_memory(config, n_items, features)
    device, limit = config["device"], config["memory_limit"]
    if not limit:
        limit = free_memory(device)
    if estimate.total <= limit:
        return estimate
    advice = _nearest(config, n_items, limit, features)
    raise ConfigError(
        f"training would need about {_gib(estimate.total)} GiB, {_gib(limit)} GiB are free:\n"
        f"{estimate.table()}\n{advice}"
    )


def require_one_sequence(config: Any) -> None:
    """Raise ConfigError for a model that this machine cannot hold with one sequence and no items, before it is built.

    All the memory of the device counts: what is free, or ``memory_limit``, is asked when the items are known.
    """
    limit = total_memory(config["device"])
    needed = estimate_memory(_with(config, {"train_batch_size": 1}), 1).total
    if needed > limit:
        keys = ("MAX_ITEM_LIST_LENGTH", "hidden_size", "inner_size", "n_layers")
        sizes = ", ".join(f"{key}={config[key]}" for key in keys if config[key] is not None)
        raise ConfigError(
            f"{sizes}: one sequence would need about {_gib(needed)} GiB in training, of {_gib(limit)} GiB in all"
        )


def _nearest(config: Any, n_items: int, limit: int, features: ItemFeatures | None) -> str:
    """Return the largest batch that fits, else the largest width, else what else can be done."""
    for key, low in (("train_batch_size", 1), ("hidden_size", int(config["n_heads"] or 1))):
        value = int(config[key])
        while value > low:
            value = max(low, value // 2 if key == "train_batch_size" else value // 2 // low * low)
            if estimate_memory(_with(config, {key: value}), n_items, features).total <= limit:
                return f"--{key}={value} would fit"
    return "no batch size or width fits: drop rare items (item_inter_num_interval) or use a machine with more memory"


def _with(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return the configuration with a few keys replaced."""
    changed = copy.copy(config)
    changed.final_config_dict = {**config.final_config_dict, **changes}
    return changed


def _gib(size: int) -> str:
    return f"{math.ceil(size / 2**30 * 10) / 10:.1f}"
