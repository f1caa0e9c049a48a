"""Exact cross-entropy over all items in bounded memory, for every geometry.

No tensor has size rows x items: ``_stream`` works tile by tile. The forward pass computes the gradients too, and writes
the item gradient into the buffer that becomes weight.grad.
"""

import importlib.util
from typing import Annotated, Any

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Geometry, Theta, compute_dtype
from recbole_hyper.geometry.euclidean import Flat
from recbole_hyper.losses._chunks import LEAST_KEPT_ROWS, default_budget
from recbole_hyper.losses._rows import RowStream, rows_at_once
from recbole_hyper.losses._smoothing import lead_of_targets
from recbole_hyper.losses._stream import ItemStream
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.losses.sampled_softmax import sampled_softmax
from recbole_hyper.matmul import float32_products
from recbole_hyper.options import AUTO, Option
from recbole_hyper.values import PositiveInt, ShareBelow1

# logits from which on Triton is faster than operations on whole rows, and up to which width without a link
LOGITS_FOR_TRITON, NARROW = 1 << 24, 64
REDUCTIONS = ("mean", "sum", "none")


class _ExactCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, states, weight, offset, theta, targets, row_weights, geometry, padding_idx, budget, reduction, how
    ) -> Tensor:
        # needs_input_grad is True even if no gradient is recorded
        recorded, stream_of, ctx.smoothing = how
        needs = tuple(recorded and needed for needed in ctx.needs_input_grad[:4])
        ctx.call, ctx.targets, ctx.stream_of = (geometry, padding_idx, budget, needs), targets, stream_of
        ctx.reduction, ctx.gradients = reduction, None
        ctx.dtypes = [t.dtype if isinstance(t, Tensor) else None for t in (states, weight, offset, theta)]
        with float32_products(states.device), torch.no_grad():
            stream = stream_of(states, targets, weight, offset, theta, *ctx.call)
            stream.smoothing = ctx.smoothing
            if reduction == "none":
                losses, _ = stream.run(None)
                ctx.save_for_backward(states, weight, offset, theta if isinstance(theta, Tensor) else None)
                ctx.constant_theta = theta
                return losses
            given = row_weights is not None
            if not given and any(needs):
                row_weight = 1.0 / len(states) if reduction == "mean" else 1.0
                row_weights = stream.vectors.new_full((len(states),), row_weight)
            # they keep the computing dtype until the loss scale is applied, so that small values do not underflow
            losses, ctx.gradients = stream.run(row_weights)
            if given:
                return losses.dot(row_weights)
            return losses.mean() if reduction == "mean" else losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        gradients, ctx.gradients = ctx.gradients, None
        if ctx.reduction == "none":
            states, weight, offset, theta = ctx.saved_tensors
            theta = ctx.constant_theta if theta is None else theta
            with float32_products(states.device):
                stream = ctx.stream_of(states, ctx.targets, weight, offset, theta, *ctx.call)
                stream.smoothing = ctx.smoothing
                _, gradients = stream.run(gradient.to(stream.dtype))
        elif gradients is None:
            raise RuntimeError(
                "cross_entropy keeps its gradients for one backward only: for a second backward through the same loss "
                "use reduction='none', which recomputes them"
            )
        else:  # in place: a copy would double the memory of the item gradient
            torch._foreach_mul_([g for g in gradients if g is not None], gradient)
        return *(None if g is None else g.to(t) for g, t in zip(gradients, ctx.dtypes, strict=True)), *(None,) * 7


def exact_cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: Geometry,
    *,
    theta: Theta = 1.0,
    padding_idx: int | None = None,
    memory_budget: int | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    row_weights: Tensor | None = None,
    triton_kernel: bool | None = None,
) -> Tensor:
    """Return the exact cross-entropy over all items but ``padding_idx``, in bounded memory.

    Equals ``F.cross_entropy(geometry.logits(states, weight, offset, theta=theta), targets)`` without the padding
    column. ``label_smoothing`` e in [0, 1) is torch's too (Szegedy et al. 2016, section 7): the share e of the loss is
    the mean of -log softmax over all scored items. "mean" and "sum" compute the gradients in the forward pass, so a
    second backward through the same result raises RuntimeError; "none" computes them in the backward pass.

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None. They are not checked here.
        geometry, theta: how states are scored; gradient flows to a theta that is a tensor.
        memory_budget: see :class:`CrossEntropy`.
        reduction: "mean", "sum" or "none", which returns (n,) losses.
        row_weights: (n,) without gradient; with them the result is the weighted sum of the losses, and ``reduction``
            must be "sum".
        triton_kernel: True for Triton kernels, which keep no logits in memory, False for torch's operations; None
            chooses, see docs/gpu.md.

    Raises:
        ValueError: an unknown reduction, a smoothing out of range, a budget that is not above 0 or too small for the
            lifts and one row of logits, or a case that the Triton kernels do not support.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} is unknown; allowed: {', '.join(REDUCTIONS)}")
    check_options(memory_budget, label_smoothing)
    budget = None if memory_budget is None else int(memory_budget)
    if row_weights is not None and reduction != "sum":
        raise ValueError(f"row_weights need reduction='sum', got {reduction!r}")
    stream_of = _stream_of(states, weight, offset, geometry, padding_idx, budget, triton_kernel)
    smooths = stream_of.smooths(geometry)
    settings = (targets, row_weights, geometry, padding_idx, budget, reduction)
    how = (torch.is_grad_enabled(), stream_of, label_smoothing if smooths else 0.0)
    loss = _ExactCrossEntropy.apply(states, weight, offset, theta, *settings, how)
    if not label_smoothing or smooths:
        return loss
    # the mean of -log softmax over all items is the target's -log softmax plus the target's lead over the mean logit
    with torch.autocast(states.device.type, enabled=False):
        lead = lead_of_targets(states, targets, weight, offset, geometry, theta, padding_idx)
    if row_weights is not None:
        return loss + label_smoothing * lead.dot(row_weights)
    return loss + label_smoothing * (lead if reduction == "none" else getattr(lead, reduction)())


def _stream_of(
    states: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: Geometry,
    padding_idx: int | None,
    budget: int | None,
    triton_kernel: bool | None,
) -> Any:
    """Return the class that evaluates: tiles on a CPU; on a device Triton's kernels, whole rows, or tiles.

    Without a choice Triton computes what it computed faster on an H200: 16 million logits or more, with a link or of at
    most 64 numbers, and logits that do not fit into the budget.
    """
    if triton_kernel:
        if importlib.util.find_spec("triton") is None:
            raise ValueError("triton_kernel=True: the package triton is not installed; leave it out")
        from recbole_hyper.losses._triton import TritonStream

        return TritonStream
    if states.device.type == "cpu" or padding_idx not in (None, 0):
        return ItemStream
    sizes = (len(states), len(weight), states.shape[1] + (offset is not None), 4)
    whole = default_budget(states.device) if budget is None else budget
    rows = rows_at_once(*sizes, whole, link=geometry.has_link)
    few = rows < min(len(states), LEAST_KEPT_ROWS)
    many = len(states) * len(weight) >= LOGITS_FOR_TRITON and (geometry.has_link or states.shape[1] <= NARROW)
    many = many or rows < len(states)
    if triton_kernel is None and many and _has_kernels(states, weight, offset, geometry):
        from recbole_hyper.losses._triton import TritonStream

        return TritonStream
    if few:
        return ItemStream
    if triton_kernel is None and geometry.asinh_link and _has_kernels(states, weight, offset, geometry):
        # only for models whose head it is, as opening a run imports no other geometry
        from recbole_hyper.geometry.poincare import Poincare
        from recbole_hyper.losses._triton_rows import PoincareRows

        if type(geometry) is Poincare:
            return PoincareRows
    return RowStream


def _has_kernels(states: Tensor, weight: Tensor, offset: Tensor | None, geometry: Geometry) -> bool:
    """Return whether Triton's kernels compute this loss here."""
    nvidia = states.device.type == "cuda" and torch.version.cuda is not None
    known = isinstance(geometry, Flat) or geometry.asinh_link
    if not nvidia or not known or importlib.util.find_spec("triton") is None:
        return False
    from recbole_hyper.losses._triton import unsupported

    return unsupported(states.device, compute_dtype(states, weight, offset), weight.shape[1], geometry) is None


def check_options(memory_budget: int | None, label_smoothing: float) -> None:
    """Raise ValueError for a budget that is not above 0, or a smoothing outside [0, 1)."""
    if memory_budget is not None and memory_budget <= 0:
        raise ValueError(f"memory_budget must be above 0 bytes, got {memory_budget}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing}: a number in [0, 1) is expected")


class CrossEntropy(Loss):
    """Exact softmax cross-entropy over the catalogue in bounded memory (see ``exact_cross_entropy``).

    ``memory_budget`` bounds the bytes of the logits in memory, of the terms per item and of the lifts of the states (3
    numbers per row and coordinate, 6 with a link). The default is 256 MiB, or 1/32 of the memory if that is less, plus
    the lifts if they do not fit.

    With ``softmax_items`` the softmax of each step is over so many items, half of them drawn by popularity (see
    ``sampled_softmax``), without ``label_smoothing``.
    """

    def __init__(
        self,
        *,
        memory_budget: Annotated[
            PositiveInt | None,
            Option("bytes of logits; ~: 256 MiB, or 1/32 of memory if less", key="loss_memory_budget"),
        ] = None,
        label_smoothing: Annotated[
            ShareBelow1, Option("share of the target that is spread evenly over all items")
        ] = 0.0,
        triton_kernel: Annotated[
            bool | None, Option("Triton kernels on a GPU, without logits; ~: where they are faster")
        ] = None,
        softmax_items: Annotated[
            PositiveInt | None,
            Option(
                "items in the softmax of a step, a sample; ~: all; auto: all where they take at most an hour",
                auto=True,
            ),
        ] = None,
    ) -> None:
        super().__init__()
        check_options(memory_budget, label_smoothing)
        # a model that is built without run(), which replaces auto, takes all items
        self.softmax_items = None if softmax_items == AUTO else softmax_items
        self.uses_negatives = self.softmax_items is not None
        self._options: dict[str, Any] = {
            "memory_budget": memory_budget,
            "label_smoothing": label_smoothing,
            "triton_kernel": triton_kernel,
        }

    def forward(
        self,
        states: Tensor,
        targets: Tensor,
        head: Head,
        negatives: Negatives | None = None,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean cross-entropy, or the sum with the ``weights`` (n,); ``negatives`` draw ``softmax_items``."""
        if self.softmax_items is not None and negatives is not None:
            return sampled_softmax(states, targets, head, *negatives.shared(self.softmax_items), weights)
        scoring = (head.weight, head.offset, head.geometry)
        options = {"theta": head.theta, "padding_idx": head.padding_idx, **self._options}
        if weights is not None:
            options |= {"row_weights": weights, "reduction": "sum"}
        return exact_cross_entropy(states, targets, *scoring, **options)
