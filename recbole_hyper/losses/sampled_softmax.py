"""Softmax cross-entropy over the target and a sample of items that all rows share, corrected for how it was drawn."""

import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.euclidean import Flat
from recbole_hyper.losses import _chunks
from recbole_hyper.losses.base import Head


class _Sampled(torch.autograd.Function):
    """The weighted sum of the losses; a chunk of rows computes its gradients with them, so that no logits stay."""

    @staticmethod
    def forward(ctx, states, own, vectors, offset, theta, geometry: Geometry, correction, places, row_weights):
        needed = zip((vectors, offset, theta), ctx.needs_input_grad[2:5], strict=True)
        shared = [one.detach().requires_grad_(need) if isinstance(one, Tensor) else one for one, need in needed]
        trained = [one for one in shared if isinstance(one, Tensor) and one.requires_grad]
        sums = [torch.zeros_like(one) for one in trained]
        total, by_states, by_own = own.new_zeros(()), [], []
        rows = max(1, _gather.numbers_at_once(own.device, _gather.LOGITS) // len(vectors))
        for part in _chunks.spans(0, len(own), rows):
            chunk = states.detach()[part].requires_grad_(ctx.needs_input_grad[0])
            with torch.enable_grad():
                logits = geometry.logits(chunk, *shared[:2], theta=shared[2])
            scored, place = logits.detach(), places[part, None]
            scored = scored if correction is None else scored - correction
            # finite, so that a row without candidates has a gradient of 0, not NaN
            lowest, column = torch.finfo(scored.dtype).min / 4, place.clamp(min=0)
            scored.scatter_(1, column, scored.gather(1, column).masked_fill_(place >= 0, lowest))
            shares = scored.softmax(dim=1)
            # the largest share is exp(0) / sum(exp(logit - largest))
            lead = scored.amax(dim=1) - shares.amax(dim=1).log() - own[part]
            total += F.softplus(lead).dot(row_weights[part])
            factor = lead.sigmoid() * row_weights[part]
            by_own.append(-factor)
            if logits.requires_grad:
                wanted = [chunk, *trained] if chunk.requires_grad else trained
                shares.mul_(factor[:, None])
                # a flat head does not use its theta
                found = list(torch.autograd.grad(logits, wanted, shares, materialize_grads=True))
                by_states += [found.pop(0)] if chunk.requires_grad else []
                for one, more in zip(sums, found, strict=True):
                    one.add_(more)
        left = iter(sums)
        of_shared = (next(left) if isinstance(one, Tensor) and one.requires_grad else None for one in shared)
        ctx.gradients = [torch.cat(by_states) if by_states else None, torch.cat(by_own), *of_shared]
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        return *_chunks.kept_gradients(ctx, gradient), *(None,) * 4


def sampled_softmax(
    states: Tensor,
    targets: Tensor,
    head: Head,
    items: Tensor,
    log_expected: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Return the mean of :math:`-\log\big(e^{s_t} / (e^{s_t} + \sum_{j \in S, j \ne t} e^{s_j} / E_j)\big)`.

    S are ``items`` (k,), drawn with replacement, and ``log_expected`` (k,) is :math:`\log E_j`, how often j is expected
    among them: the sum is then an unbiased estimate of that over all other items (Bengio and Senecal 2008), so the loss
    tends to the exact cross-entropy as k grows. With ``weights`` (n,) the result is the weighted sum. The logits
    (n, k) exist for some rows at once, and one backward is possible.
    """
    geometry, both = head.geometry, torch.cat((items, targets))
    # vectors of items and targets together, as each gather has a gradient of the catalogue's size
    vectors, own_vectors = F.embedding(both, head.weight).split([len(items), len(targets)])
    offset = own_offset = None
    if head.offset is not None:
        offset, own_offset = head.offset.index_select(0, both).split([len(items), len(targets)])
        own_offset = own_offset[:, None]
    own = geometry.pair_logits(states, own_vectors[:, None], own_offset, theta=head.theta)[:, 0]
    places, correction = _merged(items, log_expected.to(own.dtype), targets, head.n_items)
    late = None if isinstance(geometry, Flat) else correction
    if late is None:  # an offset is added to the product
        offset = -correction if offset is None else offset - correction
    row_weights = own.new_full((len(own),), 1 / len(own)) if weights is None else weights.to(own.dtype)
    states, vectors = states.to(own.dtype), vectors.to(own.dtype)
    return _Sampled.apply(states, own, vectors, offset, head.theta, geometry, late, places, row_weights)


def _merged(items: Tensor, log_expected: Tensor, targets: Tensor, n_items: int) -> tuple[Tensor, Tensor]:
    """Return each target's place among ``items`` (n,), -1 for none, and what is subtracted from the items' logits (k,).

    An item that was drawn several times counts at one place only, so that a row leaves out one place at most.
    """
    numbers = torch.arange(len(items), device=items.device)
    place = torch.full((n_items,), -1, device=items.device).scatter_reduce_(0, items, numbers, "amax")
    times = torch.zeros(n_items, dtype=log_expected.dtype, device=items.device)
    times = times.scatter_add_(0, items, torch.ones_like(log_expected))[items]
    nothing = -torch.finfo(log_expected.dtype).min / 4
    return place[targets], (log_expected - times.log()).masked_fill_(place[items] != numbers, nothing)
