"""Optimizers and learning-rate schedules: RecBole's names, parameter groups, betas, and torch's fused kernels."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
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


class RowwiseAdam(torch.optim.Adam):
    """Fused Adam with row-wise updates of ``tables``, parameters with one row per item.

    A row without gradient keeps its values and moments, as in ``torch.optim.SparseAdam``; the other rows are updated as
    in Adam. So the time of a step grows with the rows in use, except for reading the gradient once. The tables have no
    weight decay, which would change every row.
    """

    def __init__(self, groups: Iterable[Any], tables: Iterable[nn.Parameter], **options: Any) -> None:
        super().__init__(groups, fused=True, **options)
        self._tables = {id(table) for table in tables}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; return the result of ``closure``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pairs = [(group, parameter) for group in self.param_groups for parameter in group["params"]]
        tables = [(*pair, pair[1].grad) for pair in pairs if id(pair[1]) in self._tables and pair[1].grad is not None]
        for _, table, _ in tables:
            table.grad = None
        super().step()
        for group, table, gradient in tables:
            self._update(table, gradient, group)
            table.grad = gradient
        return loss

    def _update(self, table: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=table.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        state["step"] += 1
        # ten times faster than any(); a gradient whose square underflows to 0 would not change the row
        rows = torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1).nonzero()[:, 0]
        own = gradient.index_select(0, rows)
        (beta1, beta2), steps = group["betas"], float(state["step"])
        first = state["exp_avg"].index_select(0, rows).lerp_(own, 1 - beta1)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(own, own, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        root = second.div_(1 - beta2**steps).sqrt_().add_(group["eps"])
        size = float(group["lr"] / (1 - beta1**steps))
        table.index_copy_(0, rows, table.index_select(0, rows).addcdiv_(first, root, value=-size))


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
        if settings.rowwise_update:
            # parameters with one row per item
            tables = [one for one in model.parameters() if one.dim() and len(one) == model.n_items]
            return RowwiseAdam(groups, tables, lr=rate, betas=betas)
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
