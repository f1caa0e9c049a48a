"""One evaluation of the exact cross-entropy: a stream over rows and items, tile by tile, with its gradients.

A chunk of rows meets the items block by block. Each tile of logits becomes its own softmax while it is in cache, and
is kept with its sum of exponentials. After all blocks the total is known, and each tile's softmax needs one factor per
row, its share of the total. So the three matrix products (logits, gradient of states, gradient of items) are computed
once. If the budget allows too few rows for that, there are two passes over the items: logits are computed twice, and
only the gradients grow with the catalogue.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms, compute_dtype
from recbole_hyper.losses import _chunks


@dataclass
class Gradients:
    """Gradients of states, weight, offset and curvature, or None."""

    states: Tensor | None = None
    weight: Tensor | None = None
    offset: Tensor | None = None
    curvature: Tensor | None = None


@dataclass
class _Items:
    """A lifted block of items."""

    terms: ItemTerms
    vectors: Tensor


@dataclass
class _ScaledItems:
    """The lifted items of a block times their scale, for the gradient of the states."""

    space: Tensor  # the first d columns, contiguous for a faster product
    extra: Tensor | None


@dataclass
class _ItemGradients:
    """Gradients by the lifted items: by the first d columns, by the extra ones, by the scale (times the scale)."""

    weight: Tensor
    extra: Tensor | None
    scale: Tensor | None


@dataclass
class _Tile:
    """The softmax of a tile of logits within itself; if compiled, not divided by ``total``.

    Attributes:
        weights: softmax x slope, (h, w).
        linked: softmax x logit, (h, w); None without a link.
        top: largest logit, (h,).
        total: sum(exp(logit - top)), (h,).
        mixed: ``weights`` times the only extra column of the scaled items, (h,), or None if not computed.
    """

    weights: Tensor
    linked: Tensor | None
    top: Tensor
    total: Tensor
    mixed: Tensor | None = None


class ItemStream:
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
        budget: int | None,
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
        self.on_cpu = self.vectors.device.type == "cpu"
        # the kernels work in place; they do not divide a tile's softmax by its sum
        self.compiled = self.on_cpu and self.dtype == torch.float32
        self.n_items, self.dim = weight.shape
        self.padding_idx = padding_idx
        self._plan(budget)

    def _plan(self, budget: int | None) -> None:
        """Choose and allocate the tiles."""
        n, width = self.vectors.shape
        one, geometry = self._terms_of(slice(0, 1)), self.geometry
        self.tiles = _chunks.cut(
            n,
            self.n_items,
            width,
            arrays=2 if geometry.has_link else 1,
            # each term and its gradient
            terms=2 * sum(t.numel() for t in one if t is not None),
            itemsize=self.vectors.element_size(),
            budget=budget,
            device=self.vectors.device,
        )
        # link, softmax and the extra column of the products in one kernel; this is faster only with two passes
        fusible = self.compiled and geometry.asinh_link and self.lifted.exponent is None
        self.fused = fusible and not self.tiles.keep
        self.blocks = _chunks.item_blocks(self.n_items, self.tiles.block, self.padding_idx)
        # two passes lift a block only twice, so terms need no memory
        self.terms = self._all_terms() if self.tiles.keep else None
        self._allocate_tiles(one)

    def _part(self, part: slice) -> tuple[Tensor, Tensor | None]:
        """Return weight and offset of some items in the computing dtype, detached."""
        offset = None if self.offset is None else self.offset[part].detach().to(self.dtype)
        return self.weight[part].detach().to(self.dtype), offset

    def _lift_items(self, weight: Tensor, offset: Tensor | None) -> ItemTerms:
        return self.geometry.lift_items(weight, offset, curvature=self.curvature, factored=self.factored)

    @torch.no_grad()
    def _terms_of(self, part: slice) -> ItemTerms:
        return self._lift_items(*self._part(part))

    def _all_terms(self) -> ItemTerms:
        """Return the terms of all items, a few numbers each."""
        parts = [self._terms_of(part) for part in _chunks.lift_spans(self.n_items, self.vectors.device)]
        return ItemTerms(*(None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True)))

    def _allocate_tiles(self, one: ItemTerms) -> None:
        tiles, like = self.tiles, self.vectors
        size = tiles.rows * tiles.block
        self.slope = like.new_empty(size if self.geometry.has_link and not self.compiled else 0)
        self.scratch = like.new_empty(size if not self.compiled or (self.geometry.has_link and not self.fused) else 0)
        kept = tiles.rows * self.n_items if tiles.keep else size
        self.kept_slopes = like.new_empty(0 if self.fused else kept)
        self.kept_links = like.new_empty(kept if self.geometry.has_link else 0)
        lifted = one.multiplier is not None or one.extra is not None
        self.items = like.new_empty(tiles.block if lifted else 0, self.dim if self.fused else like.shape[1])
        scaled = one.multiplier is not None or one.scale is not None
        self.scaled = like.new_empty(tiles.block if scaled else 0, self.dim)

    def _terms_in(self, part: slice) -> ItemTerms:
        return self._terms_of(part) if self.terms is None else self.terms.rows(part)

    def _lift(self, part: slice) -> _Items:
        """Lift a block of items into a reused buffer, or return the weight if nothing is lifted.

        With ``fused`` the kernel computes the extra column.
        """
        terms, weight = self._terms_in(part), self.weight[part].detach().to(self.dtype)
        if terms.multiplier is None and terms.extra is None:
            return _Items(terms, weight)
        vectors = self.items[: len(weight)]
        if terms.multiplier is None:
            vectors[:, : self.dim] = weight
        else:
            torch.mul(weight, terms.multiplier.unsqueeze(1), out=vectors[:, : self.dim])
        if terms.extra is not None and not self.fused:
            vectors[:, self.dim :] = terms.extra
        return _Items(terms, vectors)

    def _scale(self, part: slice, terms: ItemTerms) -> _ScaledItems:
        """Lift a block of items and scale it, into a reused buffer or the weight itself."""
        space, factor, extra = self.weight[part].detach().to(self.dtype), terms.multiplier, terms.extra
        if terms.scale is not None:
            factor = terms.scale if factor is None else factor * terms.scale
            extra = None if extra is None else extra * terms.scale.unsqueeze(1)
        if factor is not None:
            space = torch.mul(space, factor.unsqueeze(1), out=self.scaled[: len(space)])
        return _ScaledItems(space, extra)

    def _tile(self, rows: slice, items: _Items, start: int = 0, *, totals_only: bool = False) -> _Tile:
        """Compute a tile; with ``totals_only`` its ``weights`` and ``linked`` are undefined."""
        if self.fused:
            return self._fused_totals(rows, items)
        vectors, terms = self.vectors[rows], items.terms
        height, width = len(vectors), len(items.vectors)
        start *= height

        def view(buffer: Tensor, first: int = 0) -> Tensor:
            return buffer[first : first + height * width].view(height, width)

        weights, linked = view(self.kept_slopes, start), None
        if self.geometry.has_link:
            linked = torch.mm(vectors, items.vectors.t(), out=view(self.kept_links, start))
            exponent = None
            if self.lifted.exponent is not None and terms.exponent is not None:
                exponent = self.lifted.exponent[rows].unsqueeze(1) + terms.exponent
            slope = weights if self.compiled else view(self.slope)
            self.geometry.link_(linked, slope, view(self.scratch), exponent)
        if self.compiled:
            if linked is None:
                torch.mm(vectors, items.vectors.t(), out=weights)
            return self._compiled_tile(weights, linked, terms, totals_only)
        if linked is None:
            logits = torch.mm(vectors, items.vectors.t(), out=view(self.scratch))
        else:
            logits = linked if terms.scale is None else linked.mul_(terms.scale)
        torch.softmax(logits, 1, out=weights)
        # the largest softmax is exp(0) / sum(exp(logit - top)), which gives the sum
        top, total = logits.amax(1), weights.amax(1).reciprocal_()
        if linked is not None:
            linked.mul_(weights)
            weights.mul_(slope)
        return _Tile(weights, linked, top, total)

    def _compiled_tile(self, weights: Tensor, linked: Tensor | None, terms: ItemTerms, totals_only: bool) -> _Tile:
        """Finish a tile: ``linked`` has logits and ``weights`` slopes; without a link ``weights`` has logits."""
        from recbole_hyper.kernels import softmax  # numba is imported when a loss is computed

        height, width = weights.shape
        top, total, mixed = weights.new_empty(3, height)
        scale = weights.new_ones(width) if terms.scale is None else terms.scale
        if totals_only:
            logits = weights if linked is None else linked
            softmax.total_rows(*(t.numpy() for t in (logits, scale, top, total)))
            return _Tile(weights, linked, top, total)
        if linked is None:
            softmax.softmax_rows(*(t.numpy() for t in (weights, top, total)))
            return _Tile(weights, None, top, total)
        one = terms.extra is not None and terms.extra.shape[1] == 1
        extra = terms.extra[:, 0] * scale if terms.extra is not None and one else weights.new_zeros(width)
        softmax.linked_softmax_rows(*(t.numpy() for t in (linked, weights, scale, extra, top, total, mixed)))
        return _Tile(weights, linked, top, total, mixed if one else None)

    def _fused_operands(self, rows: slice, items: _Items) -> list[Tensor]:
        """Return the inputs of the fused kernels for a tile.

        The products without the extra column (h, w), the states' extra column (h,), that of the items (w,), and the
        scale (w,).
        """
        height, width = len(self.vectors[rows]), len(items.vectors)
        inner = self.kept_links[: height * width].view(height, width)
        torch.mm(self.vectors[rows, : self.dim], items.vectors.t(), out=inner)
        scale, extra, column = items.terms.scale, inner.new_zeros(width), inner.new_zeros(height)
        assert scale is not None
        if items.terms.extra is not None:
            extra, column = items.terms.extra[:, 0], self.vectors[rows, self.dim]
        return [inner, column, extra, scale]

    def _fused_totals(self, rows: slice, items: _Items) -> _Tile:
        """Compute maximum and sum of a tile with one kernel; its other numbers are then undefined."""
        from recbole_hyper.kernels import asinh_softmax  # numba is imported when a loss is computed

        operands = self._fused_operands(rows, items)
        inner = operands[0]
        top, total = inner.new_empty(2, len(inner))
        asinh_softmax.total_rows(*(t.numpy() for t in (*operands, top, total)))
        return _Tile(inner, inner, top, total)

    def _fused_accumulate(
        self,
        rows: slice,
        items: _Items,
        scaled: _ScaledItems,
        top: Tensor,
        factor: Tensor,
        gradients: _ItemGradients | None,
    ) -> None:
        """Add the gradients of a tile whose rows' ``top`` is known, without writing its logits."""
        from recbole_hyper.kernels import asinh_softmax

        inner, column, extra, scale = self._fused_operands(rows, items)
        height, width = inner.shape
        mixed = factor.new_empty(height, -(-width // asinh_softmax.STRIP))
        d_extra, d_scale = factor.new_zeros(2, width)
        if gradients is not None and gradients.scale is not None:
            d_scale = gradients.scale
            d_extra = d_extra if gradients.extra is None else gradients.extra[:, 0]
        operands = (inner, column, extra, scale, extra * scale, top, factor, mixed, d_extra, d_scale)
        asinh_softmax.weigh_rows(*(t.numpy() for t in operands))
        tile = _Tile(inner, None, top, factor, mixed.sum(1))
        self._accumulate_products(rows, scaled, tile, factor, gradients)

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,) and, with the weight (n,) of each row's loss, the gradients."""
        if not any(self.needs):
            row_weights = None
        losses = self.vectors.new_empty(len(self.vectors))
        self._score_targets()
        if row_weights is not None:
            self._allocate_gradients()
        self._sweep(losses, row_weights)
        return losses, Gradients() if row_weights is None else self._finish(row_weights)

    def _sweep(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Write the losses, and add the gradients from all items."""
        if not self.tiles.keep:
            self._two_passes(losses, row_weights)
            return
        every = slice(0, self.n_items)
        whole = None if row_weights is None else self._item_gradients(every, self._terms_in(every))
        for rows in self._row_chunks():
            self._one_pass(rows, losses, row_weights, whole)
        if whole is not None and row_weights is not None:
            self._lift_all_back(whole, row_weights)

    def _lift_all_back(self, gradients: _ItemGradients, row_weights: Tensor) -> None:
        """Subtract the targets from the gradients of the lifted items, and propagate these to weight and offset."""
        self._subtract_targets(slice(0, self.n_items), gradients, row_weights)
        for part in _chunks.lift_spans(self.n_items, self.vectors.device):
            self._lift_back(part, _part_of(gradients, part))

    def _row_chunks(self) -> list[slice]:
        return list(_chunks.spans(0, len(self.vectors), self.tiles.rows))

    def _one_pass(
        self, rows: slice, losses: Tensor, row_weights: Tensor | None, gradients: _ItemGradients | None
    ) -> None:
        """Compute losses and gradients of a chunk of rows; its tiles are kept until the total is known."""
        tiles, tops, totals, start = [], [], [], 0
        for part in self.blocks:
            tile = self._tile(rows, self._lift(part), start, totals_only=row_weights is None)
            tops.append(tile.top)
            totals.append(tile.total)
            if row_weights is not None:
                tiles.append(tile)
                start += part.stop - part.start
        # maximum and sum separately: the difference of two rounded logsumexps would lose digits for large logits
        top = torch.stack(tops).amax(0)
        parts = [torch.exp(t - top) for t in tops]
        shares = [part * s for part, s in zip(parts, totals, strict=True)]
        total = torch.stack(shares).sum(0)
        losses[rows] = top - self.target_logits[rows] + total.log()
        if row_weights is not None:
            factors = parts if self.compiled else shares
            for part, tile, factor in zip(self.blocks, tiles, factors, strict=True):
                own = None if gradients is None else _part_of(gradients, part)
                scaled = self._scale(part, self._terms_in(part))
                self._accumulate(rows, scaled, tile, factor / total * row_weights[rows], own)

    def _two_passes(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Compute losses in a first pass over the items and gradients in a second; each lifts every block once."""
        top = torch.full_like(losses, -torch.inf)
        total = torch.zeros_like(losses)
        for part in self.blocks:
            items = self._lift(part)
            for rows in self._row_chunks():
                tile = self._tile(rows, items, totals_only=True)
                highest = torch.maximum(top[rows], tile.top)
                total[rows] *= torch.exp(top[rows] - highest)
                total[rows] += tile.total * torch.exp(tile.top - highest)
                top[rows] = highest
        losses.copy_(top - self.target_logits + total.log())
        if row_weights is None:
            return
        for part in self.blocks:
            items = self._lift(part)
            scaled, gradients = self._scale(part, items.terms), self._item_gradients(part, items.terms)
            for rows in self._row_chunks():
                if self.fused:
                    factor = row_weights[rows] / total[rows]
                    self._fused_accumulate(rows, items, scaled, top[rows], factor, gradients)
                    continue
                tile = self._tile(rows, items)
                factor = torch.exp(tile.top - top[rows]) / total[rows] * row_weights[rows]
                self._accumulate(rows, scaled, tile, factor if self.compiled else factor * tile.total, gradients)
            if gradients is not None:
                self._subtract_targets(part, gradients, row_weights)
                self._lift_back(part, gradients)

    def _allocate_gradients(self) -> None:
        items, like = self.needs[1] or self.needs[2] or self.needs[3], self.vectors
        self.d_vectors = torch.zeros_like(like) if self.needs[0] or self.needs[3] else None
        self.d_weight = like.new_zeros(self.n_items, self.dim) if items else None
        self.d_offset: Tensor | None = None
        if self.needs[2] and self.offset is not None:
            self.d_offset = torch.zeros_like(self.offset, dtype=self.dtype)
        self.d_curvature: Tensor | None = None
        if isinstance(self.curvature, Tensor) and self.needs[3]:
            self.d_curvature = torch.zeros_like(self.curvature)

    def _item_gradients(self, part: slice, terms: ItemTerms) -> _ItemGradients | None:
        """Return zeros for the gradients of the lifted items of a part with ``terms``, or None."""
        if self.d_weight is None:
            return None
        weight = self.d_weight[part]
        extra = None if terms.extra is None else weight.new_zeros(len(weight), terms.extra.shape[1])
        return _ItemGradients(weight, extra, None if terms.scale is None else weight.new_zeros(len(weight)))

    def _accumulate(
        self, rows: slice, scaled: _ScaledItems, tile: _Tile, factor: Tensor, gradients: _ItemGradients | None
    ) -> None:
        """Add a tile's share to the gradients; ``factor`` (rows,) turns its softmax into the weighted total softmax."""
        self._accumulate_products(rows, scaled, tile, factor, gradients)
        if gradients is not None:
            self._accumulate_sums(rows, tile, factor, gradients)

    def _accumulate_products(
        self, rows: slice, scaled: _ScaledItems, tile: _Tile, factor: Tensor, gradients: _ItemGradients | None
    ) -> None:
        """Add the gradients of the states and of the lifted items' first d columns.

        The extra columns are separate: a product of width 64 is a fifth faster than one of 65, and matrix times vector
        is fast only for contiguous vectors.
        """
        weights = tile.weights
        if self.d_vectors is not None:
            space = weights @ scaled.space
            self.d_vectors[rows, : self.dim].addcmul_(space, factor.unsqueeze(1))
            if scaled.extra is not None:
                for k, column in enumerate(scaled.extra.unbind(1)):
                    mixed = weights.mv(column) if tile.mixed is None else tile.mixed
                    self.d_vectors[rows, self.dim + k].addcmul_(mixed, factor)
        if gradients is not None:
            vectors = self.vectors[rows, : self.dim] * factor.unsqueeze(1)
            gradients.weight.addmm_(weights.t(), vectors)

    def _accumulate_sums(self, rows: slice, tile: _Tile, factor: Tensor, gradients: _ItemGradients) -> None:
        """Add the gradients of the extra columns and of the scale, sums of a tile's columns."""
        weights, linked = tile.weights, tile.linked
        extra, scale = gradients.extra, gradients.scale
        if self.compiled and linked is not None and scale is not None and extra is not None and extra.shape[1] == 1:
            column = self.vectors[rows, self.dim] * factor
            from recbole_hyper.kernels import softmax

            softmax.add_column_sums(*(t.numpy() for t in (weights, linked, column, factor, extra[:, 0], scale)))
            return
        if extra is not None:
            for k, gradient in enumerate(extra.unbind(1)):
                gradient.addmv_(weights.t(), self.vectors[rows, self.dim + k] * factor)
        if scale is not None and linked is not None:
            scale.addmv_(linked.t(), factor)

    @torch.no_grad()
    def _score_targets(self) -> None:
        """Compute the target logits (n,) and the terms of their gradient."""
        weight = self.weight.detach()[self.targets].to(self.dtype)
        offset = None if self.offset is None else self.offset.detach()[self.targets].to(self.dtype)
        terms = self._lift_items(weight, offset)
        self.target_vectors, self.target_scale = terms.vectors(weight), terms.scale
        linked = (self.vectors * self.target_vectors).sum(1)
        self.target_slope, scratch = torch.empty_like(linked), torch.empty_like(linked)
        exponent = None
        if self.lifted.exponent is not None and terms.exponent is not None:
            exponent = self.lifted.exponent + terms.exponent
        self.geometry.link_(linked, self.target_slope, scratch, exponent)
        self.target_logits = linked if terms.scale is None else linked * terms.scale

    def _subtract_targets(self, part: slice, gradients: _ItemGradients, row_weights: Tensor) -> None:
        """Subtract the targets among the items of ``part`` from their gradients."""
        inside = (self.targets >= part.start) & (self.targets < part.stop)
        rows: Tensor | slice = slice(None)
        if self.on_cpu:
            rows = inside.nonzero()[:, 0]
        else:  # without waiting for their number: the other rows count 0
            row_weights = row_weights * inside
        items = (self.targets[rows] - part.start).clamp(0, part.stop - part.start - 1)
        vectors = self.vectors[rows] * (row_weights * self.target_slope)[rows].unsqueeze(1)
        gradients.weight.index_add_(0, items, vectors[:, : self.dim], alpha=-1)
        if gradients.extra is not None:
            gradients.extra.index_add_(0, items, vectors[:, self.dim :], alpha=-1)
        if gradients.scale is not None:
            gradients.scale.index_add_(0, items, (row_weights * self.target_logits)[rows], alpha=-1)

    def _finish(self, row_weights: Tensor) -> Gradients:
        """Propagate the gradients of the lifted states to the states, and collect all gradients."""
        states = None
        if self.d_vectors is not None:
            slope = (row_weights * self.target_slope).unsqueeze(1)
            factor = slope if self.target_scale is None else slope * self.target_scale.unsqueeze(1)
            self.d_vectors.addcmul_(self.target_vectors, factor, value=-1)
            (states,) = self._back([self.lifted.vectors], [self.states if self.needs[0] else None], [self.d_vectors])
        return Gradients(states, self.d_weight if self.needs[1] else None, self.d_offset, self.d_curvature)

    def _back(self, outputs: list[Tensor], inputs: list[Tensor | None], grads: list[Tensor]) -> list[Tensor | None]:
        """Return the vector-Jacobian product of a lift, and add the curvature's part to its gradient."""
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
        asked = [i for i in inputs if i is not None]
        if self.d_curvature is not None and isinstance(self.curvature, Tensor):
            asked.append(self.curvature)
        if not pairs or not asked:
            return [None] * len(inputs)
        found = list(torch.autograd.grad([o for o, _ in pairs], asked, [g for _, g in pairs], allow_unused=True))
        if self.d_curvature is not None and found[-1] is not None:
            self.d_curvature.add_(found[-1])
        return [None if i is None else found.pop(0) for i in inputs]

    def _lift_back(self, part: slice, gradients: _ItemGradients) -> None:
        """Turn the gradients by the lifted items of ``part`` into those by weight (in place) and offset."""
        weight, offset = self._part(part)
        weight.requires_grad_()
        offset = None if offset is None else offset.requires_grad_()
        with torch.enable_grad():
            terms = self._lift_items(weight, offset)
        if all(term is None for term in terms):
            return
        d_weight, scale = gradients.weight, None if terms.scale is None else terms.scale.detach()
        if scale is not None:
            d_weight.mul_(scale.unsqueeze(1))
        outputs, grads = [], []
        if terms.multiplier is not None:
            outputs.append(terms.multiplier)
            grads.append((d_weight * weight.detach()).sum(1))
            d_weight.mul_(terms.multiplier.detach().unsqueeze(1))
        if terms.extra is not None and gradients.extra is not None:
            outputs.append(terms.extra)
            grads.append(gradients.extra if scale is None else gradients.extra * scale.unsqueeze(1))
        if terms.scale is not None and gradients.scale is not None:
            outputs.append(terms.scale)
            grads.append(gradients.scale / terms.scale.detach())
        from_weight, from_offset = self._back(outputs, [weight, offset], grads)
        if from_weight is not None:
            d_weight.add_(from_weight)
        if self.d_offset is not None and from_offset is not None:
            self.d_offset[part] = from_offset


def _part_of(gradients: _ItemGradients, part: slice) -> _ItemGradients:
    """Return views of the gradients of some items."""
    extra, scale = gradients.extra, gradients.scale
    return _ItemGradients(
        gradients.weight[part], None if extra is None else extra[part], None if scale is None else scale[part]
    )
