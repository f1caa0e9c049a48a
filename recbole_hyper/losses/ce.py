"""Exact cross-entropy over the whole catalogue in bounded memory, for every geometry.

Nothing of size rows x items exists. A chunk of rows meets the items block by block; each tile of logits is turned into
its own softmax while it is in cache, and kept with its sum of exponentials. When the row chunk has met all items, the
total is known, each tile's softmax needs one factor per row, its share of the total, and the three matrix products of
the mathematics (logits, gradient of states, gradient of items) are each done once. Where the budget keeps too few rows
for that, the items are swept twice instead and the logits computed twice. Gradients are made in the
forward pass; the item gradient is written straight into the buffer that becomes weight.grad.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recbole_hyper.components import component
from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms, compute_dtype
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._softmax_kernel import add_column_sums, linked_softmax_rows, softmax_rows
from recbole_hyper.losses.base import Head, Loss, Negatives

# items whose lifts, or gradients through them, are alive at once with all that autograd keeps
_LIFT_BLOCK = 1 << 11


@dataclass
class _Gradients:
    """Gradients of states, weight, offset and curvature; None where not asked for."""

    states: Tensor | None = None
    weight: Tensor | None = None
    offset: Tensor | None = None
    curvature: Tensor | None = None


class _Stream:
    """One evaluation of the exact cross-entropy: lifts, tiles and accumulators of a call."""

    def __init__(
        self,
        states: Tensor,
        targets: Tensor,
        weight: Tensor,
        offset: Tensor | None,
        curvature: Curvature,
        geometry: Geometry,
        padding_idx: int | None,
        budget: int,
        needs: tuple[bool, bool, bool, bool],
    ) -> None:
        self.geometry, self.targets, self.weight, self.offset = geometry, targets, weight, offset
        self.needs = needs
        self.dtype = compute_dtype(states, weight, offset)
        self.factored = geometry.factored(states.to(self.dtype), offset, curvature)
        self.curvature = curvature
        if isinstance(curvature, Tensor):
            self.curvature = curvature.detach().to(self.dtype).requires_grad_(needs[3])
        self.states = states.detach().to(self.dtype).requires_grad_(needs[0])
        with torch.enable_grad():
            self.lifted = geometry.lift_states(
                self.states, curvature=self.curvature, offset=offset is not None, factored=self.factored
            )
        self.vectors = self.lifted.vectors.detach()
        self.terms = self._all_terms()
        n, width = self.vectors.shape
        self.n_items, self.dim = weight.shape
        self.plan = _chunks.plan(
            n,
            self.n_items,
            width,
            arrays=2 if geometry.has_link else 1,
            # each term, its gradient, and the products with the scale
            terms=2 * sum(t.numel() // len(t) for t in self.terms if t is not None) + (self.terms.scale is not None),
            itemsize=self.vectors.element_size(),
            budget=budget,
            gpu=states.device.type != "cpu",
        )
        self.blocks = _chunks.item_blocks(self.n_items, self.plan.block, padding_idx)
        self._allocate_tiles()

    def _part(self, part: slice) -> tuple[Tensor, Tensor | None]:
        """Return weight and offset of some items in the computing dtype, detached."""
        offset = None if self.offset is None else self.offset[part].detach().to(self.dtype)
        return self.weight[part].detach().to(self.dtype), offset

    def _lift_items(self, weight: Tensor, offset: Tensor | None) -> ItemTerms:
        return self.geometry.lift_items(weight, offset, curvature=self.curvature, factored=self.factored)

    @torch.no_grad()
    def _all_terms(self) -> ItemTerms:
        """Return the terms of all items: a few numbers each, never the lifted vectors."""
        parts = [self._lift_items(*self._part(part)) for part in _chunks.spans(0, len(self.weight), _LIFT_BLOCK)]
        return ItemTerms(*(None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True)))

    def _allocate_tiles(self) -> None:
        plan, like = self.plan, self.vectors
        size = plan.rows * plan.block
        # the kernels make a tile's softmax and its sum in one pass, in place; they do not divide by the sum
        self.compiled = like.device.type == "cpu" and like.dtype == torch.float32
        self.slope = like.new_empty(size if self.geometry.has_link and not self.compiled else 0)
        self.scratch = like.new_empty(size if self.geometry.has_link or not self.compiled else 0)
        kept = plan.rows * self.n_items if plan.keep else size
        self.kept_slopes = like.new_empty(kept)
        self.kept_links = like.new_empty(kept if self.geometry.has_link else 0)
        multiplier, extra, scale = self.terms.multiplier, self.terms.extra, self.terms.scale
        lifted = multiplier is not None or extra is not None
        self.items = like.new_empty(plan.block if lifted else 0, like.shape[1])
        self.scaled_multiplier, self.scaled_extra = multiplier, extra
        if scale is not None:
            self.scaled_multiplier = scale if multiplier is None else multiplier * scale
            self.scaled_extra = None if extra is None else extra * scale.unsqueeze(1)
        self.scaled = like.new_empty(plan.block if self.scaled_multiplier is not None else 0, self.dim)

    def _block_vectors(self, block: slice) -> Tensor:
        """Return the lifted items (block, width) in a reused buffer, or the weight itself where they are the same."""
        terms, weight = self.terms.rows(block), self.weight[block].detach().to(self.dtype)
        if terms.multiplier is None and terms.extra is None:
            return weight
        out = self.items[: len(weight)]
        if terms.multiplier is None:
            out[:, : self.dim] = weight
        else:
            torch.mul(weight, terms.multiplier.unsqueeze(1), out=out[:, : self.dim])
        if terms.extra is not None:
            out[:, self.dim :] = terms.extra
        return out

    def _scaled_items(self, block: slice) -> Tensor:
        """Return the first d columns of the lifted items times their scale, contiguous: the product is faster so."""
        weight = self.weight[block].detach().to(self.dtype)
        if self.scaled_multiplier is None:
            return weight
        out = self.scaled[: len(weight)]
        return torch.mul(weight, self.scaled_multiplier[block].unsqueeze(1), out=out)

    def _tile(
        self, rows: slice, block: slice, items: Tensor, start: int = 0
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Compute a tile with the lifted ``items``.

        Returns softmax x slope, softmax x logit (or None), largest logit, sum(exp(logit - largest)).
        The softmax is divided by that sum if not ``compiled``.
        """
        vectors = self.vectors[rows]
        height, width = len(vectors), block.stop - block.start
        start *= height

        def view(buffer: Tensor, first: int = 0) -> Tensor:
            return buffer[first : first + height * width].view(height, width)

        weights, linked = view(self.kept_slopes, start), None
        terms = self.terms.rows(block)
        if self.geometry.has_link:
            linked = torch.mm(vectors, items.t(), out=view(self.kept_links, start))
            exponent = None
            if self.lifted.exponent is not None and terms.exponent is not None:
                exponent = self.lifted.exponent[rows].unsqueeze(1) + terms.exponent
            slope = weights if self.compiled else view(self.slope)
            self.geometry.link_(linked, slope, view(self.scratch), exponent)
        if self.compiled:
            top, total = vectors.new_empty(2, height)
            if linked is None:
                torch.mm(vectors, items.t(), out=weights)
                softmax_rows(weights.numpy(), top.numpy(), total.numpy())
            else:
                scale = vectors.new_ones(width) if terms.scale is None else terms.scale
                linked_softmax_rows(*(t.numpy() for t in (linked, weights, scale, top, total)))
            return weights, linked, top, total
        if linked is None:
            logits = torch.mm(vectors, items.t(), out=view(self.scratch))
        else:
            logits = linked if terms.scale is None else linked.mul_(terms.scale)
        torch.softmax(logits, 1, out=weights)
        # the largest softmax is exp(0) / sum(exp(logit - top)): the sum comes for free
        top, total = logits.amax(1), weights.amax(1).reciprocal_()
        if linked is not None:
            linked.mul_(weights)
            weights.mul_(slope)
        return weights, linked, top, total

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, _Gradients]:
        """Return the losses (n,) and, with the weight (n,) of each row's loss, the gradients."""
        wanted = row_weights is not None and any(self.needs)
        losses = self.vectors.new_empty(len(self.vectors))
        self._score_targets()
        if wanted:
            self._allocate_gradients()
        if self.plan.keep:
            for rows in self._row_chunks():
                self._one_sweep(rows, losses, row_weights if wanted else None)
        else:
            self._two_sweeps(losses, row_weights if wanted else None)
        return losses, self._finish(row_weights) if wanted and row_weights is not None else _Gradients()

    def _row_chunks(self) -> list[slice]:
        return list(_chunks.spans(0, len(self.vectors), self.plan.rows))

    def _one_sweep(self, rows: slice, losses: Tensor, row_weights: Tensor | None) -> None:
        """Losses and gradients of a chunk of rows, whose tiles are kept until their total is known."""
        tiles, tops, totals, start = [], [], [], 0
        for block in self.blocks:
            weights, linked, top, total = self._tile(rows, block, self._block_vectors(block), start)
            tops.append(top)
            totals.append(total)
            if row_weights is not None:
                tiles.append((weights, linked))
                start += block.stop - block.start
        # maximum and sum apart: a difference of two rounded logsumexps would lose digits where logits are large
        top = torch.stack(tops).amax(0)
        parts = [torch.exp(t - top) for t in tops]
        shares = [part * s for part, s in zip(parts, totals, strict=True)]
        total = torch.stack(shares).sum(0)
        losses[rows] = (top - self.target_logits[rows]) + total.log()
        if row_weights is not None:
            factors = parts if self.compiled else shares
            for block, (weights, linked), factor in zip(self.blocks, tiles, factors, strict=True):
                scaled = self._scaled_items(block)
                self._accumulate(rows, block, scaled, weights, linked, factor / total * row_weights[rows])

    def _two_sweeps(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Losses in a first sweep over the items, gradients in a second; each lifts every block once."""
        top = torch.full_like(losses, -torch.inf)
        total = torch.zeros_like(losses)
        for block in self.blocks:
            items = self._block_vectors(block)
            for rows in self._row_chunks():
                _, _, t, s = self._tile(rows, block, items)
                highest = torch.maximum(top[rows], t)
                total[rows] = total[rows] * torch.exp(top[rows] - highest) + s * torch.exp(t - highest)
                top[rows] = highest
        losses.copy_((top - self.target_logits) + total.log())
        if row_weights is None:
            return
        for block in self.blocks:
            items, scaled = self._block_vectors(block), self._scaled_items(block)
            for rows in self._row_chunks():
                weights, linked, t, s = self._tile(rows, block, items)
                factor = torch.exp(t - top[rows]) / total[rows] * row_weights[rows]
                self._accumulate(rows, block, scaled, weights, linked, factor if self.compiled else factor * s)

    def _allocate_gradients(self) -> None:
        items = self.needs[1] or self.needs[2] or self.needs[3]
        terms, like = self.terms, self.vectors
        self.d_vectors = torch.zeros_like(like) if self.needs[0] or self.needs[3] else None
        self.d_weight = like.new_zeros(self.n_items, self.dim) if items else None
        self.d_extra = torch.zeros_like(terms.extra) if items and terms.extra is not None else None
        self.d_scale = torch.zeros_like(terms.scale) if items and terms.scale is not None else None

    def _accumulate(
        self, rows: slice, block: slice, scaled: Tensor, weights: Tensor, linked: Tensor | None, factor: Tensor
    ) -> None:
        """Add a tile's share to the gradients; ``factor`` (rows,) turns its softmax into the weighted total softmax.

        The first d columns and the extra ones go apart: a product of width 64 is a fifth faster than one of 65, and
        matrix times vector is fast only for contiguous vectors.
        """
        if self.d_vectors is not None:
            space = weights @ scaled
            self.d_vectors[rows, : self.dim].addcmul_(space, factor.unsqueeze(1))
            if self.scaled_extra is not None:
                for k, column in enumerate(self.scaled_extra[block].unbind(1)):
                    self.d_vectors[rows, self.dim + k].addcmul_(weights.mv(column), factor)
        if self.d_weight is not None:
            vectors = self.vectors[rows, : self.dim] * factor.unsqueeze(1)
            self.d_weight[block].addmm_(weights.t(), vectors)
            if (
                self.compiled
                and linked is not None
                and self.d_scale is not None
                and self.d_extra is not None
                and self.d_extra.shape[1] == 1
            ):
                extra = self.vectors[rows, self.dim] * factor
                sums = self.d_extra[block, 0], self.d_scale[block]
                add_column_sums(*(t.numpy() for t in (weights, linked, extra, factor, *sums)))
                return
            if self.d_extra is not None:
                for k, gradient in enumerate(self.d_extra.unbind(1)):
                    gradient[block].addmv_(weights.t(), self.vectors[rows, self.dim + k] * factor)
            if self.d_scale is not None and linked is not None:
                self.d_scale[block].addmv_(linked.t(), factor)

    def _score_targets(self) -> None:
        """Compute the target logits (n,) and what their gradient needs."""
        weight = self.weight.detach()[self.targets].to(self.dtype)
        self.target_terms = self.terms.rows(self.targets)
        self.target_vectors = self.target_terms.vectors(weight)
        linked = (self.vectors * self.target_vectors).sum(1)
        self.target_slope, scratch = torch.empty_like(linked), torch.empty_like(linked)
        exponent = None
        if self.lifted.exponent is not None and self.target_terms.exponent is not None:
            exponent = self.lifted.exponent + self.target_terms.exponent
        self.geometry.link_(linked, self.target_slope, scratch, exponent)
        scale = self.target_terms.scale
        self.target_logits = linked if scale is None else linked * scale

    def _subtract_targets(self, row_weights: Tensor) -> None:
        slope = (row_weights * self.target_slope).unsqueeze(1)
        scale = self.target_terms.scale
        if self.d_vectors is not None:
            factor = slope if scale is None else slope * scale.unsqueeze(1)
            self.d_vectors.addcmul_(self.target_vectors, factor, value=-1)
        if self.d_weight is not None:
            vectors = self.vectors * slope
            self.d_weight.index_add_(0, self.targets, vectors[:, : self.dim], alpha=-1)
            if self.d_extra is not None:
                self.d_extra.index_add_(0, self.targets, vectors[:, self.dim :], alpha=-1)
            if self.d_scale is not None:
                self.d_scale.index_add_(0, self.targets, row_weights * self.target_logits, alpha=-1)

    def _finish(self, row_weights: Tensor) -> _Gradients:
        """Carry the gradients of the lifts back to states, weight, offset and curvature."""
        self._subtract_targets(row_weights)
        gradients = _Gradients()
        curved = isinstance(self.curvature, Tensor) and self.needs[3]
        d_curvature = torch.zeros_like(self.curvature) if curved and isinstance(self.curvature, Tensor) else None

        def back(outputs: list[Tensor], inputs: list[Tensor | None], grads: list[Tensor]) -> list[Tensor | None]:
            """vjp of a lift; adds to d_curvature what flows there."""
            pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
            asked = [i for i in inputs if i is not None]
            asked += [self.curvature] if curved and isinstance(self.curvature, Tensor) else []
            if not pairs or not asked:
                return [None] * len(inputs)
            found = list(torch.autograd.grad([o for o, _ in pairs], asked, [g for _, g in pairs], allow_unused=True))
            if d_curvature is not None and found[-1] is not None:
                d_curvature.add_(found[-1])
            return [None if i is None else found.pop(0) for i in inputs]

        if self.d_vectors is not None:
            states = self.states if self.needs[0] else None
            (gradients.states,) = back([self.lifted.vectors], [states], [self.d_vectors])
        if self.d_weight is not None:
            d_offset = None
            if self.needs[2] and self.offset is not None:
                d_offset = torch.zeros_like(self.offset, dtype=self.dtype)
            if any(term is not None for term in self.terms):
                for part in _chunks.spans(0, self.n_items, _LIFT_BLOCK):
                    self._lift_back(part, back, d_offset)
            gradients.weight = self.d_weight if self.needs[1] else None
            gradients.offset = d_offset
        gradients.curvature = d_curvature
        return gradients

    def _lift_back(self, part: slice, back, d_offset: Tensor | None) -> None:
        """Turn d_weight of a block from the gradient of the lift into that of the weight, in place."""
        assert self.d_weight is not None
        weight, offset = self._part(part)
        weight.requires_grad_()
        offset = None if offset is None else offset.requires_grad_()
        with torch.enable_grad():
            terms = self._lift_items(weight, offset)
        d_weight, scale = self.d_weight[part], self.terms.rows(part).scale
        if scale is not None:
            d_weight.mul_(scale.unsqueeze(1))
        outputs, grads = [], []
        if terms.multiplier is not None:
            outputs.append(terms.multiplier)
            grads.append((d_weight * weight.detach()).sum(1))
            d_weight.mul_(terms.multiplier.detach().unsqueeze(1))
        if terms.extra is not None and self.d_extra is not None:
            d_extra = self.d_extra[part]
            outputs.append(terms.extra)
            grads.append(d_extra if scale is None else d_extra * scale.unsqueeze(1))
        if terms.scale is not None and self.d_scale is not None:
            outputs.append(terms.scale)
            # d_scale holds the gradient times the scale
            grads.append(self.d_scale[part] / terms.scale.detach())
        from_weight, from_offset = back(outputs, [weight, offset], grads)
        if from_weight is not None:
            d_weight.add_(from_weight)
        if d_offset is not None and from_offset is not None:
            d_offset[part] = from_offset


class _ExactCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, offset, curvature, targets, geometry, padding_idx, budget, reduction) -> Tensor:
        needs = tuple(ctx.needs_input_grad[:4])
        ctx.call = (targets, geometry, padding_idx, budget, needs)
        ctx.reduction, ctx.dtype = reduction, states.dtype
        with torch.autocast(states.device.type, enabled=False), torch.no_grad():
            stream = _Stream(states, targets, weight, offset, curvature, geometry, padding_idx, budget, needs)
            if reduction == "none":
                losses, _ = stream.run(None)
                ctx.save_for_backward(states, weight, offset, curvature if isinstance(curvature, Tensor) else None)
                ctx.constant_curvature = None if isinstance(curvature, Tensor) else curvature
                return losses
            row_weight = 1.0 / len(states) if reduction == "mean" else 1.0
            row_weights = stream.vectors.new_full((len(states),), row_weight) if any(needs) else None
            losses, gradients = stream.run(row_weights)
            ctx.gradients = _cast(gradients, states, weight, offset, curvature)
            return losses.mean() if reduction == "mean" else losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        if ctx.reduction == "none":
            states, weight, offset, curvature = ctx.saved_tensors
            curvature = ctx.constant_curvature if curvature is None else curvature
            targets, geometry, padding_idx, budget, needs = ctx.call
            with torch.autocast(states.device.type, enabled=False):
                stream = _Stream(states, targets, weight, offset, curvature, geometry, padding_idx, budget, needs)
                _, gradients = stream.run(gradient.to(stream.dtype))
            return *_cast(gradients, states, weight, offset, curvature), None, None, None, None, None
        if ctx.gradients is None:
            raise RuntimeError(
                "cross_entropy hands out its gradients once: a second backward through the same loss needs "
                "reduction='none', which recomputes them"
            )
        gradients, ctx.gradients = ctx.gradients, None
        # in place: a copy would double the memory of the item gradient
        found = tuple(None if g is None else g.mul_(gradient) for g in gradients)
        return *found, None, None, None, None, None


def _cast(gradients: _Gradients, states: Tensor, weight: Tensor, offset: Tensor | None, curvature: Curvature):
    pairs = (
        (gradients.states, states),
        (gradients.weight, weight),
        (gradients.offset, offset),
        (gradients.curvature, curvature),
    )
    return tuple(g.to(t.dtype) if g is not None and isinstance(t, Tensor) else None for g, t in pairs)


def exact_cross_entropy(
    states: Tensor,
    targets: Tensor,
    weight: Tensor,
    offset: Tensor | None,
    geometry: Geometry,
    *,
    curvature: Curvature = 1.0,
    padding_idx: int | None = None,
    memory_budget: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the exact cross-entropy over all items but ``padding_idx``, in bounded memory.

    Equals ``F.cross_entropy(geometry.logits(states, weight, offset, curvature=curvature), targets)`` with the padding
    column left out. See ``recbole_hyper.functional.cross_entropy`` for shapes and units; inputs are
    not checked here.
    """
    budget = _chunks.default_budget(states.device) if memory_budget is None else int(memory_budget)
    return _ExactCrossEntropy.apply(
        states, weight, offset, curvature, targets, geometry, padding_idx, budget, reduction
    )


@component("losses", "ce")
class CrossEntropy(Loss):
    """Exact softmax cross-entropy over the catalogue, memory-bounded (see ``exact_cross_entropy``).

    Args:
        memory_budget: bytes for the logits that are alive at once and the terms per item; None for 256 MiB, or 1/32
            of the device's memory if that is less.

    Raises:
        ValueError: budget not above 0 here, or under one row of logits at the first call.
    """

    def __init__(self, *, memory_budget: int | None = None) -> None:
        super().__init__()
        if memory_budget is not None and memory_budget <= 0:
            raise ValueError(f"loss_memory_budget must be above 0 bytes, got {memory_budget}")
        self.memory_budget = memory_budget

    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean cross-entropy; ``negatives`` is not used."""
        return exact_cross_entropy(
            states,
            targets,
            head.weight,
            head.offset,
            head.geometry,
            curvature=head.curvature,
            padding_idx=head.padding_idx,
            memory_budget=self.memory_budget,
        )

    def memory_bytes(
        self,
        n: int,
        d: int,
        n_items: int,
        dtype: torch.dtype = torch.float32,
        *,
        geometry: Geometry | None = None,
    ) -> int:
        """Return the bytes of the tiles and terms that the budget allows, plus what grows with n alone."""
        itemsize = max(4, torch.empty((), dtype=dtype).element_size())
        linked = geometry is None or geometry.has_link
        budget = _chunks.default_budget(torch.device("cpu")) if self.memory_budget is None else self.memory_budget
        # a bias, which the Euclidean head has only if asked for, would add two numbers per item
        arrays, terms = (2, 7) if linked else (1, 0)
        return _chunks.plan(n, n_items, d + 1, arrays=arrays, terms=terms, itemsize=itemsize, budget=budget).bytes
