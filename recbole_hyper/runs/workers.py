"""A run on several processes, started by Ray Train; ``training.processes`` has the work of each process."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recbole_hyper.cluster import cluster
from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.runs.build import read_data, reader_of_store
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.threads import processors
from recbole_hyper.training.checkpoint import REFIT, STATE, WEIGHTS
from recbole_hyper.training.processes import world
from recbole_hyper.types import Split

# inside the folder of the run: Ray's files, and the sequences, which every process maps into memory
SCRATCH = ".workers"
SHARED = f"{SCRATCH}/data"


def run_workers(
    config: Config,
    output_dir: Path,
    work: Callable[..., Any],
    read: Callable[[Config], tuple[SequenceDataset, Split]] | None = None,
) -> dict[str, Any]:
    """Train and test the run of ``config`` on ``num_workers`` processes and return its result.json.

    Rank 0 writes to ``output_dir``, the folder of the run, which all machines must share. Every process calls ``work``
    with its configuration, its folder and a ``read``. The argument ``read`` returns data and split instead of reading
    the atomic files. ConfigError if the cluster is missing or too small; RuntimeError if a process failed.
    """
    workers = int(config["num_workers"])
    if not issubclass(config.model_class, HyperRecommender):
        raise ConfigError(f"num_workers={workers}: {config['model']} is fitted in one process; leave num_workers out")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    use_gpu = torch.cuda.is_available() and bool(config["use_gpu"])
    folder = output_dir.absolute()
    threads = int(config["n_threads"] or max(1, processors() // workers))
    settings = {**config.plain(), "resume": bool(config["resume"]), "n_threads": threads, "show_progress": False}
    settings["data_path"] = str(Path(settings["data_path"]).absolute())
    arguments = {"work": work, "settings": settings, "folder": str(folder), "use_gpu": use_gpu}
    # remove the files of a killed run now, and those of this run at the end
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    try:
        (read or read_data)(config)[0].store.save(folder / SHARED)
        _start(workers, config["ray_address"], arguments)
    finally:
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return read_json(folder / "result.json")


def _start(workers: int, address: str | None, arguments: dict[str, Any]) -> None:
    """Start the workers and wait until they end."""
    use_gpu, folder = arguments["use_gpu"], Path(arguments["folder"])
    with cluster(address) as ray:
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
            raise RuntimeError(
                f"training on {workers} workers failed: {_reason(error)}; continue with 'recbole-hyper run "
                f"--resume=True --output_dir={folder}'"
            ) from error


def _reason(error: Exception) -> str:
    """Return in one line why the workers failed: the message of one that raised, or that one was killed."""
    from ray.exceptions import RayActorError
    from ray.train import WorkerGroupError

    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    raised = [one for one in failures.values() if not isinstance(one, RayActorError)]
    if (failures and not raised) or "worker process has died" in str(error):
        return "a worker was killed, or ran out of memory"
    lines = str(raised[0] if raised else error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _worker(arguments: Mapping[str, Any]) -> None:
    """Run in every process: rank 0 writes to the folder of the run, the others to a temporary folder."""
    (rank, _), folder, settings = world(), Path(arguments["folder"]), dict(arguments["settings"])
    if arguments["use_gpu"]:
        # use the device that Ray chose; RecBole would use the first one
        settings["gpu_id"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    with tempfile.TemporaryDirectory(prefix="recbole-hyper-") as scratch:
        # the process that started this one holds the lock of the folder
        own = folder if rank == 0 else Path(scratch)
        if rank and settings["resume"]:
            # copy the files that a resume reads before rank 0 overwrites them
            needed = {STATE, WEIGHTS, REFIT}
            shutil.copytree(folder, own, ignore=lambda _, names: set(names) - needed, dirs_exist_ok=True)
        dist.barrier()
        settings |= {"output_dir": str(own), "log_wandb": bool(settings["log_wandb"]) and rank == 0}
        config = Config(stored=settings)
        arguments["work"](config, own, read=reader_of_store(SequenceStore.load(folder / SHARED)))
        dist.barrier()
