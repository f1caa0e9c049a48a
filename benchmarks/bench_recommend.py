"""Top 10 among 100,000 and a million items: the indexes against the bare product of states and items, and peers.

    make bench-recommend
    .venv/bin/python benchmarks/bench_recommend.py --threads=2 --output=results/bench_recommend.json

States and items are planted: items lie around 16-dimensional centres and their lengths vary, as those of trained models
do; each state is near some item. Every row is the fastest of the repeats, all in one process, one after another in each
round, so that whatever else the machine does meets all of them. ``ratio`` is to the product alone over all items of a
block of states (what RecBole multiplies), ``cached`` to the same product by blocks that stay in the cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from recbole_hyper.evaluation.results import table
from recbole_hyper.files import write_json
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.matmul import float32_products, product_library
from recbole_hyper.serving.index import _ROWS, _SCORES, ExactIndex, HNSWIndex, recall

K = 10
SHOWN = ["items", "head", "method", "users", "users/s", "seconds", "ratio", "cached", "recall@10", "build s"]
Row = dict[str, object]


def planted(n_items: int, width: int, users: int) -> tuple[Tensor, Tensor]:
    """Return item vectors (n_items, width) and states (users, width) of which each is near some item."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    centres = normal(1 + n_items // 100, 16) @ normal(16, width) / 4
    own = centres[torch.randint(len(centres), (n_items,), generator=generator)]
    items = (own + 0.5 * normal(n_items, width)) * torch.exp(0.2 * normal(n_items, 1)) / width**0.5
    near = items[torch.randint(1, n_items, (users,), generator=generator)]
    return items, near + 0.3 * normal(users, width) / width**0.5


def fastest(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the fewest seconds of each, after one call that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in seconds.items()}


def products(states: Tensor, vectors: Tensor, rows: int, columns: int) -> Callable[[], None]:
    """Multiply states and items by blocks, by the faster library, and drop the results."""

    def run() -> None:
        with float32_products(states.device):
            for start in range(0, len(states), rows):
                for first in range(0, len(vectors), columns):
                    states[start : start + rows] @ vectors[first : first + columns].t()

    return run


def full_sort(states: Tensor, head: OutputHead, seen: Tensor, rows: int) -> Callable[[], None]:
    """RecBole's full_sort_topk on the same states: scores of all items, padding and seen masked, torch.topk."""

    def run() -> None:
        with torch.no_grad():
            for start in range(0, len(states), rows):
                scores = head.logits(states[start : start + rows])
                scores[:, 0] = -torch.inf
                scores.scatter_(1, seen[start : start + rows], -torch.inf)
                torch.topk(scores, K)

    return run


def measure(name: str, head: OutputHead, states: Tensor, hnsw: int, repeats: int) -> list[Row]:
    """Return the rows of one head over one catalogue; the graph is built for the first ``hnsw`` items at most."""
    n_items, users = head.n_items, len(states)
    seen = torch.randint(1, n_items, (users, 50), generator=torch.Generator().manual_seed(1))
    exclude = list(seen.numpy())
    exact = ExactIndex(head)
    lifted = head.geometry.lift_states(states, curvature=head.curvature_value, offset=head.offset is not None).vectors
    vectors = exact._lift(False)[1]
    rows = max(1, (256 << 20) // (4 * n_items))
    runs: dict[str, Callable[[], object]] = {
        "product": products(lifted, vectors, rows, n_items),
        "product, cached": products(lifted, vectors, _ROWS, max(4096, _SCORES // _ROWS)),
        "ExactIndex": lambda: exact.search(states, K),
        "ExactIndex, 50 excluded": lambda: exact.search(states, K, exclude),
        "as RecBole's full_sort_topk": full_sort(states, head, seen, rows),
    }
    more: dict[str, Row] = {"ExactIndex": {"recall@10": 1.0}, "ExactIndex, 50 excluded": {"recall@10": 1.0}}
    if n_items <= hnsw:
        start = time.perf_counter()
        index = HNSWIndex(head)
        built = time.perf_counter() - start
        for candidates in (64, 128, 256):

            def search(candidates: int = candidates) -> object:
                index.candidates = candidates
                return index.search(states, K)

            key = f"HNSWIndex, {candidates} candidates"
            runs[key] = search
            search()
            more[key] = {"recall@10": recall(index, exact, states, K), "build s": built}
            print(f"{name}, {n_items:,} items, {key}: recall@10 {more[key]['recall@10']:.4f}", flush=True)
    seconds = fastest(runs, repeats)
    return [
        {"items": n_items, "head": name, "method": key, "users": users, "seconds": spent, "users/s": users / spent,
         "ratio": spent / seconds["product"], "cached": spent / seconds["product, cached"], **more.get(key, {})}
        for key, spent in seconds.items()
    ]  # fmt: skip


def main() -> None:
    """Run all, print the table and write it where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--users", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hnsw", type=int, default=1_000_000, help="largest catalogue for which a graph is built")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    environment = (
        f"{platform.processor() or platform.machine()} (CPU), {arguments.threads} threads, {product_library()}, "
        f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )
    print(environment)
    if importlib.util.find_spec("rectools") is None:
        # its models hold no states: rows of its own, over its ranker, belong here
        print("RecTools is not installed: its recommend was left out")
    rows: list[Row] = []
    for n_items in arguments.items:
        items, states = planted(n_items, arguments.width, arguments.users)
        for name, geometry in (("euclidean", Euclidean()), ("poincare", Poincare())):
            head = OutputHead(geometry, nn.Parameter(items), offset=True, curvature=0.05)
            with torch.no_grad():
                nn.init.normal_(head.offset, std=0.05, generator=torch.Generator().manual_seed(2))  # type: ignore
            rows += measure(name, head.requires_grad_(False), states, arguments.hnsw, arguments.repeats)
            if arguments.output:
                command = f"python {' '.join(sys.argv)}"
                write_json(arguments.output, {"command": command, "environment": environment, "rows": rows})
    print(table(rows, SHOWN))


if __name__ == "__main__":
    main()
