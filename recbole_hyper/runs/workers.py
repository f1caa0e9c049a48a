"""A run on several processes, which torchrun starts; ``training.processes`` has the work of each process."""

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist

from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.threads import processors
from recbole_hyper.training.checkpoint import REFIT, STATE, WEIGHTS
from recbole_hyper.training.processes import world


@contextlib.contextmanager
def helping_folder(config: Config) -> Iterator[Path]:
    """Yield a temporary folder for a process whose files and texts nobody needs: those of rank 0 are the run's."""
    with tempfile.TemporaryDirectory(prefix="recbole-hyper-") as scratch, contextlib.redirect_stdout(io.StringIO()):
        if config["resume"] and Path(config["output_dir"]).is_dir():
            # what a resume reads, before rank 0 overwrites it
            others = lambda _, names: set(names) - {STATE, WEIGHTS, REFIT}  # noqa: E731
            shutil.copytree(config["output_dir"], scratch, ignore=others, dirs_exist_ok=True)
        config["output_dir"], config["state"], config["log_wandb"] = scratch, "ERROR", False
        yield Path(scratch)


def require_several(config: Config) -> None:
    """Prepare a run of several processes, once each has its folder; ConfigError for a model that is fitted in one."""
    size = world()[1]
    if size == 1:
        return
    if not issubclass(config.model_class, HyperRecommender):
        raise ConfigError(f"{config['model']} is fitted in one process: start it without torchrun")
    config["n_threads"] = config["n_threads"] or max(1, processors() // int(os.environ.get("LOCAL_WORLD_SIZE", size)))
    config["show_progress"] = False
    dist.barrier()
