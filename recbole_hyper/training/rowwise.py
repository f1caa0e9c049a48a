"""Adam that leaves alone the rows of a table that a step did not touch: for losses that touch few of many items."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class RowwiseAdam(torch.optim.Adam):
    """Adam, fused, with row-wise updates of ``tables``: those of the parameters whose first dimension is one of rows.

    A row without gradient keeps its values and its moments, as in ``torch.optim.SparseAdam``; plain Adam would move it
    on by its momentum and let the moments decay. Rows that every step touches are updated as by Adam. The time of a
    step then grows with the rows touched, but for one reading of the gradient. ValueError for a group with weight
    decay, which touches every row.
    """

    def __init__(
        self,
        groups: Iterable[Any],
        tables: Iterable[nn.Parameter],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, eps=eps, fused=True)
        self._tables = {id(table) for table in tables}
        if any(group["weight_decay"] for group in self.param_groups):
            raise ValueError("rowwise_update does not go with weight_decay, which touches every row")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; returns what ``closure`` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        held = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._tables and parameter.grad is not None:
                    held.append((group, parameter, parameter.grad))
                    parameter.grad = None
        super().step()
        for group, parameter, gradient in held:
            self._update(parameter, gradient, group)
            parameter.grad = gradient
        return loss

    def _update(self, table: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=table.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        state["step"] += 1
        # ten times faster than any(); what squares to 0 moves nothing here
        rows = torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1).nonzero()[:, 0]
        own = gradient.index_select(0, rows)
        (beta1, beta2), steps = group["betas"], float(state["step"])
        first = state["exp_avg"].index_select(0, rows).lerp_(own, 1 - beta1)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(own, own, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        root = second.div_(1 - beta2**steps).sqrt_().add_(group["eps"])
        size = float(group["lr"] / (1 - beta1**steps))
        table.index_copy_(0, rows, table.index_select(0, rows).addcdiv_(first, root, value=-size))
