"""The best items of a mixture in another order, by small networks that read the evidence for each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, normalize

from recbole_hyper.evaluation.ranking import best_here, number_true
from recbole_hyper.models.ease_votes import EaseTable, EaseVotes
from recbole_hyper.models.item_memory import ItemMemory, VoteTable, sum_of_gains

# as many of the best items get another order
BEST = 50
# of the memories of what comes after and before an item
_DECAYS = (0.4, 0.9)
# log-probabilities are at least this, and votes count e^-9 more in their logarithm
_LEAST, _NO_VOTES = -30.0, math.exp(-9)
# weight of an item in the mean cosine, relative to the next newer one
_AGES = 0.9
# of EASE^R's votes
_EASE_DECAYS = (0.8, 0.95, 0.99)
#: what a network reads of an item: log-probabilities by network and mixture, popularity, cosines, votes, EASE^R's votes
N_EVIDENCE = 3 + 3 + 2 * len(_DECAYS) + len(_EASE_DECAYS)
#: networks, each fitted to the users of the others
N_FOLDS = 2
_WIDTH = 16
_SHAPES = {
    "mean": (N_EVIDENCE,),
    "scale": (N_EVIDENCE,),
    "linear": (N_EVIDENCE,),
    "weight": (N_EVIDENCE, _WIDTH),
    "bias": (_WIDTH,),
    "out": (_WIDTH,),
}
_SIZES = [math.prod(shape) for shape in _SHAPES.values()]
# a fit: at most so many passes, about so many steps of so many cases, rate and weight decay of Adam, the fewest cases
_PASSES, _STEPS, _BATCH, _RATE, _DECAY, _FEWEST = 40, 440, 128, 0.01, 1e-3, 50


class SparseVotes:
    """Votes of memories and of EASE^R for some items, by sparse matrices; EASE^R gives 0 where it is not fitted."""

    def __init__(self, memories: Sequence[ItemMemory], ease: EaseVotes) -> None:
        self.memories, self.ease = memories, ease

    def __call__(self, newest: Tensor, items: Tensor) -> Tensor:
        """Return the votes (n, k, V) for ``items`` (n, k) after ``newest`` (n, L), newest first."""
        recent, places, found = newest.cpu().numpy(), items.cpu().numpy(), []
        for memory in self.memories:
            found += memory.votes(recent[:, : memory.window], places, _DECAYS)
        votes = [torch.from_numpy(vote).to(items.device) for vote in found]
        offered = _EASE_DECAYS if self.ease.bits.numel() else ()
        return _joined(votes, [self.ease.scores(newest, decay).gather(1, items) for decay in offered])


class VoteTables(nn.Module):
    """:class:`SparseVotes` for a device and an exported graph."""

    def __init__(self, memories: Sequence[ItemMemory], ease: EaseVotes) -> None:
        super().__init__()
        self.memories = [VoteTable(memory) for memory in memories]
        self.tables = nn.ModuleList(self.memories)
        self.ease = EaseTable(ease) if ease.bits.numel() else None

    def forward(self, newest: Tensor, items: Tensor) -> Tensor:
        """Return the votes (n, k, V) for ``items`` (n, k) after ``newest`` (n, L), newest first."""
        found = []
        for table in self.memories:
            ages = torch.arange(table.window, device=newest.device)
            for decay in _DECAYS:
                votes, _, _ = table.after(newest[:, : table.window], decay**ages)
                found.append(votes.gather(1, items))
        ease = [] if self.ease is None else [self.ease(newest, decay).gather(1, items) for decay in _EASE_DECAYS]
        return _joined(found, ease)


def _joined(votes: list[Tensor], ease: list[Tensor]) -> Tensor:
    """Return the logarithms of ``votes`` and the scores of EASE^R, all (n, k), as (n, k, V); 0 without such scores."""
    logarithms = (torch.stack(votes, dim=2) + _NO_VOTES).log()
    blank = logarithms.new_zeros(logarithms.shape[0], logarithms.shape[1], len(_EASE_DECAYS))
    return torch.cat((logarithms, torch.stack(ease, dim=2) if ease else blank), dim=2)


class Evidence(NamedTuple):
    """The best items (n, k) of a mixture, and the evidence (n, k, N_EVIDENCE) for each."""

    items: Tensor
    values: Tensor


class Changes(NamedTuple):
    """The best items (n, k) of a mixture, and what a reranker adds to the log-probability of each (n, k)."""

    items: Tensor
    values: Tensor


class EvidenceReader(nn.Module):
    """Reads the evidence for the best items after a history.

    ``votes`` are those of EASE^R, and of the memories of what comes after and before an item. ``counts`` (n_items,)
    says how often each item was chosen in training, and ``window`` how many of the newest items are compared with the
    best items. With ``exclude_seen`` no item of the history is among the best.
    """

    counts: Tensor

    def __init__(self, votes: Any, counts: Tensor, *, window: int, exclude_seen: bool) -> None:
        super().__init__()
        self.votes, self.window, self.exclude_seen = votes, window, exclude_seen
        self.register_buffer("counts", counts.float().log1p(), persistent=False)

    def forward(
        self, scores: Tensor, network: Tensor, newest: Tensor, vectors: Tensor, *, large: bool = False
    ) -> Evidence:
        """Return the evidence by mixture and network, after the ``newest`` items (n, L), newest first.

        ``scores`` (n, n_items) are log-probabilities of the mixture, ``network`` (n, n_items) those of the network, and
        ``vectors`` (n_items, d) those of the items. If there are ``large`` numbers of scores on a CPU, a kernel finds
        the best items, and overwrites the scores of those that are left out.
        """
        k = min(BEST, scores.shape[1] - 1)
        if large:
            items = best_here(scores, newest if self.exclude_seen else newest[:, :0], k)
            best = scores.gather(1, items)
        else:
            shown = scores.scatter(1, newest, -math.inf) if self.exclude_seen else scores
            best, items = shown.topk(k, dim=1)
        recent = newest[:, : self.window]
        known = (recent > 0)[:, None]
        best_vectors, recent_vectors = (normalize(embedding(part, vectors), dim=2) for part in (items, recent))
        cosines = best_vectors @ recent_vectors.transpose(1, 2) * known
        ages = _AGES ** torch.arange(self.window, device=newest.device)
        own = (network.gather(1, items).clamp(min=_LEAST), best.clamp(min=_LEAST), self.counts[items])
        alike = (cosines[:, :, 0], cosines.amax(dim=2), cosines @ ages)
        return Evidence(items, torch.cat((torch.stack((*own, *alike), dim=2), self.votes(newest, items)), dim=2))


class CasesOfReranker(NamedTuple):
    """Cases to fit a :class:`Reranker` to, on a CPU."""

    items: Tensor  # (m, k) the best items of the mixture
    evidence: Tensor  # (m, k, N_EVIDENCE)
    scores: Tensor  # (m, k) log-probabilities of the best items by the mixture, -inf for hidden items
    places: Tensor  # (m,) places of the targets among the best items, -1 for others
    folds: Tensor  # (m,) the fold of each user, from 0 to N_FOLDS - 1

    def gain(self, changes: Tensor) -> float:
        """Return by how much NDCG@10 rises in the mean of the cases with these ``changes`` (m, k) of their scores."""
        return (ndcg(self.scores + changes, self.places) - ndcg(self.scores, self.places)) / len(self.folds)


class Reranker(nn.Module):
    r"""Small networks that move probability between the best items of a mixture.

    With the log-probability :math:`s_j` of item j by the mixture and the evidence for it :math:`x_j`, standardized, a
    network gives

    .. math:: s'_j = s_j + a^\top x_j + w^\top \tanh(V x_j + b),

    and the probability of the best items together is distributed among them in proportion to :math:`e^{s'_j}`. All
    other items keep theirs. Zeros, as before :meth:`fit`, change nothing.

    There are two networks, and :math:`s'` is the mean of theirs. Each is fitted to half of the users, so that the other
    half tells what it gains.
    """

    bits: Tensor

    def __init__(self) -> None:
        super().__init__()
        # the numbers as integers, because an average of the model's weights leaves integers alone
        self.register_buffer("bits", torch.zeros(N_FOLDS, sum(_SIZES), dtype=torch.int32))

    @property
    def is_fitted(self) -> bool:
        """Whether it changes anything."""
        return bool(self.bits.any())

    @property
    def numbers(self) -> Tensor:
        """The numbers of each network (N_FOLDS, P)."""
        return self.bits.view(torch.float32)

    def reset(self) -> None:
        """Change nothing from now on."""
        self.bits.zero_()

    def forward(self, evidence: Tensor, folds: Tensor | None = None) -> Tensor:
        """Return what the networks add to the scores of items (n, k), given the ``evidence`` (n, k, N_EVIDENCE).

        With the ``folds`` (n,) of the users, on a CPU, those networks that were not fitted to them.
        """
        return _changes(evidence, self.numbers.to(evidence.device), folds)

    def fit(self, cases: CasesOfReranker) -> None:
        """Fit each network to the cases of its users.

        By cross-entropy over the best items, for the cases whose targets are among these, in a few hundred steps of
        Adam on a CPU. If a fold has fewer than 50 such cases, nothing is changed.
        """
        self.reset()
        found = cases.places >= 0
        own = [found & (cases.folds == fold) for fold in range(N_FOLDS)]
        if min(int(one.sum()) for one in own) >= _FEWEST:
            numbers = [_fit(cases.evidence[one], cases.scores[one], cases.places[one]) for one in own]
            self.bits.copy_(torch.stack(numbers).view(torch.int32))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        state_dict.setdefault(prefix + "bits", self.bits)  # a file of an earlier version has none
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class RerankingTable(nn.Module):
    """A fitted :class:`Reranker` for an exported graph, in which all its numbers are constants."""

    numbers: Tensor
    vectors: Tensor

    def __init__(self, reader: EvidenceReader, reranker: Reranker, vectors: Tensor) -> None:
        super().__init__()
        self.reader = reader
        # float32 numbers: a graph cannot read the bits of integers
        self.register_buffer("numbers", reranker.numbers.clone())
        self.register_buffer("vectors", vectors)

    def forward(self, scores: Tensor, network: Tensor, newest: Tensor) -> Tensor:
        """Return the log-probabilities (n, n_items) for those of the mixture, ``scores`` (n, n_items)."""
        evidence = self.reader(scores, network, newest, self.vectors)
        return reranked(scores, Changes(evidence.items, _changes(evidence.values, self.numbers)))


def reranked(scores: Tensor, changes: Changes) -> Tensor:
    """Return the ``scores`` (n, n_items), in which this replaces those of the best items."""
    old = scores.gather(1, changes.items)
    new = (old + changes.values).log_softmax(dim=1) + old.logsumexp(dim=1, keepdim=True)
    return scores.scatter_(1, changes.items, new)


def ndcg(scores: Tensor, places: Tensor) -> float:
    """Return the sum of NDCG@10 for the ``scores`` (m, k) of the best items and the ``places`` (m,) of the targets."""
    target = scores.gather(1, places.clamp(min=0)[:, None])
    return float(sum_of_gains(1 + number_true(scores > target), places >= 0))


def _changes(evidence: Tensor, numbers: Tensor, folds: Tensor | None = None) -> Tensor:
    """Return what the networks with these ``numbers`` (N_FOLDS, P) add to each score (n, k).

    They have equal weight; with the ``folds`` (n,) of the users, on a CPU, those that were not fitted to the user.
    """
    if folds is None:
        return torch.stack([_change(evidence, one) for one in numbers]).mean(dim=0)
    changes = evidence.new_zeros(evidence.shape[:2])
    for fold, one in enumerate(numbers):
        others = (folds != fold).nonzero()[:, 0].to(evidence.device)
        changes[others] += _change(evidence[others], one) / (N_FOLDS - 1)
    return changes


def _parts(numbers: Tensor, first: int = 0) -> list[Tensor]:
    """Return the parts of ``numbers`` that begin with the part ``first``, in their shapes."""
    shapes = list(_SHAPES.values())[first:]
    return [part.view(shape) for part, shape in zip(numbers.split(_SIZES[first:]), shapes, strict=True)]


def _change(evidence: Tensor, numbers: Tensor) -> Tensor:
    mean, scale, *learned = _parts(numbers)
    return _added((evidence - mean) * scale, *learned)


def _added(inputs: Tensor, linear: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    # tanh x = 2 sigmoid 2x - 1, which torch computes several times as quickly on a CPU
    hidden = (inputs @ (2 * weight) + 2 * bias).sigmoid()
    return inputs @ linear + hidden @ (2 * out) - out.sum()


def _fit(evidence: Tensor, scores: Tensor, places: Tensor) -> Tensor:
    """Return the numbers (P,) of a network fitted to the ``evidence`` (m, k, N_EVIDENCE) and ``places`` (m,)."""
    draws = torch.Generator().manual_seed(0)
    numbers = torch.zeros(sum(_SIZES))
    mean, scale, *learned = _parts(numbers)
    mean.copy_(evidence.mean((0, 1)))
    scale.copy_(1 / evidence.flatten(0, 1).std(0).clamp(min=1e-3))
    learned[1].normal_(0, N_EVIDENCE**-0.5, generator=draws)
    inputs = (evidence - mean) * scale
    fixed, trained = numbers.split([sum(_SIZES[:2]), sum(_SIZES[2:])])
    trained = trained.clone().requires_grad_()
    passes = min(_PASSES, max(1, round(_STEPS * _BATCH / len(places))))
    optimizer = torch.optim.Adam([trained], lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, passes)
    for _ in range(passes):
        for batch in torch.randperm(len(places), generator=draws).split(_BATCH):
            # index_select copies whole rows, an index each number by itself
            own = inputs.index_select(0, batch)
            optimizer.zero_grad()
            with torch.enable_grad():
                changed = scores[batch] + _added(own, *_parts(trained, 2))
                loss = cross_entropy(changed, places[batch])
            loss.backward()
            optimizer.step()
        schedule.step()
    return torch.cat((fixed, trained.detach()))
