"""One evaluation of the exact cross-entropy on a device: whole rows of logits at once, in few operations.

A CPU works tile by tile in its cache (:mod:`recbole_hyper.losses._stream`). On a device each operation costs a launch,
so a chunk here is as many rows of all items as the budget holds, often all of them. The label smoothing is part of it:
with q the smoothed target, the loss is -<q, log p> and its gradient by the logits p - q.
"""

from typing import Any

import torch
from torch import Tensor

from recbole_hyper.losses import _chunks
from recbole_hyper.losses._chunks import Gradients, Problem, exponent_of, lifted_back

# arrays of a chunk's size without a link and with one: logits, probabilities, slope, and what asinh needs besides
ARRAYS, LINKED_ARRAYS = 2, 8


def rows_at_once(problem: Problem) -> int:
    """Return how many rows of logits fit into the budget beside the lifts of the states."""
    arrays = LINKED_ARRAYS if problem.geometry.has_link else ARRAYS
    fixed, budget = problem.bounded(arrays)
    return min(len(problem.states), (budget - fixed) // (len(problem.weight) * problem.dtype.itemsize * arrays))


class RowStream:
    """One evaluation of the exact cross-entropy by whole rows."""

    def __init__(self, problem: Problem) -> None:
        self.geometry, self.targets = problem.geometry, problem.targets
        self.smoothing, self.padding = problem.smoothing, problem.padding_idx
        given = (problem.states, problem.weight, problem.offset, problem.theta)
        self.states, self.weight, self.offset, self.theta = map(problem.leaf, given)
        factored = self.geometry.factored(self.states, self.offset, self.theta)
        options: dict[str, Any] = {"theta": self.theta, "factored": factored}
        with torch.enable_grad():
            self.lifted = self.geometry.lift_states(self.states, offset=self.offset is not None, **options)
            self.terms = self.geometry.lift_items(self.weight, self.offset, **options)
        self.vectors = self.lifted.vectors.detach()
        self.rows_at_once = rows_at_once(problem)

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,), and unless ``row_weights`` (n,) is None the gradients of their weighted sum."""
        with torch.enable_grad():
            self.items = self.terms.vectors(self.weight)
        items, scale = self.items.detach(), None if self.terms.scale is None else self.terms.scale.detach()
        scaled = items if scale is None else items * scale.unsqueeze(1)
        every = _chunks.item_blocks(len(items), len(items), self.padding)
        of_all = self.smoothing / sum(real.stop - real.start for real in every)
        losses, by_states, by_items, by_scale = [], [], None, None
        for part in _chunks.spans(0, len(self.vectors), self.rows_at_once):
            vectors, targets = self.vectors[part], self.targets[part]
            logits = vectors @ items.t()
            slope = self._to_logits(logits, part, scale)
            log_p = torch.log_softmax(logits, 1)
            lost = torch.nn.functional.nll_loss(log_p, targets, reduction="none")
            if self.smoothing:
                sums = sum(log_p[:, real].sum(1) for real in every)
                lost = torch.add(lost * (1 - self.smoothing), sums, alpha=-of_all)
            losses.append(lost)
            if row_weights is None:
                continue
            gradient = log_p.exp_()
            if self.smoothing:
                for real in every:
                    gradient[:, real].sub_(of_all)
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
        if scale is not None and by_scale is not None:
            # those by items are over the scale, and that by the scale is times it
            by_items *= scale.unsqueeze(1)
            by_scale = by_scale / scale
        pairs = [(self.lifted.vectors, rows), (self.items, by_items), (self.terms.scale, by_scale)]
        return values, self._back(pairs)

    def _to_logits(self, inner: Tensor, part: slice, scale: Tensor | None) -> Tensor | None:
        """Replace products by logits, and return the slopes of the link."""
        slope = None
        if self.geometry.has_link:
            slope, exponent = torch.empty_like(inner), exponent_of(self.lifted, self.terms, part)
            self.geometry.link_(inner, slope, torch.empty_like(inner) if exponent is None else exponent, exponent)
        if scale is not None:
            inner *= scale
        if self.padding is not None:  # its product with a probability of 0 must be 0
            inner[:, self.padding].fill_(torch.finfo(inner.dtype).min)
        return slope

    def _back(self, pairs: list[tuple[Tensor | None, Tensor | None]], by_weight: Tensor | None = None) -> Gradients:
        """Return the gradients of the inputs from pairs (output of a lift, its gradient).

        ``by_weight`` is a part of the gradient of the weight that no lift has; it gets the rest in place.
        """
        found = lifted_back(pairs, (self.states, self.weight, self.offset, self.theta))
        if by_weight is not None:
            found[1] = by_weight if found[1] is None else by_weight.add_(found[1])
        return Gradients(*found)
