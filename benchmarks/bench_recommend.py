"""Top 10 among 100,000 and a million items, without rules and with each rule, compared with computing the scores alone.

    make bench-recommend
    .venv/bin/python benchmarks/bench_recommend.py --threads=2 --output=results/bench_recommend.json

States and items are generated. Items lie around 16-dimensional centres and differ in length, like those of trained
models; each state is near an item. The methods take turns in one process, so that other work on the machine affects all
of them; a row has the fastest repeat. ``ratio`` is relative to computing the same scores alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from recbole_hyper.evaluation.scorers import rows_of_a_block
from recbole_hyper.evaluation.tables import table
from recbole_hyper.files import write_json
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.matmul import product_library
from recbole_hyper.serving.catalogue import Catalogue
from recbole_hyper.serving.rules import Plan, select

K = 10
SHOWN = ["items", "head", "method", "users", "users/s", "seconds", "ratio"]
RULES: dict[str, dict[str, Any]] = {
    "no rule": {},
    "where: half of the items": {"where": "price < 50"},
    "at most 2 per category": {"at_most": {"category": 2}},
    "at most 2 per category, 1 per brand": {"at_most": {"category": 2, "brand": 1}},
    "at least 3 new": {"at_least": {"interactions = 0": 3}},
    "boosts": {"boost": {f"i{item}": 0.1 for item in range(1, 1000)}},
    "diversity 0.3 by vectors": {"diversity": 0.3},
    "all of them": {
        "where": "price < 50", "at_most": {"category": 2}, "at_least": {"interactions = 0": 3}, "diversity": 0.3
    },
}  # fmt: skip


def planted(n_items: int, width: int, users: int) -> tuple[Tensor, Tensor]:
    """Return item vectors (n_items, width), and states (users, width), each near an item."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    centres = normal(1 + n_items // 100, 16) @ normal(16, width) / 4
    own = centres[torch.randint(len(centres), (n_items,), generator=generator)]
    items = (own + 0.5 * normal(n_items, width)) * torch.exp(0.2 * normal(n_items, 1)) / width**0.5
    near = items[torch.randint(1, n_items, (users,), generator=generator)]
    return items, near + 0.3 * normal(users, width) / width**0.5


def shop(items: Tensor) -> Catalogue:
    """Return a catalogue with prices, 200 categories and 5,000 brands; a tenth of the items is new."""
    generator = np.random.default_rng(0)
    n = len(items)
    counts = np.where(generator.random(n) < 0.1, 0, generator.integers(1, 1000, n))
    names = np.array(["", *(f"i{item}" for item in range(1, n))])
    columns = {
        "item_id": pa.array(names[1:]),
        "price": pa.array(generator.uniform(0, 100, n - 1)),
        "category": pa.array(generator.integers(0, 200, n - 1)),
        "brand": pa.array(generator.integers(0, 5000, n - 1)),
    }
    return Catalogue(names, counts, vectors=items.numpy).with_columns(pa.table(columns), "item_id")


def fastest(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the seconds of the fastest call of each run; the first call does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    return {name: min(spent) for name, spent in seconds.items()}


def measured(
    name: str, head: OutputHead, states: Tensor, catalogue: Catalogue, repeats: int
) -> list[dict[str, object]]:
    """Return a row for the scores alone, for RecBole's method, and for each rule."""
    rows, frozen = rows_of_a_block(head.n_items, 256 << 20), head.frozen()
    generator = np.random.default_rng(1)
    seen = generator.integers(1, head.n_items, (len(states), 50))

    def blocks(work: Callable[[Tensor, slice], object]) -> Callable[[], None]:
        def run() -> None:
            for start in range(0, len(states), rows):
                part = slice(start, start + rows)
                work(frozen.scores(states[part]), part)

        return run

    def under(plan: Plan) -> Callable[[Tensor, slice], object]:
        def lists(scores: Tensor, part: slice) -> object:
            excluded = seen[part].ravel()
            offsets = np.arange(0, len(excluded) + 1, seen.shape[1])
            return select(scores.numpy(), plan, offsets, excluded)

        return lists

    def as_recbole(scores: Tensor, part: slice) -> object:
        scores[:, 0] = -torch.inf
        scores.scatter_(1, torch.from_numpy(seen[part]), -torch.inf)
        return torch.topk(scores, K)

    runs = {"scores alone": blocks(lambda scores, part: None), "as RecBole's full_sort_topk": blocks(as_recbole)}
    runs |= {rule: blocks(under(catalogue.plan(K, rules=values))) for rule, values in RULES.items()}
    seconds = fastest(runs, repeats)
    return [
        {"items": head.n_items - 1, "head": name, "method": method, "users": len(states), "seconds": spent,
         "users/s": len(states) / spent, "ratio": spent / seconds["scores alone"]}
        for method, spent in seconds.items()
    ]  # fmt: skip


def main() -> None:
    """Measure all, print the table, and write it to --output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--users", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    environment = (
        f"{platform.processor() or platform.machine()} (CPU), {arguments.threads} threads, {product_library()}, "
        f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )
    print(environment)
    rows: list[dict[str, object]] = []
    for n_items in arguments.items:
        items, states = planted(n_items + 1, arguments.width, arguments.users)
        catalogue = shop(items)
        for name, geometry in (("euclidean", Euclidean()), ("poincare", Poincare())):
            head = OutputHead(geometry, nn.Parameter(items), theta=0.05).requires_grad_(False)
            rows += measured(name, head, states, catalogue, arguments.repeats)
            if arguments.output:
                content = {"command": f"python {' '.join(sys.argv)}", "environment": environment, "rows": rows}
                write_json(arguments.output, content)
    print(table(rows, SHOWN))


if __name__ == "__main__":
    main()
