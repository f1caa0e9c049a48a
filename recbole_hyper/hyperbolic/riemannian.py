"""Riemannian optimizers (geoopt) for models with parameters on manifolds, and their checkpoints.

geoopt is imported where it is used: that takes half a second, and it compiles its functions with torch.jit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from recbole_hyper.hyperbolic import RIEMANNIAN_LEARNERS

if TYPE_CHECKING:
    import geoopt

# endings of the names of learned curvatures: of a head, of its temperature, and of a ball that shares no curvature
CURVATURES = ("log_curvature", "log_temperature", "isp_c")


def manifold_parameters(model: nn.Module) -> dict[str, geoopt.ManifoldParameter]:
    """Return the named parameters of ``model`` that lie on a manifold."""
    return {name: p for name, p in model.named_parameters() if _on_manifold(p)}


def _on_manifold(parameter: nn.Parameter) -> bool:
    return hasattr(parameter, "manifold")


def without_curvatures(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trained parameters of ``model`` without the learned curvatures, and these curvatures."""
    parts: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            parts[name.endswith(CURVATURES)].append(p)
    return parts


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

    On a ball the gradient is divided by :math:`\lambda_x^2`, a step is a retraction, and moments move with the point.
    On Euclidean parameters these are plain Adam and SGD. RiemannianAdam has one second moment per point.

    ``learner`` is riemannian_adam with ``betas``, or riemannian_sgd with ``momentum`` in [0, 1). Unless set, the rates
    of manifold parameters and learned curvatures are ``learning_rate``. ``weight_decay`` applies only to Euclidean
    parameters: decay towards 0 is not a geodesic step, and a curvature should not shrink. Every ``stabilize`` steps
    (hyrnn: 10; None: never) manifold parameters are projected back.

    ValueError for an unknown learner, a rate out of range, or no trainable parameter.
    """
    import geoopt

    if learner not in RIEMANNIAN_LEARNERS:
        raise ValueError(f"learner={learner!r} must be {' or '.join(RIEMANNIAN_LEARNERS)}")
    rates = {
        "learning_rate": learning_rate,
        "manifold_learning_rate": learning_rate if manifold_learning_rate is None else manifold_learning_rate,
        "curvature_learning_rate": learning_rate if curvature_learning_rate is None else curvature_learning_rate,
    }
    for name, rate in rates.items():
        if not rate > 0:
            raise ValueError(f"{name}={rate} must be above 0")
    if stabilize is not None and stabilize < 1:
        raise ValueError(f"stabilize={stabilize} must be a number of steps of at least 1, or None")
    trained, curvatures = without_curvatures(model)
    curved = [p for p in trained if _on_manifold(p)]
    flat = [p for p in trained if not _on_manifold(p)]
    kinds = zip((flat, curved, curvatures), rates.values(), (weight_decay, 0.0, 0.0), strict=True)
    groups = [{"params": params, "lr": rate, "weight_decay": decay} for params, rate, decay in kinds if params]
    if not groups:
        raise ValueError(f"{type(model).__name__} has no trainable parameter")
    if learner == "riemannian_adam":
        return geoopt.optim.RiemannianAdam(groups, lr=learning_rate, betas=betas, stabilize=stabilize)
    return geoopt.optim.RiemannianSGD(groups, lr=learning_rate, momentum=momentum, stabilize=stabilize)


def training_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return a state of plain tensors and numbers, which ``torch.load(weights_only=True)`` can read."""
    plain = {name: tensor.detach().as_subclass(torch.Tensor).clone() for name, tensor in model.state_dict().items()}
    return {"model": plain, "optimizer": optimizer.state_dict()}


def restore_training_state(model: nn.Module, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load what :func:`training_state` returned, in place: manifold parameters stay manifold parameters.

    ValueError, without any change, if a stored point is not finite or not on its manifold.
    """
    points = manifold_parameters(model)
    for name, parameter in points.items():
        stored = state["model"].get(name)
        if stored is None:
            continue  # load_state_dict lists all missing entries
        good, reason = parameter.manifold.check_point_on_manifold(stored, explain=True)
        if not bool(torch.isfinite(stored).all()) or not good:
            raise ValueError(
                f"checkpoint entry {name!r} is not on {parameter.manifold}: {reason or 'it has NaN or infinity'}; "
                "resume from an earlier checkpoint"
            )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if hasattr(optimizer, "stabilize"):  # geoopt's
        for values in optimizer.state.values():
            if "step" in values:  # torch loads a float32 tensor, which would change the bias correction
                values["step"] = int(values["step"])
    with torch.no_grad():
        for parameter in points.values():
            parameter.proj_()
