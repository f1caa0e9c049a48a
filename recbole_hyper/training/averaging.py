"""The exponential moving average of the weights: training goes on with the raw ones, all else sees the average."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from recbole_hyper.hyperbolic.riemannian import manifold_parameters

# elements that change places at one time, so that no third copy of a large table exists
_PIECE = 1 << 20


class WeightAverage:
    r"""Average of all that a model learns, :math:`a_{t+1} = d_t a_t + (1 - d_t) w_{t+1}` after every step.

    :math:`d_t = \min(decay, (1 + t) / (10 + t))`, with ``decay`` in (0, 1) and t ``steps``: the weights that training
    starts from, a_0 = w_0, have a share of less than 1e-6 after 15 steps. (The warm-up is that of TensorFlow's
    ExponentialMovingAverage; averaging: Polyak and Juditsky, 1992.)

    Averaged are the parameters with gradient, each as it is stored (a learned curvature by its parameter), and floating
    buffers of the state dict. All rows of a table are averaged at every step, also those that it did not touch. Points
    of a manifold are averaged as vectors, and projected onto the manifold where they stand in ``model``.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        names = model.state_dict()
        buffers = {name: buffer for name, buffer in model.named_buffers() if name in names}
        learned = {name: tensor for name, tensor in (trained | buffers).items() if tensor.is_floating_point()}
        self._points = manifold_parameters(model)
        self._learned = {name: tensor.detach().as_subclass(Tensor) for name, tensor in learned.items()}
        self._average = {name: tensor.clone() for name, tensor in self._learned.items()}
        # raw points of manifolds while the model holds their average; None while it holds the raw weights
        self._raw_points: dict[str, Tensor] | None = None

    def update(self) -> None:
        """Take the weights of the model in, after a step of the optimizer."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        if self._learned:
            get_ema_multi_avg_fn(decay)(list(self._average.values()), list(self._learned.values()), self.steps)
        self.steps += 1

    @torch.no_grad()
    def enter(self) -> None:
        """Let the model hold the average, and this object the raw weights."""
        if self._raw_points is not None:
            return
        self._exchange()
        self._raw_points = {name: self._learned[name].clone() for name in self._points if name in self._learned}
        for name in self._raw_points:
            self._points[name].copy_(self._points[name].manifold.projx(self._average[name]))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model hold the average within a block; behind it, it is as before to the last bit."""
        raw_before = self._raw_points is None
        self.enter()
        try:
            yield
        finally:
            if raw_before and self._raw_points is not None:
                with torch.no_grad():
                    for name, raw in self._raw_points.items():
                        self._learned[name].copy_(raw)
                    self._exchange()
                self._raw_points = None

    def state_dict(self) -> dict[str, Any]:
        """Return the number of updates and the averages by name, to be taken while the model holds the raw weights."""
        return {"steps": self.steps, "tensors": dict(self._average)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned; ValueError for averages of another model."""
        for name, average in self._average.items():
            if name not in state["tensors"] or state["tensors"][name].shape != average.shape:
                raise ValueError(f"the average of {name!r} is missing or has another shape")
            average.copy_(state["tensors"][name])
        self.steps = int(state["steps"])

    def _exchange(self) -> None:
        """Swap raw weights and averages where they lie: optimizers, views and kernels keep what they refer to."""
        for name, learned in self._learned.items():
            if name in self._points or not learned.numel():
                continue
            pair = learned, self._average[name]
            rows = max(1, _PIECE // max(1, learned[0].numel())) if learned.dim() else 1
            for one, other in zip(*(torch.atleast_1d(tensor).split(rows) for tensor in pair), strict=True):
                held = one.clone()
                one.copy_(other)
                other.copy_(held)
