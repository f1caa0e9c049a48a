"""Riemannian optimizers (geoopt) for models whose parameters lie partly on manifolds, with their checkpoints."""

from collections.abc import Mapping
from typing import Any

import geoopt
import torch
from geoopt.optim.mixin import OptimMixin
from torch import nn
from torch.optim import Optimizer

from recbole_hyper.settings import RIEMANNIAN_LEARNERS

# how the names of learned curvatures end: a head's (or of its temperature), and that of a ball which shares none
CURVATURES = ("log_curvature", "log_temperature", "isp_c")


def manifold_parameters(model: nn.Module) -> dict[str, geoopt.ManifoldParameter]:
    """Return the named parameters of ``model`` that lie on a manifold."""
    return {name: p for name, p in model.named_parameters() if isinstance(p, geoopt.ManifoldParameter)}


def without_curvatures(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the parameters of ``model`` that are trained: all but the learned curvatures, and these."""
    found: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            found[name.endswith(CURVATURES)].append(p)
    return found


def riemannian_optimizer(
    model: nn.Module,
    *,
    learner: str = "riemannian_adam",
    learning_rate: float = 1e-3,
    manifold_learning_rate: float | None = None,
    curvature_learning_rate: float | None = None,
    weight_decay: float = 0.0,
    stabilize: int | None = 10,
    momentum: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> Optimizer:
    r"""Build geoopt's RiemannianAdam or RiemannianSGD with groups of Euclidean, manifold and curvature parameters.

    On a ball the gradient is divided by :math:`\lambda_x^2`, the step is a retraction, moments are carried along; on
    Euclidean parameters both are the plain Adam and SGD. RiemannianAdam keeps one second moment per point.

    ``learner`` is riemannian_adam, with ``betas``, or riemannian_sgd, with ``momentum`` in [0, 1). ``learning_rate`` is
    that of Euclidean parameters; that of manifold parameters and of a learned curvature is the same where it is None.
    ``weight_decay`` is of Euclidean parameters only (decay towards 0 is no geodesic step, and no aim of a curvature).
    Every ``stabilize`` steps (hyrnn: 10; None: never) manifold parameters are projected back. ValueError for an unknown
    learner, a rate out of range, or no trainable parameter.
    """
    if learner not in RIEMANNIAN_LEARNERS:
        raise ValueError(f"learner={learner!r}: allowed are {', '.join(RIEMANNIAN_LEARNERS)}")
    given = {"manifold_learning_rate": manifold_learning_rate, "curvature_learning_rate": curvature_learning_rate}
    own = {name: learning_rate if rate is None else rate for name, rate in given.items()}
    rates = {"learning_rate": learning_rate, **own}
    for name, rate in rates.items():
        if not rate > 0:
            raise ValueError(f"{name}={rate}: a number above 0 is needed")
    if stabilize is not None and stabilize < 1:
        raise ValueError(f"stabilize={stabilize}: a number of steps of at least 1, or None, is needed")
    trained, curvatures = without_curvatures(model)
    curved = [p for p in trained if isinstance(p, geoopt.ManifoldParameter)]
    flat = [p for p in trained if not isinstance(p, geoopt.ManifoldParameter)]
    kinds = zip((flat, curved, curvatures), rates.values(), (weight_decay, 0.0, 0.0), strict=True)
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate, "weight_decay": decay} for parameters, rate, decay in kinds if parameters
    ]
    if not groups:
        raise ValueError(f"{type(model).__name__} has no trainable parameter")
    if learner == "riemannian_adam":
        return geoopt.optim.RiemannianAdam(groups, lr=learning_rate, betas=betas, stabilize=stabilize)
    return geoopt.optim.RiemannianSGD(groups, lr=learning_rate, momentum=momentum, stabilize=stabilize)


def training_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return a state of plain tensors and numbers, loadable with ``torch.load(weights_only=True)``."""
    plain = {name: tensor.detach().as_subclass(torch.Tensor).clone() for name, tensor in model.state_dict().items()}
    return {"model": plain, "optimizer": optimizer.state_dict()}


def restore_training_state(model: nn.Module, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load what :func:`training_state` returned, in place: manifold parameters stay manifold parameters.

    ValueError where a stored point is not finite or lies off its manifold; nothing has been changed then.
    """
    points = manifold_parameters(model)
    for name, parameter in points.items():
        stored = state["model"].get(name)
        if stored is None:
            continue  # load_state_dict names all missing entries at once
        good, reason = parameter.manifold.check_point_on_manifold(stored, explain=True)
        if not bool(torch.isfinite(stored).all()) or not good:
            raise ValueError(
                f"checkpoint entry {name!r} is not on {parameter.manifold}: {reason or 'it holds NaN or infinity'}; "
                "resume from an earlier checkpoint"
            )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if isinstance(optimizer, OptimMixin):
        for values in optimizer.state.values():
            if "step" in values:  # torch's loader makes it a float32 tensor, which would blur the bias correction
                values["step"] = int(values["step"])
    with torch.no_grad():
        for parameter in points.values():
            parameter.proj_()
