"""How long a training will take on this device, and a sample of the items where all would take too long."""

import math
from typing import Any

import torch

from recbole_hyper.devices import synchronize
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.kernels.clock import Stopwatch
from recbole_hyper.losses.ce import exact_cross_entropy
from recbole_hyper.training.memory import Trial
from recbole_hyper.training.progress import in_time

# the longest training that a default chooses, in seconds
LONGEST = 3600.0
# items of a sampled softmax; not searched
SAMPLED_ITEMS = 4096
# about what a logit takes on a slow core, both directions: below an hour of these, nothing is measured
_SLOWEST_LOGIT = 3e-8
# rows and items of the measurement
_ROWS, _ITEMS = 256, 1 << 14


def softmax_items(
    n_logits: float, n_items: int, width: int, geometry: Geometry, device: torch.device
) -> tuple[int | None, float]:
    """Return the items to draw for the softmax of a step, None for all; and the seconds that all would take.

    ``n_logits`` are the logits of the whole training: its targets times its items. All items are taken where their
    part of the training takes at most an hour, estimated from a fraction of a step.
    """
    if n_logits * _SLOWEST_LOGIT <= LONGEST or n_items <= SAMPLED_ITEMS:
        return None, n_logits * _SLOWEST_LOGIT
    seconds = n_logits * _seconds_of_a_logit(min(n_items, _ITEMS), width, geometry, device)
    return (None if seconds <= LONGEST else SAMPLED_ITEMS), seconds


def _seconds_of_a_logit(n_items: int, width: int, geometry: Geometry, device: torch.device) -> float:
    """Return the seconds for each logit of the exact cross-entropy, with its gradients."""
    draws = torch.Generator().manual_seed(0)
    states = torch.randn(_ROWS, width, generator=draws).to(device).requires_grad_()
    weight = torch.randn(n_items, width, generator=draws).to(device).requires_grad_()
    targets = torch.randint(1, n_items, (_ROWS,), generator=draws).to(device)
    seconds = math.inf
    for _ in range(3):  # the first one may load kernels
        watch = Stopwatch()
        exact_cross_entropy(states, targets, weight, None, geometry, padding_idx=0).backward()
        synchronize(device)
        seconds = min(seconds, watch.seconds())
    return seconds / (_ROWS * n_items)


def plan(trial: Trial, batches: Any, epochs: int, n_items: int, *, exact: bool) -> str:
    """Return in a line what an epoch and the whole training will take; if more than an hour, what shortens it most.

    ``exact`` says whether the loss computes the logits of all ``n_items``.
    """
    rows, steps = max(1, min(batches.batch_size, batches.count)), len(batches)
    epoch = trial.seconds * steps * batches.share_of_longest(rows)
    text = f"an epoch of {steps} steps will take about {in_time(epoch)}, {epochs} epochs {in_time(epoch * epochs)}"
    if epoch * epochs <= LONGEST:
        return text
    if exact and n_items > 4 * SAMPLED_ITEMS:
        return f"{text}; --softmax_items={SAMPLED_ITEMS} shortens it most: a sample of the items in each step"
    fewer = max(1, int(LONGEST / epoch))
    return f"{text}; --epochs={fewer} would take {in_time(epoch * fewer)}"
