"""One evaluation of the exact cross-entropy on a device: whole rows of logits at once, in few operations.

A CPU works tile by tile in its cache (:mod:`recbole_hyper.losses._stream`). On a device each operation costs a launch,
so a chunk here is as many rows of all items as the budget holds, often all of them. The label smoothing is part of it:
with q the smoothed target, the loss is -<q, log p> and its gradient by the logits p - q.
"""

from typing import Any

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Geometry, Theta, compute_dtype
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._stream import Gradients

# arrays of a chunk's size without a link and with one: logits, probabilities, slope, and what asinh needs besides
ARRAYS, LINKED_ARRAYS = 2, 8


def rows_at_once(n: int, n_items: int, width: int, itemsize: int, budget: int, *, link: bool) -> int:
    """Return how many rows of logits fit into ``budget`` bytes beside the lifts of n states of ``width`` numbers."""
    free = budget - (6 if link else 3) * n * width * itemsize
    return min(n, free // (n_items * itemsize * (LINKED_ARRAYS if link else ARRAYS)))


class RowStream:
    """One evaluation of the exact cross-entropy by whole rows; ``padding_idx`` is 0 or None."""

    #: share of the target that is spread evenly over all items
    smoothing = 0.0

    @staticmethod
    def smooths(geometry: Geometry) -> bool:
        """Return whether the loss includes the smoothing."""
        return True

    @property
    def first(self) -> int:
        """The first item that is scored."""
        return 1 if self.padding == 0 else 0

    def __init__(
        self,
        states: Tensor,
        targets: Tensor,
        weight: Tensor,
        offset: Tensor | None,
        theta: Theta,
        geometry: Geometry,
        padding_idx: int | None,
        budget: int | None,
        needs: tuple[bool, bool, bool, bool],
    ) -> None:
        self.geometry, self.needs = geometry, needs
        self.dtype = dtype = compute_dtype(states, weight, offset)
        self.targets, self.padding = targets, -1 if padding_idx is None else padding_idx
        self.theta = theta.detach().to(dtype).requires_grad_(needs[3]) if isinstance(theta, Tensor) else theta

        def leaf(tensor: Tensor, needed: bool) -> Tensor:
            return tensor.detach().to(dtype).requires_grad_(needed)

        self.states = leaf(states, needs[0])
        self.weight = leaf(weight, needs[1])
        self.offset = None if offset is None else leaf(offset, needs[2])
        self._lift()
        self.budget = _chunks.default_budget(self.vectors.device) if budget is None else budget

    def _lift(self) -> None:
        """Lift the states, to ``vectors`` (n, width)."""
        factored = self.geometry.factored(self.states, self.offset, self.theta)
        options: dict[str, Any] = {"theta": self.theta, "factored": factored}
        with torch.enable_grad():
            self.lifted = self.geometry.lift_states(self.states, offset=self.offset is not None, **options)
            self.terms = self.geometry.lift_items(self.weight, self.offset, **options)
        self.vectors = self.lifted.vectors.detach()

    def _lifted_items(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the lifted items (m, width), their scale (m,) or None, and both multiplied."""
        with torch.enable_grad():
            self.items = self.terms.vectors(self.weight)
        items, scale = self.items.detach(), None if self.terms.scale is None else self.terms.scale.detach()
        return items, scale, items if scale is None else items * scale.unsqueeze(1)

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,), and unless ``row_weights`` (n,) is None the gradients of their weighted sum."""
        if not any(self.needs):
            row_weights = None
        (n, width), itemsize = self.vectors.shape, self.vectors.element_size()
        items, scale, scaled = self._lifted_items()
        size = rows_at_once(n, len(items), width, itemsize, self.budget, link=self.geometry.has_link)
        losses, by_states, by_items, by_scale = [], [], None, None
        for start in range(0, n, max(1, size)):
            part = slice(start, start + max(1, size))
            vectors, targets = self.vectors[part], self.targets[part]
            logits = vectors @ items.t()
            slope = self._to_logits(logits, part, scale)
            log_p = torch.log_softmax(logits, 1)
            lost = torch.nn.functional.nll_loss(log_p, targets, reduction="none")
            if self.smoothing:
                lost = torch.lerp(lost, log_p[:, self.first :].mean(1).neg_(), self.smoothing)
            losses.append(lost)
            if row_weights is None:
                continue
            gradient = log_p.exp_()
            if self.smoothing:
                real = gradient[:, self.first :]
                real.sub_(self.smoothing / real.shape[1])
            gradient.scatter_(1, targets.unsqueeze(1), self.smoothing - 1, reduce="add")
            gradient *= row_weights[part].unsqueeze(1)
            if scale is not None:
                share = logits.mul_(gradient).sum(0)
                by_scale = share if by_scale is None else by_scale.add_(share)
            if slope is not None:
                gradient *= slope
            by_states.append(gradient @ scaled)
            if by_items is None:
                by_items = gradient.t() @ vectors
            else:
                by_items.addmm_(gradient.t(), vectors)
        values = losses[0] if len(losses) == 1 else torch.cat(losses)
        if by_items is None:
            return values, Gradients()
        rows = by_states[0] if len(by_states) == 1 else torch.cat(by_states)
        return values, self._finish(rows, by_items, by_scale)

    def _to_logits(self, inner: Tensor, part: slice, scale: Tensor | None) -> Tensor | None:
        """Replace products by logits, and return the slopes of the link."""
        slope = self._link(inner, part) if self.geometry.has_link else None
        if scale is not None:
            inner *= scale
        if self.first:  # padding; its product with a probability of 0 must be 0
            inner[:, 0].fill_(torch.finfo(inner.dtype).min)
        return slope

    def _link(self, inner: Tensor, part: slice) -> Tensor:
        """Replace products by their links, and return the slopes."""
        slope, exponent = torch.empty_like(inner), None
        if self.lifted.exponent is not None and self.terms.exponent is not None:
            exponent = self.lifted.exponent.detach()[part].unsqueeze(1) + self.terms.exponent.detach()
        self.geometry.link_(inner, slope, torch.empty_like(inner) if exponent is None else exponent, exponent)
        return slope

    def _finish(self, by_states: Tensor, by_items: Tensor, share: Tensor | None) -> Gradients:
        """Turn the gradients by the lifts into those by states, weight, offset and theta.

        Those by items are over the scale; ``share`` is that by the scale, times the scale.
        """
        by_scale = None
        if self.terms.scale is not None and share is not None:
            scale = self.terms.scale.detach()
            by_items *= scale.unsqueeze(1)
            by_scale = share / scale
        return self._back([(self.lifted.vectors, by_states), (self.items, by_items), (self.terms.scale, by_scale)])

    def _back(self, pairs: list[tuple[Tensor | None, Tensor | None]], by_weight: Tensor | None = None) -> Gradients:
        """Return the gradients of the inputs from pairs (output of a lift, its gradient).

        ``by_weight`` is a part of the gradient of the weight that no lift has; it gets the rest in place.
        """
        known = [(one, by) for one, by in pairs if one is not None and by is not None and one.requires_grad]
        inputs = (self.states, self.weight, self.offset, self.theta if isinstance(self.theta, Tensor) else None)
        named = zip(Gradients._fields, inputs, self.needs, strict=True)
        wanted = {name: one for name, one, needed in named if needed and one is not None}
        found: dict[str, Tensor | None] = dict.fromkeys(wanted)
        if known:
            outputs, gradients = zip(*known, strict=True)
            by_lifts = torch.autograd.grad(outputs, list(wanted.values()), gradients, allow_unused=True)
            found = dict(zip(wanted, by_lifts, strict=True))
        if by_weight is not None and "weight" in wanted:
            rest = found["weight"]
            found["weight"] = by_weight if rest is None else by_weight.add_(rest)
        return Gradients(**{n: torch.zeros_like(wanted[n]) if by is None else by for n, by in found.items()})
