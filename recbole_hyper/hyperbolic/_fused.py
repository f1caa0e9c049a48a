"""The compiled recurrence as a differentiable function; rows are divided among torch's number of threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recbole_hyper.hyperbolic import _kernels
from recbole_hyper.hyperbolic._math import max_rapidity


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="moebius")


def tile_width(width: int) -> int:
    """Return the number of rows that are run together: a few vector registers, and all buffers within the cache."""
    return 128 if width <= 16 else 32


def _run(task: Callable[[int, int], Any], batch: int, tile: int) -> list[Any]:
    """Call ``task(begin, end)`` for parts of the rows, at once in as many threads as torch uses."""
    threads = min(torch.get_num_threads(), -(-batch // tile))
    if threads <= 1:
        return [task(0, batch)]
    part = -(-batch // (threads * tile)) * tile
    return list(_pool(threads).map(lambda begin: task(begin, min(begin + part, batch)), range(0, batch, part)))


class FusedRecurrence(torch.autograd.Function):
    """Same inputs and output as MoebiusRecurrence, float32 on CPU, without a gradient for ``scale``."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        bias: Tensor,
        weight: Tensor,
        start: Tensor,
        scale: Tensor,
        activation: str,
        reset: str,
    ) -> Tensor:
        length, _, width, batch = inputs.shape
        tanh, after, rho = activation == "tanh", reset == "after", np.float32(float(scale))
        limit, tile = np.float32(max_rapidity(torch.float32)), tile_width(width)
        states = inputs.new_empty(length + 1, width, batch)
        states[0] = start
        arguments = inputs.new_empty(length, 3, width, batch)
        projected = inputs.new_empty(length if after else 0, width, batch)
        gates, candidates = inputs.new_empty(length, 2, width, batch), inputs.new_empty(length, width, batch)
        given = [tensor.detach().contiguous() for tensor in (inputs, bias, weight)]
        arrays = [tensor.numpy() for tensor in (*given, states, arguments, projected, gates, candidates)]

        def task(begin: int, end: int) -> None:
            _kernels.forward_tiles(*arrays[:3], rho, limit, tanh, after, *arrays[3:], begin, end, tile)

        _run(task, batch, tile)
        ctx.save_for_backward(*given, states, arguments, projected, gates, candidates)
        ctx.options = rho, limit, tanh, after, tile
        return states[1:]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, bias, weight, *saved = ctx.saved_tensors
        states, arguments, projected, gates, candidates = saved
        rho, limit, tanh, after, tile = ctx.options
        length, _, width, batch = inputs.shape
        g_inputs, g_arguments = torch.empty_like(inputs), torch.empty_like(arguments)
        g_start = torch.empty_like(states[0])
        transposed = (weight if after else weight[: 2 * width]).t().contiguous(), weight[2 * width :].t().contiguous()
        before = [tensor.numpy() for tensor in (gradients[0].contiguous(), inputs, bias, *transposed)]
        values = [tensor.numpy() for tensor in (states, arguments, projected, gates, candidates)]
        results = [tensor.numpy() for tensor in (g_inputs, g_arguments, g_start)]

        def task(begin: int, end: int) -> np.ndarray:
            g_bias = np.zeros((3, width), np.float32)
            _kernels.backward_tiles(*before, rho, limit, tanh, after, *values, *results, g_bias, begin, end, tile)
            return g_bias

        g_bias = torch.from_numpy(np.sum(_run(task, batch, tile), axis=0))
        g_weight = None
        if ctx.needs_input_grad[2]:
            flat, right = g_arguments.view(length, 3 * width, batch), states[:-1].transpose(1, 2)
            if after:
                g_weight = torch.bmm(flat, right).sum(0)
            else:
                reset_states = (gates[:, 0] * states[:-1]).transpose(1, 2)
                g_weight = torch.cat(
                    [
                        torch.bmm(flat[:, : 2 * width], right).sum(0),
                        torch.bmm(flat[:, 2 * width :], reset_states).sum(0),
                    ]
                )
        return g_inputs, g_bias, g_weight, g_start, None, None, None
