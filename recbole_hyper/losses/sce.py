"""Scalable cross-entropy: logits only in buckets of states and items with large random projections."""

import math
from typing import Annotated

import torch
from torch import Tensor

from recbole_hyper.geometry import _gather
from recbole_hyper.losses import _pairs
from recbole_hyper.losses.base import Head, Loss, Negatives
from recbole_hyper.options import Option
from recbole_hyper.values import PositiveFloat, PositiveInt


class ScalableCrossEntropy(Loss):
    """SCE (Mezentsev et al. 2024, section 3): logits only within buckets of states and items.

    A row's loss in a bucket is the cross-entropy over its target and the bucket's items. A row in several buckets keeps
    its largest loss. The result is the mean over the rows in at least one bucket. No gradient flows through the search.

    Statistics, 0-d float64: ``selected`` is the share of rows in a bucket, ``selected_once`` of rows in exactly one,
    ``positives_found`` the share of (bucket, row) pairs whose target is among the bucket's items.
    """

    def __init__(
        self,
        *,
        n_buckets: Annotated[
            PositiveInt | None,
            Option("buckets; ~ is sce_alpha * sqrt(rows / sce_beta); SCE paper", key="sce_n_buckets"),
        ] = None,
        bucket_size_x: Annotated[
            PositiveInt | None,
            Option("rows in a bucket; ~ is sce_alpha * sqrt(rows * sce_beta)", key="sce_bucket_size_x"),
        ] = None,
        bucket_size_y: Annotated[
            PositiveInt,
            Option("items in a bucket; SCE paper's grid: 64 to 4096", key="sce_bucket_size_y"),
        ] = 256,
        mix: Annotated[bool, Option("directions are mixtures of the states; SCE paper", key="sce_mix")] = True,
        alpha: Annotated[
            PositiveFloat, Option("scale of number and size of buckets; SCE paper sec. 4.2.1", key="sce_alpha")
        ] = 2.0,
        beta: Annotated[
            PositiveFloat, Option("rows per bucket over number of buckets; SCE paper sec. 4.2.1", key="sce_beta")
        ] = 1.0,
    ) -> None:
        super().__init__()
        self.n_buckets, self.bucket_size_x, self.bucket_size_y = n_buckets, bucket_size_x, bucket_size_y
        self.mix, self.alpha, self.beta = mix, alpha, beta

    def sizes(self, n: int) -> tuple[int, int]:
        """Return the number of buckets and of rows in each, for n rows in all."""
        buckets = self.n_buckets or max(1, int(self.alpha * math.sqrt(n / self.beta)))
        return buckets, min(n, self.bucket_size_x or max(1, int(self.alpha * math.sqrt(n * self.beta))))

    @torch.no_grad()
    def find_buckets(self, states: Tensor, head: Head) -> tuple[Tensor, Tensor]:
        """Return the rows (n_buckets, x) and items (n_buckets, y) of each bucket, none of which is padding.

        The bucket of direction b contains the rows with the largest <b, A_i> and the items with the largest <b, Y_j>,
        where A and Y are the geometry's search vectors. Directions are Gaussian, or Gaussian mixtures of the states
        with ``mix``. ValueError if a bucket has more items than there are.
        """
        n_items, size_y = head.n_items - (head.padding_idx is not None), self.bucket_size_y
        if size_y > n_items:
            raise ValueError(f"sce_bucket_size_y={size_y} exceeds the {n_items} items; set it to {n_items} or less")
        n_buckets, size_x = self.sizes(len(states))
        lifted = _pairs.search_states(states, head)
        columns = lifted.shape[0 if self.mix else 1]
        directions = torch.randn(n_buckets, columns, device=lifted.device, dtype=lifted.dtype)
        if self.mix:
            directions = directions @ lifted
        rows = (directions @ lifted.t()).topk(size_x, dim=1).indices
        best = lifted.new_empty(n_buckets, 0)
        items = rows.new_empty(n_buckets, 0)
        for first, vectors in _pairs.item_search_blocks(head):
            scores = directions @ vectors.to(lifted.dtype).t()
            if head.padding_idx is not None and first <= head.padding_idx < first + len(vectors):
                scores[:, head.padding_idx - first] = float("-inf")
            top = scores.topk(min(size_y, len(vectors)), dim=1)
            best = torch.cat((best, top.values), dim=1)
            items = torch.cat((items, top.indices + first), dim=1)
            if best.shape[1] > size_y:
                best, positions = best.topk(size_y, dim=1)
                items = items.gather(1, positions)
        return rows, items

    def forward(self, states: Tensor, targets: Tensor, head: Head, negatives: Negatives | None = None) -> Tensor:
        """Return the mean loss over the rows in a bucket; ``negatives`` is not used."""
        rows, items = self.find_buckets(states, head)
        n, size = len(states), rows.shape[1]
        step = max(1, _gather.numbers_at_once(states.device, _gather.LOGITS) // (size * self.bucket_size_y))
        buckets = [_pairs.Group(r, i, targets[r]) for r, i in zip(rows.split(step), items.split(step), strict=True)]
        flat = rows.reshape(-1)
        # a device computes the gradients of all pairs: to choose some would wait for their number
        whole = states.device.type != "cpu" and len(buckets) == 1
        with torch.set_grad_enabled(whole and torch.is_grad_enabled()):
            # the loss of every (bucket, row) pair, to find each row's hardest bucket; only that one needs a gradient
            candidates, positive = _pairs.group_logsumexp(head, states, targets, buckets)
            of_pairs = _pairs.softmax_loss(candidates, positive.index_select(0, flat))
        with torch.no_grad():
            # a NaN counts as the hardest, so that it reaches the loss
            pair_losses = of_pairs.nan_to_num(nan=math.inf, posinf=math.inf)
            hardest = torch.full((n,), float("-inf"), dtype=pair_losses.dtype, device=flat.device)
            hardest.scatter_reduce_(0, flat, pair_losses, "amax")
            pair = torch.arange(len(flat), device=flat.device)
            # of equal losses, the first bucket
            is_hardest = torch.where(pair_losses == hardest[flat], pair, len(flat))
            chosen = torch.full((n,), len(flat), device=flat.device).scatter_reduce_(0, flat, is_hardest, "amin")
            counts = flat.new_zeros(n).scatter_add_(0, flat, torch.ones_like(flat))
            ordered, bucket_targets = items.sort(dim=1).values, targets[rows]
            place = torch.searchsorted(ordered, bucket_targets).clamp_(max=self.bucket_size_y - 1)
            present = ordered.gather(1, place) == bucket_targets
        if whole:
            mean = torch.where(pair == chosen[flat], of_pairs, 0).sum() / (counts > 0).sum()
        else:
            chosen = chosen[chosen < len(flat)].sort().values
            selected, groups = _pairs.groups_of_sets(flat[chosen], chosen // size, items, targets, states.shape[1])
            candidates, positive = _pairs.group_logsumexp(head, states, targets, groups)
            mean = _pairs.softmax_loss(candidates, positive[selected]).mean()
        shares = {"selected": counts > 0, "selected_once": counts == 1, "positives_found": present}
        self.statistics = {name: share.float().mean().double() for name, share in shares.items()}
        # a NaN target logit makes the loss NaN even if its row is in no bucket: the item's gradient is NaN too
        return torch.where(positive.isnan().any(), math.nan, mean)
