"""Third part of the default model: small networks that rank the proposed items by the evidence for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recbole_hyper.models.evidence import N_EVIDENCE, Evidence

#: halves of the users; a network is fitted to each, and tells of the other what it is worth
N_FOLDS = 2
_WIDTH = 16
_SHAPES = (N_EVIDENCE,), (N_EVIDENCE,), (N_EVIDENCE,), (N_EVIDENCE, _WIDTH), (_WIDTH,), (_WIDTH,)
_SIZES = [math.prod(shape) for shape in _SHAPES]
# a fit: at most so many steps, and passes over the cases; cases a step, rate and weight decay of Adam
_STEPS, _PASSES, _BATCH, _RATE, _DECAY = 880, 10, 128, 0.01, 1e-3
_PRECISION = 3.0  # of the prior, around 0, of what the networks are worth


class Ranker(nn.Module):
    r"""Small networks that rank the proposed items.

    With the log-probability :math:`s_j` of item j and the evidence for it :math:`x_j`, standardized, a network gives

    .. math:: s'_j = s_j + a^\top x_j + w^\top \tanh(V x_j + b),

    and the probability of the proposed items together is distributed among them in proportion to :math:`e^{s'_j}`. All
    other items keep theirs. Zeros, as before :meth:`fit`, change nothing.

    There are two, and :math:`s'` is the mean of theirs. Each is fitted to half of the users, and the other half tells
    what it is worth. The weights file has the numbers, but they are no buffers of the state, so that an average of the
    model's weights leaves them alone.
    """

    numbers: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.zeros(N_FOLDS, sum(_SIZES)), persistent=False)

    def get_extra_state(self) -> Tensor:
        return self.numbers.clone()

    def set_extra_state(self, state: Tensor) -> None:
        self.numbers.copy_(state)

    def forward(self, evidence: Evidence, folds: Tensor | None = None) -> Tensor:
        """Return the log-probabilities (n, k) of the proposed items, -inf for empty places.

        With the ``folds`` (n,) of the users, by the networks that were not fitted to them.
        """
        new = (evidence.scores + self._change(evidence, folds)).log_softmax(dim=1)
        new = new + evidence.scores.logsumexp(dim=1, keepdim=True)
        return new.masked_fill(evidence.items == 0, -math.inf)

    def _change(self, evidence: Evidence, folds: Tensor | None) -> Tensor:
        parts, values = _parts(self.numbers), evidence.values
        if folds is None:
            return _added(values.flatten(0, 1), *parts).mean(dim=0).view_as(evidence.scores)
        return _added(values, *(part[1 - folds] for part in parts))

    def fit(self, evidence: Evidence, targets: Tensor, folds: Tensor, rows: Tensor | None = None) -> None:
        """Fit each network to the cases of its users.

        By cross-entropy over the proposed items, for the cases whose ``targets`` (n,) are among these: a few hundred
        steps of Adam, on the device where the evidence is; nothing returns to the host. What they add is then scaled by
        what it is worth for the users that they were not fitted to. The evidence may be that for some ``rows`` (m,) of
        the cases, if the others have no target among the items.
        """
        rows = torch.arange(len(targets), device=targets.device) if rows is None else rows
        hits, folds = (evidence.items == targets[rows, None]) & (evidence.items > 0), folds[rows]
        hit, places = hits.any(dim=1), hits.int().argmax(dim=1)
        own = hit & (folds == torch.arange(N_FOLDS, device=folds.device)[:, None])
        fitted = _fit(evidence, places, own, rows, len(targets)) if len(rows) else self.numbers
        self.numbers.copy_(torch.where(own.any(dim=1, keepdim=True), fitted, 0.0))
        worth = _worth(evidence.scores, self._change(evidence, folds), places, hit)
        for part in _parts(self.numbers)[2::3]:  # what a network adds is linear in these two
            part.mul_(2 * worth / (1 + worth))  # errors of one network count half in the mean of two


def _worth(scores: Tensor, change: Tensor, places: Tensor, hit: Tensor) -> Tensor:
    r"""Return the factor :math:`\beta`, from 0 to 1, by which ``change`` (n, k) predicts best what was chosen.

    .. math:: \min_\beta \; \tfrac{3}{2} \beta^2 - \sum_i \log \mathrm{softmax}(s_i + \beta c_i)_{y_i}

    With the log-probabilities s (n, k), for the cases that are a ``hit`` (n,) of their ``places`` y (n,).
    """
    chosen = change.gather(1, places[:, None])[:, 0]
    low, high = scores.new_zeros(()), scores.new_ones(())
    for _ in range(10):  # halvings
        middle = (low + high) / 2
        expected = ((scores + middle * change).softmax(dim=1) * change).sum(dim=1)
        rises = torch.where(hit, expected - chosen, 0.0).sum() + _PRECISION * middle > 0
        low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
    return low


def _parts(numbers: Tensor, first: int = 0) -> list[Tensor]:
    """Return the parts of ``numbers`` (N_FOLDS, P) that begin with the part ``first``, in their shapes."""
    parts = numbers.split(_SIZES[first:], dim=1)
    return [part.view(N_FOLDS, *shape) for part, shape in zip(parts, _SHAPES[first:], strict=True)]


def _added(values: Tensor, *parts: Tensor) -> Tensor:
    """Return what networks add (m, k) with their ``parts`` (m, ...), for ``values`` (k, N_EVIDENCE) or (m, k, ...)."""
    mean, scale, linear, weight, bias, out = parts
    rows = (values - mean[:, None]) * scale[:, None]
    # tanh x = 2 sigmoid 2x - 1, which torch computes several times as quickly on a CPU
    hidden = torch.baddbmm(2 * bias[:, None], rows, 2 * weight).sigmoid()
    added = torch.baddbmm(-out.sum(dim=1)[:, None, None], rows, linear[:, :, None])
    return torch.baddbmm(added, hidden, 2 * out[:, :, None])[:, :, 0]


def _fit(evidence: Evidence, places: Tensor, own: Tensor, rows: Tensor, n_cases: int) -> Tensor:
    """Return the numbers (N_FOLDS, P) of the networks; ``own`` (N_FOLDS, m) are the cases of each, of the ``rows``."""
    draws, device = torch.Generator().manual_seed(0), places.device
    numbers = torch.zeros(N_FOLDS, sum(_SIZES), device=device)
    mean, scale, *learned = _parts(numbers)
    for fold, cases in enumerate(own):
        weights = (cases[:, None] & (evidence.items > 0)).float().flatten()
        values, total = evidence.values.flatten(0, 1), weights.sum().clamp(min=1.0)
        mean[fold] = weights @ values / total
        scale[fold] = (weights @ (values - mean[fold]).square() / total).clamp(min=1e-6).rsqrt()
    learned[1].copy_(torch.empty(N_EVIDENCE, _WIDTH).normal_(0, N_EVIDENCE**-0.5, generator=draws))
    trained = numbers[:, sum(_SIZES[:2]) :].clone().requires_grad_()
    batches = _batches(own, rows, n_cases, draws)
    optimizer = torch.optim.Adam([trained], lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
    for batch in batches:
        # index_select copies whole rows, an index each number by itself
        values, scores = (part.index_select(0, batch.flatten()) for part in (evidence.values, evidence.scores))
        values = values.view(N_FOLDS, -1, N_EVIDENCE)
        optimizer.zero_grad()
        with torch.enable_grad():
            changed = scores + _added(values, mean, scale, *_parts(trained, 2)).view_as(scores)
            # a sum, as each network has its own cases
            loss = cross_entropy(changed, places[batch.flatten()], reduction="sum") / _BATCH
        loss.backward()
        optimizer.step()
        schedule.step()
    return torch.cat((numbers[:, : sum(_SIZES[:2])], trained.detach()), dim=1)


def _batches(own: Tensor, rows: Tensor, n_cases: int, draws: torch.Generator) -> Tensor:
    """Return cases (steps, N_FOLDS, _BATCH) of each fold: all of them in another order, again and again.

    How many cases a fold has is known on the device alone, so steps and draws follow from the number of all cases.
    """
    steps = min(_STEPS, _PASSES * math.ceil(n_cases / N_FOLDS / _BATCH))
    keys = torch.rand(_PASSES, 1, n_cases, generator=draws).to(own.device)[:, :, rows]
    passes = (keys + ~own).argsort(dim=2)  # in each pass, the fold's own cases come first
    number, draw = own.sum(dim=1).clamp(min=1)[:, None], torch.arange(steps * _BATCH, device=own.device)
    folds = torch.arange(N_FOLDS, device=own.device)[:, None]
    return passes[(draw // number) % _PASSES, folds, draw % number].view(N_FOLDS, steps, _BATCH).transpose(0, 1)
