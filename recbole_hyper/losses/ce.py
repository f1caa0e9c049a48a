"""Exact cross-entropy over all items in bounded memory, for every geometry.

No tensor has size rows x items: ``_stream`` works tile by tile. The forward pass computes the gradients too, and writes
the item gradient into the buffer that becomes weight.grad.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Geometry, Theta, as_compute
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.matmul import float32_products
from recbole_hyper.options import AUTO, Option
from recbole_hyper.values import PositiveInt, ShareBelow1

if TYPE_CHECKING:
    from recbole_hyper.losses._chunks import Problem

#: logits from which on Triton is faster than whole rows, and the widest vectors, by whether the head has a link
TRITON_FROM = {False: (1 << 24, 64), True: (1 << 24, 256)}


class _ExactCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, offset, theta, problem: Problem, engine, row_weights) -> Tensor:
        ctx.dtypes = [t.dtype if isinstance(t, Tensor) else None for t in (states, weight, offset, theta)]
        with float32_products(states.device), torch.no_grad():
            stream, weights = engine(problem), row_weights
            if weights is None:
                weights = stream.vectors.new_full((len(states),), 1.0 / len(states))
            # they keep the computing dtype until the loss scale is applied, so that small values do not underflow
            losses, ctx.gradients = stream.run(weights if problem.needed else None)
            return losses.mean() if row_weights is None else losses.dot(weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        from recbole_hyper.losses._chunks import kept_gradients

        gradients = kept_gradients(ctx, gradient)
        return *(None if g is None else g.to(t) for g, t in zip(gradients, ctx.dtypes, strict=True)), *(None,) * 3


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
    label_smoothing: float = 0.0,
    row_weights: Tensor | None = None,
    triton_kernel: bool | None = None,
) -> Tensor:
    """Return the exact cross-entropy over all items but ``padding_idx``, in bounded memory.

    Equals ``F.cross_entropy(geometry.logits(states, weight, offset, theta=theta), targets)`` without the padding
    column. ``label_smoothing`` e in [0, 1) is torch's too (Szegedy et al. 2016, section 7): the share e of the loss is
    the mean of -log softmax over all scored items. The forward pass computes the gradients, so a second backward
    through the same result raises RuntimeError.

    Args:
        states: (n, d). targets: (n,) int64. weight: (m, d). offset: (m,) or None. They are not checked here.
        geometry, theta: how states are scored; gradient flows to a theta that is a tensor.
        memory_budget: see :class:`CrossEntropy`.
        row_weights: (n,) without gradient; with them the result is the weighted sum of the losses.
        triton_kernel: True for Triton kernels, which keep no logits in memory, False for torch's operations; None
            chooses, see docs/gpu.md.

    Raises:
        ValueError: a smoothing out of range, a budget too small for the lifts and one row of logits, or a case that the
            Triton kernels do not support.
    """
    from recbole_hyper.losses._chunks import Problem  # a model that only ranks needs none of these
    from recbole_hyper.losses._rows import RowStream

    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing}: a number in [0, 1) is expected")
    tensors = (states, weight, offset, theta)
    needed = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in tensors)
    problem = Problem(
        *(states, targets, weight, offset, theta),
        geometry=geometry,
        padding_idx=padding_idx,
        budget=memory_budget,
        smoothing=label_smoothing,
        needed=needed,
    )
    engine = _engine_of(problem, triton_kernel)
    loss = _ExactCrossEntropy.apply(*tensors, problem, engine, row_weights)
    if not label_smoothing or engine is RowStream:
        return loss
    # the mean of -log softmax over all items is the target's -log softmax plus the target's lead over the mean logit
    with torch.autocast(states.device.type, enabled=False):
        lead = lead_of_targets(problem)
    return loss + label_smoothing * (lead.mean() if row_weights is None else lead.dot(row_weights))


def _engine_of(problem: Problem, triton_kernel: bool | None) -> Any:
    """Return the class that evaluates: Triton's kernels if requested or faster, else tiles on a CPU, or whole rows.

    Only whole rows smooth the labels of a head with a link.
    """
    from recbole_hyper.losses._rows import RowStream
    from recbole_hyper.losses._stream import ItemStream

    if problem.smoothing and problem.geometry.has_link:
        return RowStream
    if triton_kernel or (triton_kernel is None and _triton_is_faster(problem)):
        if importlib.util.find_spec("triton") is None:
            raise ValueError("triton_kernel=True: the package triton is not installed; leave it out")
        from recbole_hyper.losses._triton import TritonStream, unsupported

        if (reason := unsupported(problem)) is not None:
            raise ValueError(f"triton_kernel=True: {reason}; leave it out")
        return TritonStream
    return ItemStream if problem.states.is_cpu else RowStream


def _triton_is_faster(problem: Problem) -> bool:
    """Return whether Triton's kernels were faster on an H200: for many logits, or logits that do not fit."""
    if not _has_kernels(problem):
        return False
    from recbole_hyper.losses._rows import rows_at_once

    n, (n_items, width) = len(problem.states), problem.weight.shape
    least, widest = TRITON_FROM[problem.geometry.has_link]
    return rows_at_once(problem) < n or (n * n_items >= least and width <= widest)


def _has_kernels(problem: Problem) -> bool:
    """Return whether Triton's kernels compute this loss here, on a GPU of the architecture that they were timed on."""
    device = problem.states.device
    if device.type != "cuda" or torch.version.cuda is None or torch.cuda.get_device_capability(device)[0] != 9:
        return False
    if importlib.util.find_spec("triton") is None:
        return False
    from recbole_hyper.losses._triton import unsupported

    return unsupported(problem) is None


def lead_of_targets(problem: Problem) -> Tensor:
    """Return the lead (n,) of each target's logit over the mean logit of all items but padding, without a link.

    The mean is one product with the mean of the lifted items.
    """
    geometry, theta, targets, padding_idx = problem.geometry, problem.theta, problem.targets, problem.padding_idx
    states, weight, offset = as_compute(problem.states, problem.weight, problem.offset)
    target_offset = None if offset is None else offset.index_select(0, targets).unsqueeze(1)
    rows = torch.nn.functional.embedding(targets, weight).unsqueeze(1)
    target_logits = geometry.pair_logits(states, rows, target_offset, theta=theta)[:, 0]
    weight, offset = _without(weight, padding_idx), None if offset is None else _without(offset, padding_idx)
    lifted = geometry.lift_states(states, theta=theta, offset=offset is not None)
    terms = geometry.lift_items(weight, offset, theta=theta)
    total = weight.sum(0) if terms.multiplier is None else terms.multiplier @ weight
    total = total if terms.extra is None else torch.cat((total, terms.extra.sum(0)))
    return target_logits - lifted.vectors @ total / len(weight)


def _without(items: Tensor, padding_idx: int | None) -> Tensor:
    if padding_idx is None:
        return items
    rest = items[padding_idx + 1 :]
    return rest if padding_idx == 0 else torch.cat((items[:padding_idx], rest))


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
            from recbole_hyper.losses.sampled_softmax import sampled_softmax

            return sampled_softmax(states, targets, head, *negatives.shared(self.softmax_items), weights)
        return exact_cross_entropy(
            *(states, targets, head.weight, head.offset, head.geometry),
            theta=head.theta,
            padding_idx=head.padding_idx,
            row_weights=weights,
            **self._options,
        )
