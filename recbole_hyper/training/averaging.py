"""The exponential moving average of the weights: training uses the raw weights, everything else the average."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    r"""Average of the learned weights, :math:`a_{t+1} = d_t a_t + (1 - d_t) w_{t+1}` after every step.

    :math:`d_t = \min(decay, (1 + t) / (10 + t))`, with ``decay`` in (0, 1) and t ``steps``: the initial weights,
    a_0 = w_0, have a share of less than 1e-6 after 15 steps. (The warm-up is that of TensorFlow's
    ExponentialMovingAverage; averaging: Polyak and Juditsky, 1992.)

    It averages the parameters with gradient as they are stored (for a learned curvature, its parameter), and the
    floating buffers of the state dict. Every step averages all rows of a table, also those it did not change. Points of
    a manifold are averaged as vectors: those of a ball stay inside.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        names = model.state_dict()
        buffers = {name: buffer for name, buffer in model.named_buffers() if name in names}
        learned = {name: tensor for name, tensor in (trained | buffers).items() if tensor.is_floating_point()}
        self._learned = {name: tensor.detach().as_subclass(Tensor) for name, tensor in learned.items()}
        self._average = {name: tensor.clone() for name, tensor in self._learned.items()}
        self._decay = 0.0
        device = next(iter(self._learned.values())).device if self._learned else torch.device("cpu")
        self._share = None if device.type == "cpu" else torch.zeros((), device=device)
        self._is_in_model = False

    def update(self) -> None:
        """Update the average after a step of the optimizer."""
        self.count()
        self.add()

    def count(self) -> None:
        """Count the next step, whose share depends on it; on a device, the share is a tensor for CUDA graphs."""
        self._decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        if self._share is not None:
            self._share.fill_(1 - self._decay)
        self.steps += 1

    def add(self) -> None:
        """Add the weights to the average, with the share of the counted step."""
        averages, learned = list(self._average.values()), list(self._learned.values())
        if self._share is not None:
            with torch.no_grad():
                moves: Any = torch._foreach_sub(learned, averages)
                torch._foreach_mul_(moves, self._share)
                torch._foreach_add_(averages, moves)
        elif learned:
            get_ema_multi_avg_fn(self._decay)(averages, learned, self.steps)

    def enter(self) -> None:
        """Swap: the model gets the average, and this object the raw weights."""
        if not self._is_in_model:
            self._exchange()

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the model inside a block; afterwards the raw weights are back, bit for bit."""
        was_in_model = self._is_in_model
        self.enter()
        try:
            yield
        finally:
            if not was_in_model:
                self._exchange()

    def state_dict(self) -> dict[str, Any]:
        """Return the number of updates and the averages by name; call this while the model has the raw weights."""
        return {"steps": self.steps, "tensors": dict(self._average)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the :meth:`state_dict` of an equal model."""
        for name, average in self._average.items():
            average.copy_(state["tensors"][name])
        self.steps = int(state["steps"])

    @torch.no_grad()
    def _exchange(self) -> None:
        """Swap raw weights and averages in place, so that references in optimizers, views and kernels stay valid."""
        self._is_in_model = not self._is_in_model
        for name, learned in self._learned.items():
            raw = learned.clone()
            learned.copy_(self._average[name])
            self._average[name].copy_(raw)
