r"""The Moebius GRU recurrence over all steps: as a loop over the pure functions, and compiled.

Both work in the ball of curvature 1 (see ``_math``) and return tangent states (L, B, d). Their arguments: ``inputs``
(L, B, 3d), tangent vectors U x for r, z, candidate; ``bias`` (3, d), lifted points; ``weight`` (3d, d), recurrent
matrices; ``start`` (B, d), tangent states; ``rho``, 0-d, :math:`1/\sqrt c`, which scales the inputs of gates and phi.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_hyper.hyperbolic._math import lift_tangent, lifted_sum, max_rapidity, tangent_of_lifted

ACTIVATIONS = ("identity", "tanh")
RESETS = ("before", "after")
# with fewer states to compute (L x B x d), the loop is done before the kernel is compiled
KERNEL_FROM = 1 << 15


def recurrence(
    inputs: Tensor, bias: Tensor, weight: Tensor, start: Tensor, rho: Tensor, activation: str, reset: str
) -> Tensor:
    """Run the recurrence: compiled for many states on a CPU in float32, plain elsewhere and in an exported graph."""
    # an exported graph must not depend on the number of states
    able = not torch.compiler.is_exporting() and inputs.device.type == "cpu" and inputs.dtype == torch.float32
    run = _Compiled.apply if able and inputs.numel() >= 3 * KERNEL_FROM else plain_recurrence
    return run(inputs, bias, weight, start, rho, activation, reset)


def plain_recurrence(
    inputs: Tensor, bias: Tensor, weight: Tensor, start: Tensor, rho: Tensor, activation: str, reset: str
) -> Tensor:
    """Run the recurrence in torch operations, on any device and in any precision; an exported graph has one scan."""

    def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = _step(state, x, bias, weight, rho, activation, reset)
        return state, state.clone() if exporting else state

    moved, exporting = lift_tangent(inputs.unflatten(-1, (3, bias.shape[1]))), torch.compiler.is_exporting()
    if exporting:  # one operation for any number of steps, without gradient
        from torch._higher_order_ops import scan

        return scan(step, start, moved)[1]
    state, states = start, []
    for x in moved:
        state, _ = step(state, x)
        states.append(state)
    return torch.stack(states)


def _step(state: Tensor, x: Tensor, bias: Tensor, weight: Tensor, rho: Tensor, activation: str, reset: str) -> Tensor:
    """Return the next tangent states (B, d) of ``state`` (B, d) and the lifted input ``x`` (B, 3, d)."""
    width = bias.shape[1]
    gates, last = weight[: 2 * width].t(), weight[2 * width :].t()
    pair = lift_tangent((state @ gates).unflatten(-1, (2, width)))
    pair = lifted_sum(lifted_sum(pair, x[:, :2]), bias[:2])
    r, z = torch.sigmoid(rho * tangent_of_lifted(pair, limit=math.inf)).unbind(1)
    argument = r * (state @ last) if reset == "after" else (r * state) @ last
    candidate = lifted_sum(lifted_sum(lift_tangent(argument), x[:, 2]), bias[2])
    if activation == "tanh":
        candidate = lift_tangent(torch.tanh(rho * tangent_of_lifted(candidate, limit=math.inf)) / rho)
    point = lift_tangent(state)
    move = z * tangent_of_lifted(lifted_sum(-point, candidate), limit=math.inf)
    return tangent_of_lifted(lifted_sum(point, lift_tangent(move, limit=math.inf)))


@lru_cache(maxsize=1)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a pool does not survive a fork."""
    return ThreadPoolExecutor(workers, thread_name_prefix="moebius")


def _run(task: Callable[[int, int], Any], tiles: int) -> list[Any]:
    """Call ``task(begin, end)`` for parts of the tiles, in as many threads as torch uses."""
    threads = min(torch.get_num_threads(), tiles)
    if threads <= 1:
        return [task(0, tiles)]
    part = -(-tiles // threads)
    starts = range(0, tiles, part)
    return list(_pool(threads, os.getpid()).map(lambda begin: task(begin, min(begin + part, tiles)), starts))


class _Compiled(torch.autograd.Function):
    """The compiled recurrence with its gradient; threads share the rows."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, bias: Tensor, weight: Tensor, start: Tensor, rho: Tensor, activation: str, reset: str
    ) -> Tensor:
        from recbole_hyper.kernels import moebius  # imports numba only when needed

        length, batch, _ = inputs.shape
        width = bias.shape[1]
        tanh, after = activation == "tanh", reset == "after"
        constants = np.float32(float(rho)), np.float32(max_rapidity(torch.float32)), tanh, after
        # rows per tile: full vector registers, and buffers that fit into the cache
        tile = min(128 if width <= 16 else 32, -(-batch // 16) * 16)
        tiles = -(-batch // tile)
        states = inputs.new_empty(length, batch, width)
        saved = inputs.new_empty(tiles, length, (8 if after else 7) * width, tile)
        tensors = [tensor.detach().contiguous() for tensor in (inputs, bias, weight)]
        arrays = [tensor.numpy() for tensor in tensors]
        outputs = [tensor.numpy() for tensor in (start.detach().contiguous(), states, saved)]
        _run(lambda begin, end: moebius.forward_tiles(*arrays, constants, *outputs, begin, end), tiles)
        ctx.save_for_backward(*tensors, saved)
        ctx.constants, ctx.tiles = constants, tiles
        # for the gradient of the weight
        ctx.states, ctx.start = states.detach(), start.detach()
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from recbole_hyper.kernels import moebius

        inputs, bias, weight, saved = ctx.saved_tensors
        after = ctx.constants[3]
        length, batch, _ = inputs.shape
        width, tiles = bias.shape[1], ctx.tiles
        g_inputs, g_arguments = torch.empty_like(inputs), torch.empty_like(inputs)
        g_start = inputs.new_empty(batch, width)
        transposed = (weight if after else weight[: 2 * width]).t().contiguous(), weight[2 * width :].t().contiguous()
        before = [tensor.numpy() for tensor in (gradients[0].contiguous(), inputs, bias, *transposed)]
        after_them = [tensor.numpy() for tensor in (saved, g_inputs, g_arguments, g_start)]

        def task(begin: int, end: int) -> tuple[np.ndarray, float]:
            g_bias, g_rho = np.zeros((3, width), np.float32), np.zeros(saved.shape[3], np.float32)
            moebius.backward_tiles(*before, ctx.constants, *after_them, g_bias, g_rho, begin, end)
            return g_bias, float(g_rho.sum())

        by_bias, by_rho = zip(*_run(task, tiles), strict=True)
        g_bias, g_rho = torch.from_numpy(np.sum(by_bias, axis=0)), inputs.new_tensor(sum(by_rho) / ctx.constants[0])
        g_weight = None
        if ctx.needs_input_grad[2]:
            previous = torch.cat([ctx.start[None], ctx.states[:-1]]).view(length * batch, width)
            flat = g_arguments.view(length * batch, 3 * width)
            if after:
                g_weight = flat.t() @ previous
            else:
                slots = saved.view(tiles, length, -1, width, saved.shape[3])
                reset_gate = slots[:, :, 3].permute(1, 0, 3, 2).reshape(length, -1, width)[:, :batch]
                moved = reset_gate.reshape(length * batch, width) * previous
                g_weight = torch.cat([flat[:, : 2 * width].t() @ previous, flat[:, 2 * width :].t() @ moved])
        return g_inputs, g_bias, g_weight, g_start, g_rho, None, None
