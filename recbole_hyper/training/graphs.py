"""Training steps of equal shapes as CUDA graphs: recorded once, replayed with one launch.

A graph contains the whole step: the batch from its numbers, loss, gradients, clipping, optimizer and average. What the
host decides before a step, the rates and the share of the average, are tensors that it fills. The generator of the
device is part of a graph, so that a replay draws on.

The tests record and replay the operators of a device that they emulate; docs/gpu.md has the times on an H200.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recbole_hyper.batches.device_windows import PackedBatch, Shape

logger = logging.getLogger("recbole_hyper")

# steps of a shape that run as usual before it is recorded: they make what is made once
WARM_STEPS = 3
# shapes that are recorded; each keeps the memory of a step
MOST_GRAPHS = 16

#: runs a function and returns how to run it again, and what it returned: the same tensors after every run
Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
#: takes a step on a batch and returns its losses by name
Step = Callable[[Any], dict[str, Tensor]]


@dataclass
class _Shape:
    """What is known of the steps of one shape."""

    steps: int = 0
    numbers: Tensor | None = None  # of the batch, where the graph reads them
    names: list[str] = field(default_factory=list)
    losses: Tensor | None = None
    replay: Callable[[], None] | None = None


class StepGraphs:
    """Takes the steps of a training on ``device``, those of frequent shapes by replaying their graphs."""

    def __init__(self, device: torch.device, capture: Capture | None = None) -> None:
        self.device = device
        self._capture = capture or _CudaCapture()
        self._shapes: dict[Shape, _Shape] = {}
        self._records = True  # until a step cannot be recorded
        self.replays = 0

    def run(self, batch: PackedBatch, step: Step) -> dict[str, Tensor]:
        """Take a step on ``batch`` and return its losses by name."""
        known = self._shapes.setdefault(batch.shape, _Shape())
        known.steps += 1
        if known.replay is None:
            recorded = sum(one.replay is not None for one in self._shapes.values())
            if not self._records or known.steps <= WARM_STEPS or recorded >= MOST_GRAPHS:
                return step(batch.to(self.device))
            try:
                self._record(known, batch, step)
            except RuntimeError as error:  # recording computes nothing, so the step is still to be taken
                self._records = False
                logger.warning("cuda_graphs: a step cannot be recorded, so the next run as usual: %s", error)
                logger.debug("the step that cannot be recorded", exc_info=True)
                return step(batch.to(self.device))
        else:
            assert known.numbers is not None
            known.numbers.copy_(batch.numbers.pin_memory(), non_blocking=True)
            known.replay()
            self.replays += 1
        assert known.losses is not None
        # the next replay writes into the same tensor
        return dict(zip(known.names, known.losses.clone().unbind(), strict=True))

    def _record(self, known: _Shape, batch: PackedBatch, step: Step) -> None:
        known.numbers = numbers = batch.numbers.to(self.device)

        def taken() -> Tensor:
            losses = step(batch.windows.batch(numbers, batch.shape))
            known.names = list(losses)
            return torch.stack([loss.double() for loss in losses.values()])

        known.replay, known.losses = self._capture(taken)


class _CudaCapture:
    """Records a function as a CUDA graph; all graphs share their memory, because only one runs at a time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        torch.cuda.synchronize()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = function()
        graph.replay()  # recording computes nothing
        return graph.replay, result


def why_no_graphs(loop: Any, batches: Any) -> str | None:
    """Return why the steps of a training cannot be CUDA graphs, None if they can."""
    from recbole_hyper.models.base import HyperRecommender
    from recbole_hyper.models.part_checks import is_ours

    model = loop.model
    if loop.device.type != "cuda":
        return "there is no CUDA device"
    if not isinstance(model, HyperRecommender) or not all(
        is_ours(type(part)) for part in (model, model.encoder, model.head.geometry, model.loss)
    ):
        return "a part of the model is not of this package"
    if not model.loss.weighs_rows:
        return f"{type(model.loss).__name__} plans on the host"
    if getattr(batches, "on_device", None) is None:
        return "the data are not on the device"
    if not model.encoder.fixed_shapes:
        return f"{type(model.encoder).__name__} chooses positions by their values"
    if not all(isinstance(group["lr"], Tensor) for group in loop.optimizer.param_groups):
        return f"learner {type(loop.optimizer).__name__} reads values on the host"
    return "float16 losses are scaled on the host" if loop.scales else None
