"""Training on several processes: each gets a share of every batch, and the loss is that of the whole batch.

``torchrun --nproc_per_node=2 -m recbole_hyper run ...`` starts them. Every process has the whole model and computes the
loss of its share of each batch's sequences. Shares are weighted by their number of targets, so the summed gradient is
that of the whole batch. Without dropout, and with a loss that is a mean over positions without sampling (ce), training
equals that of one process up to rounding. Each process draws negatives, dropout and the buckets of sce for its share.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recbole_hyper.host.dataset import TARGET_LIST


def world() -> tuple[int, int]:
    """Return (rank of this process, number of processes), (0, 1) for a single process."""
    many = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if many else (0, 1)


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[int]:
    """Join the processes that torchrun started during a block, and yield the rank of this one; 0 without torchrun."""
    if not dist.is_torchelastic_launched():
        yield 0
        return
    dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def gathered(value: Any) -> list[Any]:
    """Return the ``value`` of every process, by rank; all processes must call this."""
    _, processes = world()
    if processes == 1:
        return [value]
    values: list[Any] = [None] * processes
    dist.all_gather_object(values, value)
    return values


class Shares:
    """A training loader that yields every ``size``-th row of a batch; if there is none, the first with ``weight`` 0."""

    def __init__(self, loader: Any, rank: int, size: int) -> None:
        self.loader, self.rank, self.size = loader, rank, size
        self.generator = loader.generator
        self.weight = 1

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch, weight in self.loader.share(self.rank, self.size):
            self.weight = int(weight)
            yield batch


class WholeBatchLoss(nn.Module):
    """The loss of the whole batch, from the shares of all processes."""

    def __init__(self, model: Any, shares: Shares) -> None:
        super().__init__()
        # DistributedDataParallel hooks into a module's forward
        own = nn.Module()
        own.model, own.forward = model, model.calculate_loss
        self.shares, self.module = shares, DistributedDataParallel(own)

    def forward(self, interaction: Any) -> Tensor:
        """Return the loss, shape (), with the same value in every process."""
        targets = interaction[TARGET_LIST]
        own = self.shares.weight * (targets != 0).sum().float()
        total = own.clone()
        dist.all_reduce(total)
        # the factor undoes DistributedDataParallel's mean over processes
        loss = self.module(interaction) * (self.shares.size * own / total)
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        return loss + (whole / self.shares.size - loss.detach())


def shared_work(model: Any, loader: Any, seed: int) -> tuple[Any, Any]:
    """Return (batches, loss function): those of the loader and the model, or a share of them on several processes."""
    rank, size = world()
    if size == 1:
        return loader, model.calculate_loss
    shares = Shares(loader, rank, size)
    loss = WholeBatchLoss(model, shares)
    # all processes have equal parameters by now, but need different dropout and negatives
    torch.manual_seed(seed + rank)
    return shares, loss
