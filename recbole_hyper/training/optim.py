"""The optimizer of a run and its rates: RecBole's names, parameter groups, betas, and torch's fused kernels."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from recbole_hyper.config import ConfigError
from recbole_hyper.config.checks import schedule_keys
from recbole_hyper.hyperbolic.riemannian import riemannian_optimizer, without_curvatures
from recbole_hyper.settings import LEARNERS, RIEMANNIAN_LEARNERS
from recbole_hyper.training.rowwise import RowwiseAdam

FUSED = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
PLAIN = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop}
# what is left of the rate when the share p of the falling part is done
SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,  # SGDR (Loshchilov and Hutter, 2017), equation 5, one period
    "linear": lambda p: 1 - p,
}


class RateSchedule:
    """A rate that depends on nothing but the share of training that is done, so that a resume needs no state.

    It rises linearly from 0 over ``warmup_ratio`` of all steps, then falls to 0 at the last of ``epochs``.

    Step s of n has the rate at the middle of its time, (s + 1/2) / n, so that neither the first nor the last is lost.
    The rates that the groups of ``optimizer`` have now are the highest; ``shape`` is one of SHAPES, or None, which
    keeps the rate once it is reached. ``warmup_ratio`` is in [0, 1).
    """

    def __init__(self, optimizer: torch.optim.Optimizer, shape: str | None, warmup_ratio: float, epochs: int) -> None:
        self.optimizer, self.shape, self.warmup_ratio, self.epochs = optimizer, shape, warmup_ratio, epochs
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def factor(self, done: float) -> float:
        """Return the share of the highest rate when the share ``done``, in [0, 1], of training is over."""
        if done < self.warmup_ratio:
            return done / self.warmup_ratio
        if self.shape is None:
            return 1.0
        return SHAPES[self.shape]((done - self.warmup_ratio) / (1 - self.warmup_ratio))

    def set_rates(self, epoch: int, step: int, n_steps: int) -> None:
        """Set the rates of ``step``, from 0, of the ``n_steps`` of ``epoch``, from 0."""
        factor = self.factor(min(1.0, (epoch + (step + 0.5) / n_steps) / self.epochs))
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor


def build_optimizer(model: nn.Module, config: Any) -> torch.optim.Optimizer:
    """Build ``learner`` over the parameters of ``model``; ConfigError for an unknown one.

    ``curvature_learning_rate``, where set, is the rate of every learned curvature, of the head or an encoder, which get
    no weight decay.
    """
    learner = config["learner"].lower()
    if learner in RIEMANNIAN_LEARNERS:
        return riemannian_optimizer(
            model,
            learner=learner,
            learning_rate=config["learning_rate"],
            manifold_learning_rate=config["manifold_learning_rate"],
            curvature_learning_rate=config["curvature_learning_rate"],
            weight_decay=config["weight_decay"] or 0.0,
            stabilize=config["stabilize"],
        )
    rate, decay = config["learning_rate"], config["weight_decay"] or 0.0
    others, curved = without_curvatures(model)
    groups: list[dict[str, Any]] = [{"params": others, "weight_decay": decay}]
    if curved:
        groups.append({"params": curved, "weight_decay": 0.0, "lr": config["curvature_learning_rate"] or rate})
    if learner in FUSED:
        betas = tuple(config["adam_betas"] or (0.9, 0.999))
        if config["rowwise_update"]:
            # those that hold one row for each item
            tables = [one for one in model.parameters() if one.dim() and len(one) == model.n_items]
            return RowwiseAdam(groups, tables, lr=rate, betas=betas)
        return FUSED[learner](groups, lr=rate, betas=betas, fused=True)
    if learner in PLAIN:
        return PLAIN[learner](groups, lr=rate)
    raise ConfigError(f"learner={config['learner']!r} is unknown; allowed: {', '.join(LEARNERS)}")


def build_scheduler(optimizer: torch.optim.Optimizer, config: Any) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
    """Return the scheduler of ``lr_plateau: {factor: 0.5, patience: 5, threshold: 0}``, None where the key is not set.

    The learning rate is multiplied by ``factor`` once the validation score has not risen for more than ``patience``
    validations. What rises by no more than ``threshold``, a share of the best score, has not risen (DualRec: 1e-4).
    """
    settings = config["lr_plateau"]
    if not settings:
        return None
    mode: Literal["min", "max"] = "max" if config["valid_metric_bigger"] else "min"
    named = {"factor": 0.5, "patience": 5, "threshold": 0.0, **settings}
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, **named)


def build_schedule(optimizer: torch.optim.Optimizer, config: Any) -> RateSchedule | None:
    """Return the schedule of ``lr_schedule`` and ``warmup_ratio``, None where neither is set.

    It is over the ``epochs`` of the configuration also for a refit of fewer, which repeats the rates of the run that
    chose them.
    """
    if not schedule_keys(config):
        return None
    return RateSchedule(optimizer, config["lr_schedule"], config["warmup_ratio"] or 0.0, config["epochs"])
