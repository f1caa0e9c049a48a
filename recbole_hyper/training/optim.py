"""Optimizers and learning-rate schedules: RecBole's names, parameter groups, betas, and torch's fused kernels."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from recbole_hyper.hyperbolic import RIEMANNIAN_LEARNERS
from recbole_hyper.hyperbolic.riemannian import riemannian_optimizer, without_curvatures
from recbole_hyper.training.settings import OptimizerSettings

FUSED = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
PLAIN = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop}
# factor of the rate when the share p of the decay is done
SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,  # SGDR (Loshchilov and Hutter, 2017), equation 5, one period
    "linear": lambda p: 1 - p,
}


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the rate of a parameter group; on a device it is a tensor, which CUDA graphs read."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@contextlib.contextmanager
def own_rates(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Keep where the rates are, tensors or numbers, while a block loads a state, perhaps of another device."""
    before = [(group["lr"], group.get("capturable")) for group in optimizer.param_groups]
    yield
    for group, (rate, capturable) in zip(optimizer.param_groups, before, strict=True):
        loaded, group["lr"] = float(group["lr"]), rate
        set_rate(group, loaded)
        if capturable is not None:
            group["capturable"] = capturable


class RateSchedule:
    """A rate that rises linearly from 0 over ``warmup_ratio`` of all steps, then falls to 0 at the end of ``epochs``.

    It depends only on the share of training that is done, so a resume needs no state. Step s of n has the rate at the
    middle of its time, (s + 1/2) / n. The peak is the present rate of each group of ``optimizer``. ``shape`` is one of
    SHAPES, or None for a constant rate after the warm-up. ``warmup_ratio`` is in [0, 1).
    """

    def __init__(self, optimizer: torch.optim.Optimizer, shape: str | None, warmup_ratio: float, epochs: int) -> None:
        self.optimizer, self.shape, self.warmup_ratio, self.epochs = optimizer, shape, warmup_ratio, epochs
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", float(group["lr"]))

    def factor(self, done: float) -> float:
        """Return the factor of the peak rate after the share ``done``, in [0, 1], of training."""
        if done < self.warmup_ratio:
            return done / self.warmup_ratio
        if self.shape is None:
            return 1.0
        return SHAPES[self.shape]((done - self.warmup_ratio) / (1 - self.warmup_ratio))

    def set_rates(self, epoch: int, step: int, n_steps: int) -> None:
        """Set the rates for ``step`` of ``n_steps`` in ``epoch``; both count from 0."""
        factor = self.factor(min(1.0, (epoch + (step + 0.5) / n_steps) / self.epochs))
        for group in self.optimizer.param_groups:
            set_rate(group, group["initial_lr"] * factor)


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Build the ``learner`` for the parameters of ``model``.

    Learned curvatures get no weight decay, and the rate ``curvature_learning_rate`` if it is set.
    """
    learner = settings.learner.lower()
    rate, decay = settings.learning_rate, settings.weight_decay or 0.0
    if learner in RIEMANNIAN_LEARNERS:
        keys = ("learning_rate", "manifold_learning_rate", "curvature_learning_rate", "stabilize")
        more: dict[str, Any] = {key: getattr(settings, key) for key in keys}
        return riemannian_optimizer(model, learner=learner, weight_decay=decay, **more)
    others, curved = without_curvatures(model)
    groups: list[dict[str, Any]] = [{"params": others, "weight_decay": decay}]
    if curved:
        groups.append({"params": curved, "weight_decay": 0.0, "lr": settings.curvature_learning_rate or rate})
    device = next((one.device for one in (*others, *curved)), torch.device("cpu"))
    if learner in FUSED:
        betas = tuple(settings.adam_betas or (0.9, 0.999))
        if device.type != "cpu":  # rates and steps on the device, for CUDA graphs
            groups = [{**group, "lr": torch.tensor(float(group.get("lr", rate)), device=device)} for group in groups]
        return FUSED[learner](groups, lr=rate, betas=betas, fused=True, capturable=device.type != "cpu")
    return PLAIN[learner](groups, lr=rate)


def build_scheduler(
    optimizer: torch.optim.Optimizer, settings: OptimizerSettings
) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
    """Return the scheduler of ``lr_plateau: {factor: 0.5, patience: 5, threshold: 0}``, or None.

    It multiplies the rate by ``factor`` when the validation score has not improved by more than ``threshold``, a share
    of the best score (DualRec: 1e-4), for more than ``patience`` validations.
    """
    if not settings.lr_plateau:
        return None
    mode: Literal["min", "max"] = "max" if settings.valid_metric_bigger else "min"
    options = {"factor": 0.5, "patience": 5, "threshold": 0.0, **settings.lr_plateau}
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, **options)
