"""What the optimizer, the loop and the ranking read of a configuration, by the names of its keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from recbole_hyper.options import OfKeys


@dataclass(frozen=True)
class OptimizerSettings(OfKeys):
    """The optimizer, its rates, and the scheduler."""

    learner: str
    learning_rate: float
    weight_decay: float | None
    manifold_learning_rate: float | None
    curvature_learning_rate: float | None
    stabilize: int | None
    adam_betas: list[float] | None
    lr_plateau: Mapping[str, Any] | None
    valid_metric_bigger: bool


@dataclass(frozen=True)
class RankSettings(OfKeys):
    """How cases are ranked, and the metrics of the ranks."""

    topk: list[int]
    metrics: list[str]
    metric_decimal_place: int
    tail_ratio: float | None
    exclude_seen: bool
    ranking_memory_budget: int


@dataclass(frozen=True)
class TrainSettings(OfKeys):
    """Epochs, steps, validation and checkpoints."""

    model: str
    device: torch.device
    epochs: int
    eval_step: int
    stopping_step: int
    valid_metric: str
    valid_metric_bigger: bool
    learning_rate: float
    lr_schedule: str | None
    warmup_ratio: float | None
    ema_decay: float | None
    enable_amp: bool | None
    enable_scaler: bool | None
    clip_grad_norm: Mapping[str, Any] | None
    cuda_graphs: str | None
    memory_limit: int | None
    checkpoint_step: int
    checkpoint_minutes: float | None
    log_tensorboard: bool | None
