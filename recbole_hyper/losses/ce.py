"""Exact cross-entropy over all items in bounded memory, for every geometry.

No tensor has size rows x items: ``_stream`` computes rows and items tile by tile. The forward pass computes the
gradients and writes the item gradient into the buffer that becomes weight.grad.
"""

from typing import Annotated

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Curvature, Geometry
from recbole_hyper.losses._smoothing import lead_of_targets
from recbole_hyper.losses._stream import Gradients, ItemStream
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.matmul import float32_products
from recbole_hyper.options import Option
from recbole_hyper.registry import register

REDUCTIONS = ("mean", "sum", "none")


class _ExactCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, states, weight, offset, curvature, targets, geometry, padding_idx, budget, reduction, recorded
    ) -> Tensor:
        # needs_input_grad is True also where no gradient is recorded
        needs = tuple(recorded and needed for needed in ctx.needs_input_grad[:4])
        ctx.call = (geometry, padding_idx, budget, needs)
        ctx.targets = targets
        ctx.reduction = reduction
        device = states.device
        with float32_products(device), torch.no_grad():
            stream = ItemStream(states, targets, weight, offset, curvature, *ctx.call)
            if reduction == "none":
                losses, _ = stream.run(None)
                ctx.save_for_backward(states, weight, offset, curvature if isinstance(curvature, Tensor) else None)
                ctx.constant_curvature = None if isinstance(curvature, Tensor) else curvature
                return losses
            row_weight = 1.0 / len(states) if reduction == "mean" else 1.0
            row_weights = stream.vectors.new_full((len(states),), row_weight) if any(needs) else None
            losses, gradients = stream.run(row_weights)
            # in the computing dtype until the loss scale is applied, which protects small values from underflow
            ctx.gradients = _of_tensors(gradients, states, weight, offset, curvature)
            return losses.mean() if reduction == "mean" else losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        if ctx.reduction == "none":
            states, weight, offset, curvature = ctx.saved_tensors
            curvature = ctx.constant_curvature if curvature is None else curvature
            with float32_products(states.device):
                stream = ItemStream(states, ctx.targets, weight, offset, curvature, *ctx.call)
                _, gradients = stream.run(gradient.to(stream.dtype))
            results = _of_tensors(gradients, states, weight, offset, curvature)
            return *(None if g is None else g.to(dtype) for g, dtype in results), *(None,) * 6
        if ctx.gradients is None:
            raise RuntimeError(
                "cross_entropy gives its gradients once: a second backward through the same loss needs "
                "reduction='none', which recomputes them"
            )
        gradients, ctx.gradients = ctx.gradients, None
        # in place: a copy would double the memory of the item gradient
        return *(None if g is None else g.mul_(gradient).to(dtype) for g, dtype in gradients), *(None,) * 6


def _of_tensors(
    gradients: Gradients, states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature
) -> tuple[tuple[Tensor | None, torch.dtype | None], ...]:
    """Return for each input its gradient in the computing dtype and the input's own dtype; None for no tensor."""
    pairs = (
        (gradients.states, states),
        (gradients.weight, weight),
        (gradients.offset, offset),
        (gradients.curvature, curvature),
    )
    return tuple((g, t.dtype) if isinstance(t, Tensor) else (None, None) for g, t in pairs)


def exact_cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: Geometry,
    *,
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    memory_budget: int | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the exact cross-entropy over all items but ``padding_idx``, in bounded memory.

    Equals ``F.cross_entropy(geometry.logits(states, weight, offset, curvature=curvature), targets)`` with the padding
    column left out, and with the same ``label_smoothing`` (Szegedy et al. 2016, section 7). Gradients are computed in
    the forward pass: for "mean" and "sum" a second backward through the same result raises RuntimeError; "none"
    computes them in the backward pass. Tensors are not checked here.

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None.
        geometry, curvature: how they are scored; gradient flows to a curvature that is a tensor.
        padding_idx: an item that is never scored.
        memory_budget: see :class:`CrossEntropy`.
        reduction: "mean", "sum" or "none", which returns (n,) losses.
        label_smoothing: e in [0, 1); the loss is (1 - e) of the cross-entropy and e of the mean of -log softmax over
            all scored items.

    Raises:
        ValueError: another reduction, a smoothing out of range, or a budget that is not above 0 or too small for the
            lifts and one row of logits.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} is unknown; allowed: {', '.join(REDUCTIONS)}")
    check_budget(memory_budget)
    check_smoothing(label_smoothing)
    budget = None if memory_budget is None else int(memory_budget)
    settings = (targets, geometry, padding_idx, budget, reduction, torch.is_grad_enabled())
    loss = _ExactCrossEntropy.apply(states, weight, offset, curvature, *settings)
    if not label_smoothing:
        return loss
    # the mean of -log softmax over all items is that of the target plus the target's lead over the mean logit
    with torch.autocast(states.device.type, enabled=False):
        lead = lead_of_targets(states, targets, weight, offset, geometry, curvature, padding_idx)
    return loss + label_smoothing * (lead if reduction == "none" else getattr(lead, reduction)())


def check_smoothing(label_smoothing: float) -> None:
    """Raise ValueError for a share outside [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing}: a number in [0, 1) is expected")


def check_budget(memory_budget: int | None) -> None:
    """Raise ValueError for a budget that is not above 0."""
    if memory_budget is not None and memory_budget <= 0:
        raise ValueError(f"memory_budget must be above 0 bytes, got {memory_budget}")


@register("losses", "ce")
class CrossEntropy(Loss):
    """Exact softmax cross-entropy over the catalogue in bounded memory (see ``exact_cross_entropy``).

    ``memory_budget`` is bytes for the logits in memory, the terms per item and the lifts of the states (3 numbers per
    row and coordinate, 6 with a link). The default is 256 MiB, or 1/32 of the memory if that is less, plus the lifts if
    they do not fit.
    """

    def __init__(
        self,
        *,
        memory_budget: Annotated[
            int | None,
            Option("int >= 1 or ~", "bytes of logits; ~: 256 MiB, or 1/32 of memory if less", key="loss_memory_budget"),
        ] = None,
        label_smoothing: Annotated[
            float, Option("float in [0, 1)", "share of the target that is spread evenly over all items")
        ] = 0.0,
    ) -> None:
        super().__init__()
        check_budget(memory_budget)
        check_smoothing(label_smoothing)
        self.memory_budget, self.label_smoothing = memory_budget, label_smoothing

    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean cross-entropy; ``negatives`` is not used."""
        return exact_cross_entropy(
            states,
            targets,
            head.weight,
            head.offset,
            head.geometry,
            curvature=head.curvature,
            padding_idx=head.padding_idx,
            memory_budget=self.memory_budget,
            label_smoothing=self.label_smoothing,
        )
