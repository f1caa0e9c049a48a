"""Recommendations for all users of a run by several processes, on this machine or on a Ray cluster."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from recbole_hyper.cluster import cluster
from recbole_hyper.errors import ConfigError, positive_int
from recbole_hyper.runs.folder import identity
from recbole_hyper.runs.load import load
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.serving.query import Query
from recbole_hyper.serving.rules import Plan
from recbole_hyper.serving.stream import Part, all_users, require_output, write_part, write_recommendations
from recbole_hyper.threads import processors

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
    ray_address: str | None = None,
) -> Path:
    """Recommend ``k`` items to every user of a finished run, like ``recbole-hyper recommend``; return the file.

    The same call continues where an earlier one was stopped, with any number of workers.

    Args:
        folder: folder of the run. All machines must reach it, and the folder of ``output``, by the same path.
        output: file that ends in .parquet or .csv.
        k, exclude_seen, items, exclude, unknown, cold, rules: as in ``Recommender.recommend``.
        catalogue: table of the items for ``rules``, see ``Recommender.use_catalogue``.
        num_workers: number of processes.
        ray_address: host:port of a running Ray cluster; None starts one on this machine.

    ConfigError if ``output`` has other content, or there is no such cluster; ValueError for a k or items that cannot be
    recommended; RuntimeError if a process failed.
    """
    output, workers = Path(output).absolute(), Workers(folder, num_workers, ray_address)
    require_output(output)
    model = load(folder)
    if catalogue is not None:
        model.use_catalogue(catalogue)
    plan = model.catalogue.plan(k, exclude_seen, items, exclude, unknown, rules)
    query = model.query(users=all_users(model), unknown=unknown, cold=cold)
    write_recommendations(model, query, output, plan=plan, identity=identity(folder), compute=workers)
    return output


@dataclass(frozen=True)
class Workers:
    """Processes that compute parts for ``write_recommendations``; ``trust`` has the arguments of ``trusting``."""

    folder: str | Path
    num_workers: int
    ray_address: str | None = None
    trust: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive_int("num_workers", self.num_workers)

    def __call__(self, query: Query, plan: Plan, missing: Sequence[Part]) -> None:
        """Write the missing parts; RuntimeError if a process failed."""
        n = min(self.num_workers, len(missing))
        with cluster(self.ray_address) as ray:
            cores = ray.cluster_resources().get("CPU", 0)
            if cores < n:
                raise ConfigError(f"num_workers={n}: the cluster has {cores:g} cores")
            from ray.util import ActorPool

            writer = ray.remote(num_cpus=1)(PartWriter)
            arguments = (str(Path(self.folder).absolute()), ray.put(plan), max(1, processors() // n), self.trust)
            pool: Any = ActorPool([writer.remote(*arguments) for _ in range(n)])
            try:
                done = pool.map_unordered(lambda one, part: one.write.remote(query[part.rows], str(part.file)), missing)
                for count, users in enumerate(done, 1):
                    logger.info("%d users (part %d of %d)", users, count, len(missing))
            except Exception as error:
                raise RuntimeError(f"recommending on {n} workers failed: {error}") from error


class PartWriter:
    """A process that loads the run once and computes parts."""

    def __init__(self, folder: str, plan: Plan, threads: int, trust: Mapping[str, Any]) -> None:
        torch.set_num_threads(threads)
        with trusting(**trust):
            self.model = load(folder)
        self.plan = plan

    def write(self, query: Query, file: str) -> int:
        """Write the answers to ``query`` into a file; return the number of users."""
        write_part(self.model.answer(query, self.plan), Path(file))
        return len(query)
