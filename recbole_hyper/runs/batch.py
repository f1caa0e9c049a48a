"""Recommendations for all users of a run by several processes: Ray Data hands out parts, each ends in a parquet file.

A part is a stretch of users in the order of the data, of a size that no number of workers changes. A call that was
stopped goes on with the parts that are missing or not as they were written.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recbole_hyper.errors import ConfigError, whole
from recbole_hyper.files import digest, read_json, write_json
from recbole_hyper.runs.load import identity, load
from recbole_hyper.serving.parts import is_complete, write_part
from recbole_hyper.serving.rules import Plan
from recbole_hyper.serving.stream import about_users
from recbole_hyper.threads import processors
from recbole_hyper.training.cluster import cluster

NOTE = "_asked.json"
_PART = re.compile(r"part-(\d{6})\.parquet")

logger = logging.getLogger("recbole_hyper")


def recommend_all(
    folder: str | Path,
    output: str | Path,
    *,
    k: int = 10,
    exclude_seen: bool | None = None,
    items: Any = None,
    exclude: Any = None,
    unknown: str = "skip",
    cold: str = "popular",
    rules: Any = None,
    catalogue: Any = None,
    num_workers: int = 2,
    users_of_a_part: int = 16_384,
    ray_address: str | None = None,
) -> list[Path]:
    """Recommend ``k`` items to every user of a finished run, and return the parquet files in the order of the users.

    Called again with the same settings it computes the parts that are missing, with any number of workers.

    Args:
        folder: of the run. On more than one machine all reach it, and ``output``, by the same path.
        output: folder of the parts: ``part-000000.parquet``, ...; one after the other they are the file that
            ``recbole-hyper recommend`` writes in one process.
        k, exclude_seen, items, exclude, unknown, cold, rules: as for ``Recommender.recommend``.
        catalogue: table of the items for ``rules``, see ``Recommender.use_catalogue``.
        num_workers, users_of_a_part: processes, each of which loads the run once; users whose items are one file.
        ray_address: a running cluster, host:port; None starts one on this machine.

    Raises:
        ConfigError: ``output`` holds parts of another run or of other settings; no cluster, or one that is too small.
        ValueError, RuntimeError: a k or items that cannot be recommended; a process failed, with its message.
    """
    folder, output = Path(folder).absolute(), Path(output).absolute()
    num_workers, size = whole("num_workers", num_workers), whole("users_of_a_part", users_of_a_part)
    model = load(folder)
    if catalogue is not None:
        model.use_catalogue(catalogue)
    plan = model.plan(k, exclude_seen, items, exclude, unknown, rules)
    users = about_users(model, None, unknown, cold)
    del model
    content = {"run": digest(identity(folder)), "users": users.n, "users_of_a_part": size, "k": int(k)}
    _claim(output, {**content, "lists": plan.digest()})
    files = [output / f"part-{number:06d}.parquet" for number in range(-(-users.n // size))]
    missing = [number for number, file in enumerate(files) if not is_complete(file)]
    if len(missing) < len(files):
        logger.info("%d of %d parts are there already", len(files) - len(missing), len(files))
    if missing:
        arguments = (str(folder), str(output), size, plan)
        _compute(arguments, missing, min(num_workers, len(missing)), ray_address)
    return files


def _compute(arguments: tuple[Any, ...], missing: list[int], workers: int, address: str | None) -> None:
    """Write the missing parts; ``arguments`` are those of :class:`PartWriter`, but for its threads."""
    with cluster(address) as ray:
        cores = ray.cluster_resources().get("CPU", 0)
        if cores < workers:
            raise ConfigError(f"num_workers={workers}: the cluster has {cores:g} cores")
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        threads = max(1, processors() // workers)
        parts = ray.data.from_items([{"part": number} for number in missing], override_num_blocks=len(missing))
        done = parts.map_batches(
            PartWriter, fn_constructor_args=(*arguments, threads), batch_size=1, concurrency=workers
        )
        try:
            for count, row in enumerate(done.iter_rows(), 1):
                logger.info("part %d: %d users (%d of %d)", row["part"], row["users"], count, len(missing))
        except Exception as error:
            raise RuntimeError(f"recommending on {workers} workers failed: {error}") from error


class PartWriter:
    """A process's share of the work: the run, loaded once, and a file for every part that it is handed."""

    def __init__(self, folder: str, output: str, size: int, plan: Plan, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = load(folder)
        self.users = about_users(self.model, None)
        self.output, self.size, self.plan = Path(output), size, plan

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Write the files of the ``part`` numbers; returns these and the users of each."""
        counts = []
        for number in batch["part"].tolist():
            query = self.users.part(number * self.size, (number + 1) * self.size)
            write_part(self.model.answer(query, self.plan), self.output / f"part-{number:06d}.parquet")
            counts.append(len(query))
        return {"part": batch["part"], "users": np.array(counts)}


def _claim(output: Path, content: Mapping[str, Any]) -> None:
    """Note in ``output`` what its parts are of, or raise ConfigError where they are of something else."""
    note = output / NOTE
    if note.is_file():
        before = read_json(note)
        pairs = {key: (before.get(key), value) for key, value in content.items()}
        changed = [f"{key}: {old!r} before, {new!r} now" for key, (old, new) in pairs.items() if old != new]
        if changed:
            raise ConfigError(f"{output} holds other recommendations ({'; '.join(changed)}); choose another folder")
        return
    if output.is_dir() and any(_PART.fullmatch(path.name) for path in output.iterdir()):
        raise ConfigError(f"{output} holds parts, but no {NOTE} that says of what; choose another folder")
    write_json(note, content)
