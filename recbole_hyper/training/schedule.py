"""Learning rates that depend on nothing but the share of training that is done, so that a resume needs no state."""

import math
from collections.abc import Callable

import torch

# what is left of the rate when the share p of the falling part is done
SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,  # SGDR (Loshchilov and Hutter, 2017), equation 5, one period
    "linear": lambda p: 1 - p,
}


class RateSchedule:
    """A rate that rises linearly from 0 over ``warmup_ratio`` of all steps, then falls to 0 at the last of ``epochs``.

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
