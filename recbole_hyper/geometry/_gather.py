"""Functions of gathered items in bounded memory: piece by piece, each piece recomputed in the backward pass.

A loss that scores chosen items would gather (rows, candidates, d) numbers and keep several copies for the backward
pass. Here the work is cut into pieces. Only one piece's gathered items exist at a time, and item gradients are added to
one buffer of the item matrix's size.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.devices import CPU, default_budget
from recbole_hyper.geometry.base import Theta, as_compute, compute_dtype

#: numbers that one piece may gather or compute at once
PIECE = 1 << 18
#: logits that a piece whose states share their items may hold at once
LOGITS = 1 << 20

#: (states, weight, offset or None, theta, *data) -> (k,) numbers
Compute = Callable[..., Tensor]


class Piece(NamedTuple):
    """A pure function of some states and items, ``compute(states[rows], weight[items], offset[items], theta, *data)``.

    ``rows`` and ``items`` are indices of any shape; ``data`` are constants.
    """

    compute: Compute
    rows: Tensor
    items: Tensor
    data: tuple[object, ...] = ()
    every_row: bool = False  # ``rows`` are all rows in order
    every_item: bool = False  # ``items`` are all items in order


def numbers_at_once(device: torch.device, on_cpu: int) -> int:
    """Return how many numbers a piece may hold: ``on_cpu`` there, on a device what its budget allows."""
    # 4 bytes, and eight arrays of a piece's size with those of the backward pass
    return on_cpu if device.type == "cpu" else default_budget(device) // 32


def groups_at_once(rows: int, items: int, width: int, device: torch.device = CPU) -> int:
    """Return how many groups of ``rows`` that share ``items`` keep their logits and item vectors in bounds."""
    return max(1, numbers_at_once(device, LOGITS) // max(1, items * max(rows, width)))


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, offset, theta, pieces: Iterable[Piece]) -> Tensor:
        ctx.pieces = pieces
        ctx.constant = None if isinstance(theta, Tensor) else theta
        ctx.save_for_backward(states, weight, offset, theta if isinstance(theta, Tensor) else None)
        with torch.autocast(states.device.type, enabled=False), torch.no_grad():
            return torch.cat([_evaluate(p, states, weight, offset, theta)[0] for p in pieces])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        states, weight, offset, theta = ctx.saved_tensors
        totals = [
            torch.zeros_like(tensor) if needed and tensor is not None else None
            for tensor, needed in zip((states, weight, offset, theta), ctx.needs_input_grad[:4], strict=True)
        ]
        theta = ctx.constant if theta is None else theta
        done = 0
        for piece in ctx.pieces:
            with torch.autocast(states.device.type, enabled=False), torch.enable_grad():
                out, leaves = _evaluate(piece, states, weight, offset, theta, [total is not None for total in totals])
                upstream = gradient[done : done + len(out)]
                done += len(out)
                if not out.requires_grad:
                    continue
                indices = (piece.rows, piece.items, piece.items, None)
                triples = zip(leaves, totals, indices, strict=True)
                wanted = [
                    (leaf, total, index) for leaf, total, index in triples if leaf is not None and total is not None
                ]
                gradients = torch.autograd.grad(out, [leaf for leaf, _, _ in wanted], upstream, allow_unused=True)
            for part, (_, total, index) in zip(gradients, wanted, strict=True):
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
    theta: Theta,
    needs: Sequence[bool] = (False, False, False, False),
) -> tuple[Tensor, list[Tensor | None]]:
    """Gather a piece's inputs as leaves and compute it."""
    dtype = compute_dtype(states, weight, offset)

    def leaf(tensor: Tensor, needed: bool) -> Tensor:
        return tensor.detach().to(dtype).requires_grad_(needed)

    leaves: list[Tensor | None] = [
        leaf(states.detach()[piece.rows], needs[0]),
        leaf(torch.nn.functional.embedding(piece.items, weight.detach()), needs[1]),
        None if offset is None else leaf(offset.detach()[piece.items], needs[2]),
        theta.detach().clone().requires_grad_(needs[3]) if isinstance(theta, Tensor) else None,
    ]
    return piece.compute(*leaves[:3], theta if leaves[3] is None else leaves[3], *piece.data), leaves


def _direct(piece: Piece, states: Tensor, weight: Tensor, offset: Tensor | None, theta: Theta) -> Tensor:
    """Compute a piece by operations whose backward passes are fast for repeated indices."""
    rows = states if piece.every_row else F.embedding(piece.rows, states)
    items, offsets = weight, offset
    if not piece.every_item:
        items = F.embedding(piece.items, weight)
        if offset is not None:
            offsets = offset.index_select(0, piece.items.reshape(-1)).view(piece.items.shape)
    return piece.compute(rows, items, offsets, theta, *piece.data)


def gathered(pieces: Iterable[Piece], states: Tensor, weight: Tensor, offset: Tensor | None, theta: Theta) -> Tensor:
    """Return the concatenated results of the pieces, differentiable by the four tensors.

    ``pieces`` is iterated twice, once in each pass, and may create them on the way. Each call allocates a gradient
    buffer of the item matrix's size, so put what belongs together into one call. On a device, a piece or two keep what
    their backward pass needs: computing them again would cost more launches than memory.
    """
    if states.device.type != "cpu" and isinstance(pieces, list) and len(pieces) <= 2:
        with torch.autocast(states.device.type, enabled=False):
            return torch.cat([_direct(piece, *as_compute(states, weight, offset), theta) for piece in pieces])
    return _Gathered.apply(states, weight, offset, theta, pieces)
