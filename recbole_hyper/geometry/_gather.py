"""Functions of gathered items in bounded memory: piece by piece, each piece recomputed in the backward pass.

A loss that scores chosen items would gather (rows, candidates, d) numbers and keep several copies for the backward
pass. Here a problem is cut into pieces; only one piece's gathered items exist at a time, and the item gradient is added
straight into one buffer of the item matrix's size.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Curvature, compute_dtype

#: numbers that one piece may gather or compute at once
PIECE = 1 << 18
#: logits that a piece whose states share their items may hold at once
LOGITS = 1 << 20

#: (states, weight, offset or None, curvature, *data) -> (k,) numbers
Compute = Callable[..., Tensor]


class Piece(NamedTuple):
    """A pure function of some states and items, ``compute(states[rows], weight[items], offset[items], c, *data)``.

    ``rows`` and ``items`` are indices of any shape; ``data`` are constants.
    """

    compute: Compute
    rows: Tensor
    items: Tensor
    data: tuple[object, ...] = ()


def groups_at_once(rows: int, items: int, width: int) -> int:
    """Return how many groups of rows and items that meet are computed at once: logits and items stay below LOGITS."""
    return max(1, LOGITS // max(1, items * max(rows, width)))


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, offset, curvature, pieces: Iterable[Piece]) -> Tensor:
        ctx.pieces = pieces
        ctx.constant = None if isinstance(curvature, Tensor) else curvature
        ctx.save_for_backward(states, weight, offset, curvature if isinstance(curvature, Tensor) else None)
        with torch.autocast(states.device.type, enabled=False), torch.no_grad():
            return torch.cat([_evaluate(p, states, weight, offset, curvature)[0] for p in pieces])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        states, weight, offset, curvature = ctx.saved_tensors
        given = ctx.constant if curvature is None else curvature
        totals = [
            torch.zeros_like(tensor) if needed and tensor is not None else None
            for tensor, needed in zip((states, weight, offset, curvature), ctx.needs_input_grad[:4], strict=True)
        ]
        done = 0
        for piece in ctx.pieces:
            with torch.autocast(states.device.type, enabled=False), torch.enable_grad():
                out, leaves = _evaluate(piece, states, weight, offset, given, [total is not None for total in totals])
                upstream = gradient[done : done + len(out)]
                done += len(out)
                if not out.requires_grad:
                    continue
                indices = (piece.rows, piece.items, piece.items, None)
                with_gradient = [leaf for leaf, total in zip(leaves, totals, strict=True) if total is not None]
                gradients = torch.autograd.grad(out, with_gradient, upstream, allow_unused=True)  # type: ignore[arg-type]
            wanted = [(total, i) for total, i in zip(totals, indices, strict=True) if total is not None]
            for part, (total, index) in zip(gradients, wanted, strict=True):
                if part is None:
                    continue
                if index is None:
                    total.add_(part.to(total.dtype))
                else:
                    flat = part.to(total.dtype).reshape(index.numel(), *total.shape[1:])
                    total.index_add_(0, index.reshape(-1), flat)
        return *totals, None


def _evaluate(
    piece: Piece,
    states: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    curvature: Curvature,
    needs: Sequence[bool] = (False, False, False, False),
) -> tuple[Tensor, list[Tensor | None]]:
    """Gather a piece's inputs as leaves and compute it."""
    dtype = compute_dtype(states, weight, offset)

    def leaf(tensor: Tensor, needed: bool) -> Tensor:
        return tensor.detach().to(dtype).requires_grad_(needed)

    own: list[Tensor | None] = [
        leaf(states.detach()[piece.rows], needs[0]),
        leaf(torch.nn.functional.embedding(piece.items, weight.detach()), needs[1]),
        None if offset is None else leaf(offset.detach()[piece.items], needs[2]),
        curvature.detach().clone().requires_grad_(needs[3]) if isinstance(curvature, Tensor) else None,
    ]
    return piece.compute(*own[:3], curvature if own[3] is None else own[3], *piece.data), own


def gathered(
    pieces: Iterable[Piece], states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature
) -> Tensor:
    """Return the concatenated results of the pieces, differentiable by the four tensors.

    ``pieces`` is gone through twice, once in each pass; it may make them on the way. One call makes one gradient
    buffer of the item matrix's size, so what belongs together goes into one call.
    """
    return _Gathered.apply(states, weight, offset, curvature, pieces)
