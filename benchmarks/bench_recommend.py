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
import os
import platform
import subprocess
import sys
import tempfile
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
# what RecTools' vector models call to recommend: all states at once, items in threads of implicit
RECTOOLS = """
import sys, time, numpy as np
from rectools.models.rank import Distance, ImplicitRanker
file, k, repeats, threads = sys.argv[1], *map(int, sys.argv[2:])
data = np.load(file)
ranker = ImplicitRanker(Distance.DOT, data["states"], data["items"], num_threads=threads)
spent = []
for _ in range(repeats + 1):
    start = time.perf_counter()
    ranker.rank(np.arange(len(data["states"])), k=k)
    spent.append(time.perf_counter() - start)
print(min(spent))
"""
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


class Case:
    """One head over one catalogue, its states and the products that everything is compared with."""

    def __init__(self, name: str, head: OutputHead, states: Tensor, repeats: int, rectools: str | None) -> None:
        self.name, self.head, self.states, self.repeats = name, head, states, repeats
        self.rectools = rectools or ""
        self.exact = ExactIndex(head)
        lifted = head.geometry.lift_states(states, curvature=head.curvature_value, offset=head.offset is not None)
        vectors = self.exact._lift(False)[1]
        self.rows = max(1, (256 << 20) // (4 * head.n_items))
        self.products: dict[str, Callable[[], object]] = {
            "product": products(lifted.vectors, vectors, self.rows, head.n_items),
            "product, cached": products(lifted.vectors, vectors, _ROWS, max(4096, _SCORES // _ROWS)),
        }

    def measured(self, runs: dict[str, Callable[[], object]], more: dict[str, Row]) -> list[Row]:
        """Return a row of each run, and of the products beside which it ran."""
        seconds = fastest({**self.products, **runs}, self.repeats)
        users, bare, cached = len(self.states), seconds["product"], seconds["product, cached"]
        return [
            {"items": self.head.n_items, "head": self.name, "method": key, "users": users, "seconds": spent,
             "users/s": users / spent, "ratio": spent / bare, "cached": spent / cached, **more.get(key, {})}
            for key, spent in seconds.items()
        ]  # fmt: skip

    def exactly(self) -> list[Row]:
        """Measure the exact index, and RecBole's way."""
        size = (len(self.states), 50)
        seen = torch.randint(1, self.head.n_items, size, generator=torch.Generator().manual_seed(1))
        exclude = list(seen.numpy())
        runs: dict[str, Callable[[], object]] = {
            "ExactIndex": lambda: self.exact.search(self.states, K),
            "ExactIndex, 50 excluded": lambda: self.exact.search(self.states, K, exclude),
            "as RecBole's full_sort_topk": full_sort(self.states, self.head, seen, self.rows),
        }
        return self.measured(runs, {})

    def by_rectools(self) -> list[Row]:
        """Measure RecTools' ranker on the same factors, in a process of its own, with the product beside it."""
        terms = self.head.geometry.search_items(self.head.weight, self.head.offset)
        lifted = self.head.geometry.search_states(self.states, offset=True)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "factors.npz"
            np.savez(file, items=terms.numpy(), states=lifted.numpy())
            options = [str(file), str(K), str(min(5, self.repeats)), str(torch.get_num_threads())]
            run = subprocess.run([self.rectools, "-c", RECTOOLS, *options], capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"RecTools failed: {run.stderr.strip().splitlines()[-1]}")
            return []
        seconds = float(run.stdout.split()[-1])
        rows = self.measured({}, {})
        more = {"method": "RecTools' ranker", "seconds": seconds, "users/s": len(self.states) / seconds}
        ratios = {
            name: seconds / float(str(row["seconds"])) for name, row in zip(("ratio", "cached"), rows, strict=True)
        }
        return [{**rows[0], **more, **ratios}]

    def by_graph(self) -> list[Row]:
        """Build the graph and measure it with several numbers of candidates."""
        start = time.perf_counter()
        index = HNSWIndex(self.head)
        built = time.perf_counter() - start
        runs: dict[str, Callable[[], object]] = {}
        more: dict[str, Row] = {}
        for candidates in (64, 128, 256):

            def search(candidates: int = candidates) -> object:
                index.candidates = candidates
                return index.search(self.states, K)

            key = f"HNSWIndex, {candidates} candidates"
            runs[key] = search
            search()
            more[key] = {"recall@10": recall(index, self.exact, self.states, K), "build s": built}
            found = f"recall@10 {more[key]['recall@10']:.4f}"
            print(f"{self.name}, {self.head.n_items:,} items, {key}: {found}", flush=True)
        return self.measured(runs, more)


def main() -> None:
    """Run all, print the table and write it where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--users", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--hnsw", type=int, default=1_000_000, help="largest catalogue for which a graph is built")
    parser.add_argument("--rectools", help="interpreter that has rectools")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    environment = (
        f"{platform.processor() or platform.machine()} (CPU), {arguments.threads} threads, {product_library()}, "
        f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )
    print(environment)
    if arguments.rectools is None:
        print("RecTools is left out: give the interpreter that has it by --rectools")
    rows: list[Row] = []
    cases = [case for n_items in arguments.items for case in both_heads(n_items, arguments)]
    graphs = [case.by_graph for case in cases if case.head.n_items <= arguments.hnsw]
    peers = [case.by_rectools for case in cases if arguments.rectools and case.name == "euclidean"]
    steps = [*(case.exactly for case in cases), *peers, *graphs]
    for number, step in enumerate(steps, start=1):
        rows += step()
        if arguments.output:
            command = f"python {' '.join(sys.argv)}"
            content = {"command": command, "environment": environment, "steps": f"{number} of {len(steps)}"}
            write_json(arguments.output, content | {"rows": rows})
    print(table(rows, SHOWN))


def both_heads(n_items: int, arguments: argparse.Namespace) -> list[Case]:
    """Return a case of each head over the same planted items."""
    items, states = planted(n_items, arguments.width, arguments.users)
    found = []
    for name, geometry in (("euclidean", Euclidean()), ("poincare", Poincare())):
        head = OutputHead(geometry, nn.Parameter(items), offset=True, curvature=0.05)
        with torch.no_grad():
            nn.init.normal_(head.offset, std=0.05, generator=torch.Generator().manual_seed(2))  # type: ignore
        found.append(Case(name, head.requires_grad_(False), states, arguments.repeats, arguments.rectools))
    return found


if __name__ == "__main__":
    main()
