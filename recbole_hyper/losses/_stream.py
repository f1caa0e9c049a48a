"""One evaluation of the exact cross-entropy on a CPU: rows and items are streamed tile by tile, with their gradients.

A chunk of rows meets the items block by block. Each tile of logits becomes its own softmax while it is in cache, and is
kept with its sum of exponentials. Once the row chunk has met all items, the total is known and each tile's softmax
needs one factor per row, its share of the total. So each of the three matrix products of the mathematics (logits,
gradient of states, gradient of items) is done once.

If the budget has room for too few rows, the items are swept twice instead: the logits are computed twice, and nothing
but the gradients grows with the catalogue. The kernel of asinh (``fused``) keeps the products of a tile instead of its
softmax, and applies the link twice.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recbole_hyper.geometry.base import ItemTerms
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._chunks import Gradients, Problem, exponent_of, lifted_back

# with fewer logits in a step, torch is done before a kernel is compiled or loaded (make bench-first_run)
KERNEL_FROM = 1 << 24
# shares of a tile below this count as 0: their products would be subnormal numbers, which are slow
LEAST_SHARE = 1e-34


@dataclass
class _Block:
    """Some items, and the gradients by their lifts: extra columns, and scale (times the scale)."""

    part: slice
    terms: ItemTerms
    d_extra: Tensor | None
    d_scale: Tensor | None


class _Tile(NamedTuple):
    """The softmax of a tile (h, w) within itself, not divided by ``total`` if compiled; its products if fused.

    ``weights`` are softmax x slope, ``linked`` softmax x logit (None without a link, or if fused), ``top`` (h,) the
    largest logits, ``total`` (h,) the sums of exp(logit - top).
    """

    weights: Tensor
    linked: Tensor | None
    top: Tensor
    total: Tensor


class ItemStream:
    """One evaluation of the exact cross-entropy, with its lifts, tiles and accumulators."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.geometry = problem, problem.geometry
        self.targets, self.dtype = problem.targets, problem.dtype
        self.weight, self.offset = problem.weight.detach(), problem.offset
        self.states, self.theta = problem.leaf(problem.states), problem.leaf(problem.theta)
        self.factored = self.geometry.factored(self.states, self.offset, self.theta)
        with torch.enable_grad():
            self.lifted = self.geometry.lift_states(
                self.states, theta=self.theta, offset=self.offset is not None, factored=self.factored
            )
        self.vectors = self.lifted.vectors.detach()
        self.n_items, self.dim = self.weight.shape
        self._plan()

    def _plan(self) -> None:
        """Cut rows and items into tiles, and allocate their buffers."""
        like, link, n = self.vectors, self.geometry.has_link, len(self.vectors)
        # the only link with a kernel is asinh; kernels work in place and do not divide a tile's softmax by its sum
        links = not link or (self.geometry.asinh_link and self.lifted.exponent is None)
        large = n * self.n_items >= KERNEL_FROM
        self.compiled = large and self.dtype == torch.float32 and links
        self.fused = self.compiled and link
        one = self._block(slice(0, 1)).terms
        # compiled kernels need no tile besides those that are kept
        arrays = 2 if link and not self.fused else 1
        spare = arrays - 1 if self.compiled else arrays
        # each term with its gradient
        terms = 2 * sum(t.numel() for t in one if t is not None)
        self.tiles = tiles = _chunks.cut(self.problem, arrays=arrays, spare=spare, terms=terms)
        self.parts = _chunks.item_blocks(self.n_items, tiles.block, self.problem.padding_idx)
        self.rows = list(_chunks.spans(0, n, tiles.rows))
        size = tiles.rows * tiles.block
        kept = tiles.rows * self.n_items if tiles.keep else size
        plain = link and not self.fused
        self.kept, self.kept_links = like.new_empty(kept), like.new_empty(kept if plain else 0)
        self.slope, self.scratch = like.new_empty(size if plain else 0), like.new_empty(0 if self.compiled else size)
        # the kernel of a link adds the extra column itself
        self.width = self.dim if self.fused else like.shape[1]

    def run(self, row_weights: Tensor | None) -> tuple[Tensor, Gradients]:
        """Return the losses (n,), and unless ``row_weights`` (n,) is None the gradients of their weighted sum."""
        losses = self.vectors.new_empty(len(self.vectors))
        self._score_targets()
        if row_weights is not None:
            self._allocate_gradients()
        (self._one_pass if self.tiles.keep else self._two_passes)(losses, row_weights)
        return losses, Gradients() if row_weights is None else self._finish(row_weights)

    # --- sweeps ------------------------------------------------------------------------------------------------------
    def _one_pass(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Compute losses and gradients row chunk by row chunk; a chunk's tiles are kept until its total is known."""
        blocks = [self._block(part) for part in self.parts]
        for rows in self.rows:
            tiles, start = [], 0
            for block in blocks:
                tiles.append(self._tile(rows, block, self._lift(block), start))
                if row_weights is not None:
                    start += block.part.stop - block.part.start
            # maximum and sum separately: the difference of two rounded logsumexps loses digits if logits are large
            top = torch.stack([tile.top for tile in tiles]).amax(0)
            total = torch.stack([torch.exp(tile.top - top) * tile.total for tile in tiles]).sum(0)
            losses[rows] = top - self.target_logits[rows] + total.log()
            if row_weights is not None:
                for block, tile in zip(blocks, tiles, strict=True):
                    self._accumulate(rows, block, self._scale(block), tile, top, total, row_weights[rows])
        if row_weights is not None:
            for block in blocks:
                self._lift_back(block, row_weights)

    def _two_passes(self, losses: Tensor, row_weights: Tensor | None) -> None:
        """Compute losses in a first pass over the items, gradients in a second; each lifts every block once."""
        top = torch.full_like(losses, -torch.inf)
        total = torch.zeros_like(losses)
        for part in self.parts:
            block = self._block(part)
            items = self._lift(block)
            for rows in self.rows:
                tile = self._tile(rows, block, items)
                highest = torch.maximum(top[rows], tile.top)
                total[rows] *= torch.exp(top[rows] - highest)
                total[rows] += tile.total * torch.exp(tile.top - highest)
                top[rows] = highest
        losses.copy_(top - self.target_logits + total.log())
        if row_weights is None:
            return
        for part in self.parts:
            block = self._block(part)
            items, scaled = self._lift(block), self._scale(block)
            for rows in self.rows:
                if self.fused:
                    tile = _Tile(self._products(rows, items), None, top[rows], total[rows])
                else:
                    tile = self._tile(rows, block, items)
                self._accumulate(rows, block, scaled, tile, top[rows], total[rows], row_weights[rows])
            self._lift_back(block, row_weights)

    # --- items -------------------------------------------------------------------------------------------------------
    def _part(self, part: slice | Tensor) -> tuple[Tensor, Tensor | None]:
        """Return weight and offset of some items in the computing dtype, detached."""
        offset = None if self.offset is None else self.offset.detach()[part].to(self.dtype)
        return self.weight[part].to(self.dtype), offset

    def _lift_items(self, weight: Tensor, offset: Tensor | None) -> ItemTerms:
        return self.geometry.lift_items(weight, offset, theta=self.theta, factored=self.factored)

    @torch.no_grad()
    def _block(self, part: slice) -> _Block:
        """Return the items of ``part``, with gradients of zeros."""
        terms = self._lift_items(*self._part(part))
        extra, scale = (None if one is None else torch.zeros_like(one) for one in (terms.extra, terms.scale))
        return _Block(part, terms, extra, scale)

    def _lift(self, block: _Block) -> Tensor:
        """Return the lifted items of a block, without the extra column if fused."""
        terms = block.terms._replace(extra=None) if self.fused else block.terms
        return terms.vectors(self._part(block.part)[0])

    def _scale(self, block: _Block) -> tuple[Tensor, Tensor | None]:
        """Lift and scale a block of items; return the first d columns and the extra ones separately.

        A product of width 64 is a fifth faster than one of 65, and matrix times vector is fast only for contiguous
        vectors.
        """
        space, (factor, extra, scale, _) = self._part(block.part)[0], block.terms
        if scale is not None:
            factor = scale if factor is None else factor * scale
            extra = None if extra is None else extra * scale.unsqueeze(1)
        return space if factor is None else space * factor.unsqueeze(1), extra

    # --- tiles -------------------------------------------------------------------------------------------------------
    def _products(self, rows: slice, items: Tensor, start: int = 0) -> Tensor:
        """Return the products of a tile (h, w), without the extra column if fused.

        ``start`` is the number of columns of these rows that are kept already.
        """
        vectors = self.vectors[rows, : self.width]
        return torch.mm(vectors, items.t(), out=_view(self.kept, start * len(vectors), len(vectors), len(items)))

    def _tile(self, rows: slice, block: _Block, items: Tensor, start: int = 0) -> _Tile:
        if self.compiled:
            from recbole_hyper.kernels import softmax  # numba is imported when a loss is computed

            weights = self._products(rows, items, start)
            top, total = self.vectors.new_empty(2, len(weights))
            if self.fused:
                _call(softmax.linked_total_rows, weights, *self._linking(rows, block), top, total)
            else:
                _call(softmax.softmax_rows, weights, top, total)
            return _Tile(weights, None, top, total)
        vectors, terms = self.vectors[rows], block.terms
        size = (start * len(vectors), len(vectors), len(items))
        weights, linked, slope, scratch = _view(self.kept, *size), None, None, _view(self.scratch, 0, *size[1:])
        if self.geometry.has_link:
            linked, slope = _view(self.kept_links, *size), _view(self.slope, 0, *size[1:])
            torch.mm(vectors, items.t(), out=linked)
            self.geometry.link_(linked, slope, scratch, exponent_of(self.lifted, terms, rows))
            logits = linked if terms.scale is None else linked.mul_(terms.scale)
        else:
            logits = torch.mm(vectors, items.t(), out=scratch)
        torch.softmax(logits, 1, out=weights)
        # the largest softmax is exp(0) / sum(exp(logit - top)), so its reciprocal is the sum
        top, total = logits.amax(1), weights.amax(1).reciprocal_()
        if linked is not None and slope is not None:
            linked.mul_(weights)
            weights.mul_(slope)
        return _Tile(weights, linked, top, total)

    def _linking(self, rows: slice, block: _Block) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the kernels add to products: extra columns of states (h,) and items (w,), and the scale (w,)."""
        scale, extra = block.terms.scale, block.terms.extra
        assert scale is not None
        if extra is None:
            return scale.new_zeros(rows.stop - rows.start), torch.zeros_like(scale), scale
        return self.vectors[rows, self.dim], extra[:, 0], scale

    # --- gradients ---------------------------------------------------------------------------------------------------
    def _allocate_gradients(self) -> None:
        self.d_vectors = torch.zeros_like(self.vectors)
        self.d_weight = self.vectors.new_zeros(self.n_items, self.dim)
        self.d_offset = None if self.offset is None else torch.zeros_like(self.offset, dtype=self.dtype)
        self.d_theta = torch.zeros_like(self.theta) if isinstance(self.theta, Tensor) else None

    def _accumulate(
        self,
        rows: slice,
        block: _Block,
        scaled: tuple[Tensor, Tensor | None],
        tile: _Tile,
        top: Tensor,
        total: Tensor,
        row_weights: Tensor,
    ) -> None:
        """Add a tile's share to the gradients; ``top`` and ``total`` (h,) are over all items."""
        weights, vectors, (space, extra) = tile.weights, self.vectors[rows], scaled
        columns = [] if extra is None else extra.unbind(1)
        if self.fused:
            factor = row_weights / total
            sums = self._weigh(rows, block, weights, top, factor)
            mixed = [sums for _ in columns]
        else:
            factor = torch.exp(tile.top - top)
            factor = factor.masked_fill_(factor < LEAST_SHARE, 0)
            factor = (factor if self.compiled else factor * tile.total) / total * row_weights
            if block.d_extra is not None:
                for k, gradient in enumerate(block.d_extra.unbind(1)):
                    gradient.addmv_(weights.t(), vectors[:, self.dim + k] * factor)
            if block.d_scale is not None and tile.linked is not None:
                block.d_scale.addmv_(tile.linked.t(), factor)
            mixed = [weights.mv(column) for column in columns]
        self.d_vectors[rows, : self.dim].addcmul_(weights @ space, factor.unsqueeze(1))
        for k, sums in enumerate(mixed):
            self.d_vectors[rows, self.dim + k].addcmul_(sums, factor)
        self.d_weight[block.part].addmm_(weights.t(), vectors[:, : self.dim] * factor.unsqueeze(1))

    def _weigh(self, rows: slice, block: _Block, products: Tensor, top: Tensor, factor: Tensor) -> Tensor:
        """Replace products by exp(logit - top) x slope and add the column sums; return the sums of the extra column."""
        from recbole_hyper.kernels import softmax

        column, extra, scale = self._linking(rows, block)
        mixed = products.new_empty(len(products), -(-len(scale) // softmax.STRIP))
        d_extra = torch.zeros_like(scale) if block.d_extra is None else block.d_extra[:, 0]
        assert block.d_scale is not None
        sums = (mixed, d_extra, block.d_scale)
        _call(softmax.weigh_rows, products, column, extra, scale, extra * scale, top, factor, *sums)
        return mixed.sum(1)

    @torch.no_grad()
    def _score_targets(self) -> None:
        """Compute the target logits (n,), and keep what their gradient needs."""
        weight, offset = self._part(self.targets)
        terms = self._lift_items(weight, offset)
        self.target_vectors, self.target_scale = terms.vectors(weight), terms.scale
        linked = (self.vectors * self.target_vectors).sum(1)
        self.target_slope, scratch = torch.empty_like(linked), torch.empty_like(linked)
        exponent = None
        if self.lifted.exponent is not None and terms.exponent is not None:
            exponent = self.lifted.exponent + terms.exponent
        self.geometry.link_(linked, self.target_slope, scratch, exponent)
        self.target_logits = linked if terms.scale is None else linked * terms.scale

    def _finish(self, row_weights: Tensor) -> Gradients:
        """Turn the gradients of the lifted states into those of the states, and collect all gradients."""
        slope = (row_weights * self.target_slope).unsqueeze(1)
        factor = slope if self.target_scale is None else slope * self.target_scale.unsqueeze(1)
        self.d_vectors.addcmul_(self.target_vectors, factor, value=-1)
        (states,) = self._back([(self.lifted.vectors, self.d_vectors)], self.states)
        return Gradients(states, self.d_weight, self.d_offset, self.d_theta)

    def _lift_back(self, block: _Block, row_weights: Tensor) -> None:
        """Turn gradients by a block's lifts into those by weight (in place) and offset, and subtract the targets."""
        self._subtract_targets(block, row_weights)
        weight, offset = map(self.problem.leaf, self._part(block.part))
        d_weight, d_extra, d_scale = self.d_weight[block.part], block.d_extra, block.d_scale
        with torch.enable_grad():
            terms = self._lift_items(weight, offset)
        pairs: list[tuple[Tensor | None, Tensor | None]] = []
        if terms.scale is not None and d_scale is not None:
            scale = terms.scale.detach()
            d_weight.mul_(scale.unsqueeze(1))
            d_extra = None if d_extra is None else d_extra * scale.unsqueeze(1)
            pairs.append((terms.scale, d_scale / scale))
        if terms.multiplier is not None:
            pairs.append((terms.multiplier, (d_weight * weight.detach()).sum(1)))
            d_weight.mul_(terms.multiplier.detach().unsqueeze(1))
        from_weight, from_offset = self._back([*pairs, (terms.extra, d_extra)], weight, offset)
        if from_weight is not None:
            d_weight.add_(from_weight)
        if self.d_offset is not None and from_offset is not None:
            self.d_offset[block.part] = from_offset

    def _subtract_targets(self, block: _Block, row_weights: Tensor) -> None:
        """Subtract the targets among a block's items from its gradients."""
        part = block.part
        rows = ((self.targets >= part.start) & (self.targets < part.stop)).nonzero()[:, 0]
        items = self.targets[rows] - part.start
        vectors = self.vectors[rows] * (row_weights * self.target_slope)[rows].unsqueeze(1)
        shares = (vectors[:, : self.dim], vectors[:, self.dim :], (row_weights * self.target_logits)[rows])
        gradients = (self.d_weight[part], block.d_extra, block.d_scale)
        for gradient, share in zip(gradients, shares, strict=True):
            if gradient is not None:
                gradient.index_add_(0, items, share, alpha=-1)

    def _back(self, pairs: list[tuple[Tensor | None, Tensor | None]], *inputs: Tensor | None) -> list[Tensor | None]:
        """Return the gradients of ``inputs`` from pairs (output of a lift, its gradient), and add to ``d_theta``."""
        *found, by_theta = lifted_back(pairs, (*inputs, self.theta))
        if self.d_theta is not None and by_theta is not None:
            self.d_theta.add_(by_theta)
        return found


def _view(buffer: Tensor, first: int, height: int, width: int) -> Tensor:
    """Return a (height, width) view of a buffer from ``first`` on."""
    return buffer[first : first + height * width].view(height, width)


def _call(kernel: object, *tensors: Tensor) -> None:
    """Call a compiled kernel with the arrays of CPU tensors."""
    kernel(*(tensor.numpy() for tensor in tensors))  # type: ignore[operator]
