"""One evaluation of the exact cross-entropy: a stream over rows and items, tile by tile, with its gradients.

A chunk of rows meets the items block by block; each tile of logits is turned into its own softmax while it is in
cache, and kept with its sum of exponentials. When the row chunk has met all items, the total is known, each tile's
softmax needs one factor per row, its share of the total, and the three matrix products of the mathematics (logits,
gradient of states, gradient of items) are each done once. Where the budget keeps too few rows for that, the items are
swept twice instead, block by block: the logits are computed twice, and nothing but the gradients grows with the
catalogue.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from recbole_hyper.geometry.base import Curvature, Geometry, ItemTerms, compute_dtype
from recbole_hyper.losses import _chunks


@dataclass
class Gradients:
    """Gradients of states, weight, offset and curvature; None where not needed."""

    states: Tensor | None = None
    weight: Tensor | None = None
    offset: Tensor | None = None
    curvature: Tensor | None = None


@dataclass
class _Block:
    """Some items, and the gradients by their lifts: by the first d columns, the extra ones, the scale (times it).

    Without gradients ``d_weight`` is None.
    """

    part: slice
    terms: ItemTerms
    d_weight: Tensor | None = None
    d_extra: Tensor | None = None
    d_scale: Tensor | None = None


@dataclass
class _Tile:
    """The softmax of a tile of logits within itself, undivided by ``total`` if compiled.

    Attributes:
        weights: softmax x slope, (h, w).
        linked: softmax x logit, (h, w); None without a link.
        top: largest logit, (h,).
        total: sum(exp(logit - top)), (h,).
        mixed: ``weights`` times the only extra column of the scaled items, (h,); None where it is still to be made.
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
        # the kernels know no link but asinh; they work in place and do not divide a tile's softmax by its sum
        links = not geometry.has_link or (geometry.asinh_link and self.lifted.exponent is None)
        self.compiled = self.on_cpu and self.dtype == torch.float32 and links
        # they add the extra column of the products on the way
        self.extra_in_kernel = self.compiled and geometry.has_link
        self.n_items, self.dim = weight.shape
        n, width = self.vectors.shape
        one = self._terms_of(slice(0, 1))
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
        # the second of two passes makes the column sums of a tile in the same kernel, and writes no logits
        self.fused = self.extra_in_kernel and not self.tiles.keep
        self.parts = _chunks.item_blocks(self.n_items, self.tiles.block, padding_idx)
        # with two passes a block is lifted twice only, and its terms are not worth their memory
        self.terms: ItemTerms | None = None
        if self.tiles.keep:
            each = [self._terms_of(part) for part in _chunks.lift_spans(self.n_items, self.vectors.device)]
            self.terms = ItemTerms(*(None if one[0] is None else torch.cat(one) for one in zip(*each, strict=True)))
        self._allocate_tiles(one)

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,) and, with the weight (n,) of each row's loss, the gradients."""
        if not any(self.needs):
            row_weights = None
        losses = self.vectors.new_empty(len(self.vectors))
        self._score_targets()
        if row_weights is not None:
            self._allocate_gradients()
        if self.tiles.keep:
            self._one_pass(losses, row_weights)
        else:
            self._two_passes(losses, row_weights)
        return losses, Gradients() if row_weights is None else self._finish(row_weights)

    # --- sweeps ------------------------------------------------------------------------------------------------------
    def _one_pass(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Losses and gradients row chunk by row chunk, whose tiles are kept until their total is known."""
        catalogue = self._block(slice(0, self.n_items), gradients=row_weights is not None)
        blocks = [_rows_of(catalogue, part) for part in self.parts]
        for rows in self._row_chunks():
            tiles, start = [], 0
            for block in blocks:
                tiles.append(self._tile(rows, block, self._lift(block), start, totals_only=row_weights is None))
                if row_weights is not None:
                    start += block.part.stop - block.part.start
            # maximum and sum apart: a difference of two rounded logsumexps would lose digits where logits are large
            top = torch.stack([tile.top for tile in tiles]).amax(0)
            parts = [torch.exp(tile.top - top) for tile in tiles]
            shares = [part * tile.total for part, tile in zip(parts, tiles, strict=True)]
            total = torch.stack(shares).sum(0)
            losses[rows] = top - self.target_logits[rows] + total.log()
            if row_weights is not None:
                for block, tile, factor in zip(blocks, tiles, parts if self.compiled else shares, strict=True):
                    self._accumulate(rows, block, self._scale(block), tile, factor / total * row_weights[rows])
        if row_weights is not None and catalogue.d_weight is not None:
            self._subtract_targets(catalogue, row_weights)
            for part in _chunks.lift_spans(self.n_items, self.vectors.device):
                self._lift_back(_rows_of(catalogue, part))

    def _two_passes(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Losses in a first pass over the items, gradients in a second; each lifts every block once."""
        top = torch.full_like(losses, -torch.inf)
        total = torch.zeros_like(losses)
        for part in self.parts:
            block = self._block(part)
            vectors = self._lift(block)
            for rows in self._row_chunks():
                tile = self._tile(rows, block, vectors, totals_only=True)
                highest = torch.maximum(top[rows], tile.top)
                total[rows] *= torch.exp(top[rows] - highest)
                total[rows] += tile.total * torch.exp(tile.top - highest)
                top[rows] = highest
        losses.copy_(top - self.target_logits + total.log())
        if row_weights is None:
            return
        for part in self.parts:
            block = self._block(part, gradients=True)
            vectors, scaled = self._lift(block), self._scale(block)
            for rows in self._row_chunks():
                if self.fused:
                    factor = row_weights[rows] / total[rows]
                    self._accumulate_fused(rows, block, vectors, scaled, top[rows], factor)
                    continue
                tile = self._tile(rows, block, vectors)
                factor = torch.exp(tile.top - top[rows]) / total[rows] * row_weights[rows]
                self._accumulate(rows, block, scaled, tile, factor if self.compiled else factor * tile.total)
            if block.d_weight is not None:
                self._subtract_targets(block, row_weights)
                self._lift_back(block)

    def _row_chunks(self) -> list[slice]:
        return list(_chunks.spans(0, len(self.vectors), self.tiles.rows))

    # --- items -------------------------------------------------------------------------------------------------------
    def _part(self, part: slice) -> tuple[Tensor, Tensor | None]:
        """Return weight and offset of some items in the computing dtype, detached."""
        offset = None if self.offset is None else self.offset[part].detach().to(self.dtype)
        return self.weight[part].detach().to(self.dtype), offset

    def _lift_items(self, weight: Tensor, offset: Tensor | None) -> ItemTerms:
        return self.geometry.lift_items(weight, offset, curvature=self.curvature, factored=self.factored)

    @torch.no_grad()
    def _terms_of(self, part: slice) -> ItemTerms:
        return self._lift_items(*self._part(part))

    def _block(self, part: slice, *, gradients: bool = False) -> _Block:
        """Return some items, with ``gradients`` (where they are needed) of zeros."""
        block = _Block(part, self._terms_of(part) if self.terms is None else self.terms.rows(part))
        if gradients and self.d_weight is not None:
            block.d_weight = weight = self.d_weight[part]
            if block.terms.extra is not None:
                block.d_extra = weight.new_zeros(len(weight), block.terms.extra.shape[1])
            block.d_scale = None if block.terms.scale is None else weight.new_zeros(len(weight))
        return block

    def _lift(self, block: _Block) -> Tensor:
        """Lift a block of items into a reused buffer; where nothing is lifted return the weight itself.

        With ``extra_in_kernel`` the extra column is left out.
        """
        terms, weight = block.terms, self._part(block.part)[0]
        if terms.multiplier is None and (terms.extra is None or self.extra_in_kernel):
            return weight
        vectors = self.items[: len(weight)]
        if terms.multiplier is None:
            vectors[:, : self.dim] = weight
        else:
            torch.mul(weight, terms.multiplier.unsqueeze(1), out=vectors[:, : self.dim])
        if terms.extra is not None and not self.extra_in_kernel:
            vectors[:, self.dim :] = terms.extra
        return vectors

    def _scale(self, block: _Block) -> tuple[Tensor, Tensor | None]:
        """Lift and scale a block of items, the first d columns and the extra ones apart.

        A product of width 64 is a fifth faster than one of 65, and matrix times vector is fast only for contiguous
        vectors. The first columns are in a reused buffer, or the weight itself.
        """
        space, (factor, extra, scale, _) = self._part(block.part)[0], block.terms
        if scale is not None:
            factor = scale if factor is None else factor * scale
            extra = None if extra is None else extra * scale.unsqueeze(1)
        if factor is not None:
            space = torch.mul(space, factor.unsqueeze(1), out=self.scaled[: len(space)])
        return space, extra

    # --- tiles -------------------------------------------------------------------------------------------------------
    def _allocate_tiles(self, one: ItemTerms) -> None:
        tiles, like, has_link = self.tiles, self.vectors, self.geometry.has_link
        size = tiles.rows * tiles.block
        self.slope = like.new_empty(size if has_link and not self.compiled else 0)
        self.scratch = like.new_empty(0 if self.compiled else size)
        tile_size = tiles.rows * self.n_items if tiles.keep else size
        self.kept_slopes = like.new_empty(0 if self.fused else tile_size)
        self.kept_links = like.new_empty(tile_size if has_link else 0)
        lifted = one.multiplier is not None or one.extra is not None
        self.items = like.new_empty(tiles.block if lifted else 0, self.dim if self.extra_in_kernel else like.shape[1])
        scaled = one.multiplier is not None or one.scale is not None
        self.scaled = like.new_empty(tiles.block if scaled else 0, self.dim)

    def _tile(self, rows: slice, block: _Block, items: Tensor, start: int = 0, *, totals_only: bool = False) -> _Tile:
        """Compute a tile; with ``totals_only`` its ``weights`` and ``linked`` may hold anything.

        ``start`` says how many columns of these rows are kept already.
        """
        if self.compiled:
            return self._compiled_tile(rows, block, items, start, totals_only)
        vectors, terms = self.vectors[rows], block.terms
        size = (start * len(vectors), len(vectors), len(items))
        weights, linked, slope, scratch = _view(self.kept_slopes, *size), None, None, _view(self.scratch, 0, *size[1:])
        if self.geometry.has_link:
            linked, slope = _view(self.kept_links, *size), _view(self.slope, 0, *size[1:])
            torch.mm(vectors, items.t(), out=linked)
            exponent = None
            if self.lifted.exponent is not None and terms.exponent is not None:
                exponent = self.lifted.exponent[rows].unsqueeze(1) + terms.exponent
            self.geometry.link_(linked, slope, scratch, exponent)
            logits = linked if terms.scale is None else linked.mul_(terms.scale)
        else:
            logits = torch.mm(vectors, items.t(), out=scratch)
        torch.softmax(logits, 1, out=weights)
        # the largest softmax is exp(0) / sum(exp(logit - top)): the sum comes for free
        top, total = logits.amax(1), weights.amax(1).reciprocal_()
        if linked is not None and slope is not None:
            linked.mul_(weights)
            weights.mul_(slope)
        return _Tile(weights, linked, top, total)

    def _compiled_tile(self, rows: slice, block: _Block, items: Tensor, start: int, totals_only: bool) -> _Tile:
        from recbole_hyper.kernels import softmax  # numba is imported when a loss is computed

        height, width = len(self.vectors[rows]), len(items)
        top, total, mixed = self.vectors.new_empty(3, height)
        if not self.geometry.has_link:
            weights = _view(self.kept_slopes, start * height, height, width)
            torch.mm(self.vectors[rows], items.t(), out=weights)
            _call(softmax.total_rows if totals_only else softmax.softmax_rows, weights, top, total)
            return _Tile(weights, None, top, total)
        products, column, extra, scale = self._operands(rows, block, items, start)
        if totals_only:
            _call(softmax.linked_total_rows, products, column, extra, scale, top, total)
            return _Tile(products, products, top, total)
        weights = _view(self.kept_slopes, start * height, height, width)
        results = (top, total, mixed)
        _call(softmax.linked_softmax_rows, products, weights, column, extra, scale, extra * scale, *results)
        return _Tile(weights, products, top, total, mixed)

    def _operands(self, rows: slice, block: _Block, items: Tensor, start: int = 0) -> tuple[Tensor, ...]:
        """Return what the kernels of a link read of a tile.

        The products without the extra column (h, w), the states' extra column (h,), that of the items (w,), and the
        scale (w,).
        """
        height, width = len(self.vectors[rows]), len(items)
        products = _view(self.kept_links, start * height, height, width)
        torch.mm(self.vectors[rows, : self.dim], items.t(), out=products)
        scale, extra, column = block.terms.scale, products.new_zeros(width), products.new_zeros(height)
        assert scale is not None
        if block.terms.extra is not None:
            extra, column = block.terms.extra[:, 0], self.vectors[rows, self.dim]
        return products, column, extra, scale

    # --- gradients ---------------------------------------------------------------------------------------------------
    def _allocate_gradients(self) -> None:
        like = self.vectors
        self.d_vectors = torch.zeros_like(like) if self.needs[0] or self.needs[3] else None
        self.d_weight = like.new_zeros(self.n_items, self.dim) if any(self.needs[1:]) else None
        self.d_offset: Tensor | None = None
        if self.needs[2] and self.offset is not None:
            self.d_offset = torch.zeros_like(self.offset, dtype=self.dtype)
        self.d_curvature: Tensor | None = None
        if isinstance(self.curvature, Tensor) and self.needs[3]:
            self.d_curvature = torch.zeros_like(self.curvature)

    def _accumulate(
        self, rows: slice, block: _Block, scaled: tuple[Tensor, Tensor | None], tile: _Tile, factor: Tensor
    ) -> None:
        """Add a tile's share to the gradients; ``factor`` (rows,) turns its softmax into the weighted total softmax."""
        self._accumulate_products(rows, block, scaled, tile, factor)
        weights, linked, extra, scale = tile.weights, tile.linked, block.d_extra, block.d_scale
        if self.compiled and linked is not None and scale is not None and extra is not None:
            from recbole_hyper.kernels import softmax

            column = self.vectors[rows, self.dim] * factor
            _call(softmax.add_column_sums, weights, linked, column, factor, extra[:, 0], scale)
            return
        if extra is not None:
            for k, gradient in enumerate(extra.unbind(1)):
                gradient.addmv_(weights.t(), self.vectors[rows, self.dim + k] * factor)
        if scale is not None and linked is not None:
            scale.addmv_(linked.t(), factor)

    def _accumulate_fused(
        self,
        rows: slice,
        block: _Block,
        items: Tensor,
        scaled: tuple[Tensor, Tensor | None],
        top: Tensor,
        factor: Tensor,
    ) -> None:
        """Compute a tile whose rows' ``top`` is known, and add its share to the gradients.

        Its column sums are made on the way: its logits are not written.
        """
        from recbole_hyper.kernels import softmax

        products, column, extra, scale = self._operands(rows, block, items)
        height, width = products.shape
        mixed = factor.new_empty(height, -(-width // softmax.STRIP))
        d_extra, d_scale = factor.new_zeros(2, width)
        if block.d_scale is not None:
            d_scale, d_extra = block.d_scale, d_extra if block.d_extra is None else block.d_extra[:, 0]
        sums = (mixed, d_extra, d_scale)
        _call(softmax.weigh_rows, products, column, extra, scale, extra * scale, top, factor, *sums)
        self._accumulate_products(rows, block, scaled, _Tile(products, None, top, factor, mixed.sum(1)), factor)

    def _accumulate_products(
        self, rows: slice, block: _Block, scaled: tuple[Tensor, Tensor | None], tile: _Tile, factor: Tensor
    ) -> None:
        """Add the gradients of the states and of the lifted items' first d columns."""
        weights, (space, extra) = tile.weights, scaled
        if self.d_vectors is not None:
            self.d_vectors[rows, : self.dim].addcmul_(weights @ space, factor.unsqueeze(1))
            if extra is not None:
                for k, column in enumerate(extra.unbind(1)):
                    mixed = weights.mv(column) if tile.mixed is None else tile.mixed
                    self.d_vectors[rows, self.dim + k].addcmul_(mixed, factor)
        if block.d_weight is not None:
            block.d_weight.addmm_(weights.t(), self.vectors[rows, : self.dim] * factor.unsqueeze(1))

    @torch.no_grad()
    def _score_targets(self) -> None:
        """Compute the target logits (n,) and what their gradient needs."""
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

    def _subtract_targets(self, block: _Block, row_weights: Tensor) -> None:
        """Take the targets among the items of a block off their gradients."""
        part = block.part
        inside = (self.targets >= part.start) & (self.targets < part.stop)
        rows: Tensor | slice = slice(None)
        if self.on_cpu:
            rows = inside.nonzero()[:, 0]
        else:  # no wait for their number: the other rows count 0
            row_weights = row_weights * inside
        items = (self.targets[rows] - part.start).clamp(0, part.stop - part.start - 1)
        vectors = self.vectors[rows] * (row_weights * self.target_slope)[rows].unsqueeze(1)
        targets = (vectors[:, : self.dim], vectors[:, self.dim :], (row_weights * self.target_logits)[rows])
        for gradient, taken in zip((block.d_weight, block.d_extra, block.d_scale), targets, strict=True):
            if gradient is not None:
                gradient.index_add_(0, items, taken, alpha=-1)

    def _finish(self, row_weights: Tensor) -> Gradients:
        """Carry the gradients of the lifted states back to the states, and collect all."""
        states = None
        if self.d_vectors is not None:
            slope = (row_weights * self.target_slope).unsqueeze(1)
            factor = slope if self.target_scale is None else slope * self.target_scale.unsqueeze(1)
            self.d_vectors.addcmul_(self.target_vectors, factor, value=-1)
            (states,) = self._back([(self.lifted.vectors, self.d_vectors)], [self.states if self.needs[0] else None])
        return Gradients(states, self.d_weight if self.needs[1] else None, self.d_offset, self.d_curvature)

    def _lift_back(self, block: _Block) -> None:
        """Turn the gradients by the lifts of a block into those by weight (in place) and offset."""
        weight, offset = self._part(block.part)
        weight.requires_grad_()
        offset = None if offset is None else offset.requires_grad_()
        with torch.enable_grad():
            terms = self._lift_items(weight, offset)
        d_weight = block.d_weight
        if d_weight is None or all(term is None for term in terms):
            return
        scale = None if terms.scale is None else terms.scale.detach()
        if scale is not None:
            d_weight.mul_(scale.unsqueeze(1))
        pairs = []
        if terms.multiplier is not None:
            pairs.append((terms.multiplier, (d_weight * weight.detach()).sum(1)))
            d_weight.mul_(terms.multiplier.detach().unsqueeze(1))
        if terms.extra is not None and block.d_extra is not None:
            pairs.append((terms.extra, block.d_extra if scale is None else block.d_extra * scale.unsqueeze(1)))
        if terms.scale is not None and block.d_scale is not None:
            pairs.append((terms.scale, block.d_scale / terms.scale.detach()))
        from_weight, from_offset = self._back(pairs, [weight, offset])
        if from_weight is not None:
            d_weight.add_(from_weight)
        if self.d_offset is not None and from_offset is not None:
            self.d_offset[block.part] = from_offset

    def _back(self, pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of inputs from (output, gradient) of a lift; add that of the curvature to its own."""
        pairs = [(output, gradient) for output, gradient in pairs if output.requires_grad]
        with_gradient = [tensor for tensor in inputs if tensor is not None]
        if self.d_curvature is not None and isinstance(self.curvature, Tensor):
            with_gradient.append(self.curvature)
        if not pairs or not with_gradient:
            return [None] * len(inputs)
        outputs, gradients = zip(*pairs, strict=True)
        gradients_of_inputs = list(torch.autograd.grad(outputs, with_gradient, gradients, allow_unused=True))
        if self.d_curvature is not None and gradients_of_inputs[-1] is not None:
            self.d_curvature.add_(gradients_of_inputs[-1])
        return [None if tensor is None else gradients_of_inputs.pop(0) for tensor in inputs]


def _rows_of(block: _Block, part: slice) -> _Block:
    """Return some items of a block that has all, with views of its gradients."""
    gradients = (block.d_weight, block.d_extra, block.d_scale)
    return _Block(part, block.terms.rows(part), *(None if one is None else one[part] for one in gradients))


def _view(buffer: Tensor, first: int, height: int, width: int) -> Tensor:
    """Return numbers of a buffer from ``first`` on as a matrix."""
    return buffer[first : first + height * width].view(height, width)


def _call(kernel: object, *tensors: Tensor) -> None:
    """Call a compiled kernel with the arrays of CPU tensors."""
    kernel(*(tensor.numpy() for tensor in tensors))  # type: ignore[operator]
