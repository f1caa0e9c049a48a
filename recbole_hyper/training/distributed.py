"""Data-parallel training of one model: Ray Train starts the processes, torch's DistributedDataParallel joins them.

Every process holds the model, reads the same batches in the same order, and computes the loss of its share of each
batch's sequences. Shares are weighted by their supervised positions, so that the summed gradient is that of the whole
batch: without dropout, and with a loss that is a mean over positions without sampling (ce), training equals that of one
process up to rounding. Sampled negatives, dropout and the buckets of sce are drawn by each process for its own share.
Validation and test cases are ranked in shares as well, and the ranks are brought together.
"""

import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from recbole.data.interaction import Interaction
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recbole_hyper.config import Config
from recbole_hyper.data.dataset import TARGET_LIST, SequenceDataset
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.threads import processors
from recbole_hyper.training.build import read_data
from recbole_hyper.training.cluster import cluster
from recbole_hyper.training.shared import mapped, share
from recbole_hyper.types import Ranks, Split

# below the folder of the run, and removed at its end: the data, which every process maps into memory, and what Ray
# writes; no one else gives a folder this name
SCRATCH = ".workers"
SHARED = f"{SCRATCH}/data"


def world() -> tuple[int, int]:
    """Return (rank of this process, number of processes); (0, 1) where there is one."""
    many = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if many else (0, 1)


class Shares:
    """A training loader that hands on every ``size``-th row of each batch, from row ``rank``, and reads no other.

    A batch with fewer rows than processes leaves some processes without a row: they get the first one, marked by
    ``weight`` 0, because every process must take part in every step.
    """

    def __init__(self, loader: Any, rank: int, size: int) -> None:
        self.loader, self.rank, self.size = loader, rank, size
        self.weight = 1

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Interaction]:
        for batch, mine in self.loader.share(self.rank, self.size):
            self.weight = int(mine)
            yield batch


class _Loss(nn.Module):
    """The training loss as a module's forward, which is what DistributedDataParallel hooks into."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, interaction: Interaction) -> Tensor:
        return self.model.calculate_loss(interaction)


class WholeBatchLoss:
    """The loss of the whole batch from the shares of all processes; its gradient is that of the mean over positions."""

    def __init__(self, model: nn.Module, shares: Shares) -> None:
        self.shares = shares
        self.module = DistributedDataParallel(_Loss(model))

    def __call__(self, interaction: Interaction) -> Tensor:
        """Return the loss, shape (); its value is the same in every process."""
        targets = interaction[TARGET_LIST]
        own = self.shares.weight * int((targets != 0).sum())
        total = torch.tensor([float(own)], device=targets.device)
        dist.all_reduce(total)
        # DistributedDataParallel takes the mean over processes, hence the factor
        loss = self.module(interaction) * (self.shares.size * own / total[0])
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        return loss + (whole / self.shares.size - loss.detach())


def prepare(trainer: Any, loader: Any) -> Any:
    """Make ``trainer`` and the returned loader one of several processes; changes nothing where there is one."""
    rank, size = world()
    if size == 1:
        return loader
    shares = Shares(loader, rank, size)
    loss = WholeBatchLoss(trainer.model, shares)
    train_epoch, rank_cases = trainer._train_epoch, trainer.rank

    def whole_epoch(train_data: Any, epoch: int, loss_func: Any = None, show_progress: bool = False) -> Any:
        return train_epoch(train_data, epoch, loss, show_progress)

    trainer._train_epoch, trainer.rank = whole_epoch, functools.partial(_rank_shares, rank_cases)
    # the parameters are equal now; dropout and negatives of the shares must not be
    torch.manual_seed(int(trainer.config["seed"]) + rank)
    return shares


def _rank_shares(rank_cases: Any, evaluation: Any, show_progress: bool = False) -> Ranks:
    """Rank this process's part of the cases and return the ranks of all."""
    rank, size = world()
    bounds = np.linspace(0, len(evaluation), size + 1).astype(int)
    part = dataclasses.replace(evaluation, cases=evaluation.cases[bounds[rank] : bounds[rank + 1]])
    own = rank_cases(part, show_progress) if len(part) else None
    parts: list[Any] = [None] * size
    dist.all_gather_object(parts, own)
    parts = [entry for entry in parts if entry is not None]
    return Ranks(
        np.concatenate([entry.ranks for entry in parts]),
        np.concatenate([entry.n_candidates for entry in parts]),
        np.concatenate([entry.top_items for entry in parts]),
        float(np.average([entry.tied for entry in parts], weights=[len(entry.ranks) for entry in parts])),
    )


def run_workers(
    config: Config,
    output_dir: Path,
    work: Callable[..., Any],
    read: Callable[[Config], tuple[SequenceDataset, Split]] | None = None,
) -> dict[str, Any]:
    """Train and test the run of ``config`` on ``num_workers`` processes and return its result.json.

    ``output_dir`` is the folder of the run, to which rank 0 writes; on more than one machine it must be shared by all.
    Every process calls ``work`` with its configuration, its folder and ``read``, which gives the data; the argument
    ``read`` gives data and split in the place of the atomic files. ConfigError for a resumed run, or a cluster that is
    not there or too small; RuntimeError, with its message, where a process failed.
    """
    workers = int(config["num_workers"])
    if config["resume"]:
        raise ConfigError("a run on several workers cannot be resumed; start it again in another output_dir")
    if not issubclass(config.model_class, HyperRecommender):
        raise ConfigError(f"num_workers={workers}: {config['model']} is fitted in one process; leave num_workers out")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    use_gpu = torch.cuda.is_available() and bool(config["use_gpu"])
    folder = output_dir.absolute()
    threads = int(config["n_threads"] or max(1, processors() // workers))
    share(*(read or read_data)(config), folder / SHARED)
    settings = {**config.plain(), "num_workers": 1, "n_threads": threads, "show_progress": False}
    settings["data_path"] = str(Path(settings["data_path"]).absolute())
    arguments = {"work": work, "settings": settings, "folder": str(folder), "use_gpu": use_gpu}
    with cluster(config["ray_address"]) as ray:
        total = ray.cluster_resources()
        if total.get("GPU" if use_gpu else "CPU", 0) < workers:
            raise ConfigError(
                f"num_workers={workers}: the cluster has {total.get('CPU', 0):g} cores and {total.get('GPU', 0):g} GPUs"
            )
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            _worker,
            train_loop_config=arguments,
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=use_gpu),
            run_config=RunConfig(name="workers", storage_path=str(folder / SCRATCH / "ray")),
        )
        try:
            trainer.fit()
        except Exception as error:
            raise RuntimeError(f"training on {workers} workers failed: {error}") from error
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return read_json(folder / "result.json")


def _worker(arguments: Mapping[str, Any]) -> None:
    """Run in every process: rank 0 writes to the folder of the run, the others to one that is removed."""
    rank, _ = world()
    folder = Path(arguments["folder"])
    settings = dict(arguments["settings"])
    if arguments["use_gpu"]:
        # Ray has chosen this process's device; RecBole would choose the first one
        settings["gpu_id"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    with tempfile.TemporaryDirectory(prefix="recbole-hyper-") as scratch:
        # the process that started this one has claimed the folder
        own = folder if rank == 0 else Path(scratch)
        settings |= {"output_dir": str(own), "log_wandb": bool(settings["log_wandb"]) and rank == 0}
        config = Config(settings["model"], settings["dataset"], config_dict=settings)
        arguments["work"](config, own, read=lambda config: mapped(config, folder / SHARED, test=True))
        dist.barrier()
