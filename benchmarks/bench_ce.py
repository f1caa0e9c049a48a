"""Exact cross-entropy, forward and backward, compared with its matrix products alone and with full logits.

    make bench-ce            (or: python benchmarks/bench_ce.py --items 10000 100000 --threads 2 --output FOLDER)

For each catalogue it measures: the three matrix products that the mathematics needs (logits, gradient of states,
gradient of items), cut into tiles that stay in cache, with plain torch and with the library that our loss uses
(float32_products); our loss with both heads, also with sharp logits, which are far apart; torch's chunked
linear_cross_entropy; and the naive formula over full logits, if they fit. All methods take turns in one process; times
are medians of the repeats. Extra memory is the allocator's peak without the gradients of the parameters. On a busy
machine measure processor time: --processor --threads 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from recbole_hyper import registry
from recbole_hyper.losses.ce import exact_cross_entropy
from recbole_hyper.matmul import float32_products
from tests.reference.allocation import peak_bytes


def environment() -> str:
    """Return one line on device, threads and versions."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.split(":")[1].strip()
            break
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads, load {load:.1f}, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def bare_products(states: Tensor, weight: Tensor, rows: int = 256, block: int = 2048) -> None:
    """Compute the three products alone, in the fastest tiles."""
    d_states, d_weight = torch.zeros_like(states), torch.zeros_like(weight)
    tile = states.new_empty(rows * block)
    for first in range(0, len(states), rows):
        own, d_own = states[first : first + rows], d_states[first : first + rows]
        for start in range(0, len(weight), block):
            items = weight[start : start + block]
            logits = tile[: len(own) * len(items)].view(len(own), len(items))
            torch.mm(own, items.t(), out=logits)
            d_own.addmm_(logits, items)
            d_weight[start : start + block].addmm_(logits.t(), own)


def fast_products(states: Tensor, weight: Tensor) -> None:
    """Compute the same with the library that the loss uses."""
    with float32_products(states.device):
        bare_products(states, weight)


def seconds(calls: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the median seconds of each call. The calls take turns, so that a slow moment affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        if repeats > 1:
            call()
        del name
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            call()
            times[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=0, help="0: 5, 3 and 1 for the three catalogues")
    parser.add_argument("--naive-bytes", type=float, default=6e9, help="largest full logits with their copies")
    parser.add_argument(
        "--budget", type=int, help="memory_budget of our loss; a small one gives the tiles of 1,000,000 items"
    )
    parser.add_argument("--processor", action="store_true", help="measure processor time instead of wall time")
    parser.add_argument("--output", type=Path, help="folder of bench_ce.json; default: print only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(environment())
    print(f"{options.rows} states, width {options.width}, float32, forward + backward")
    print(
        f"{'items':>9} {'method':<26} {'seconds':>8} {'x products':>10} {'x fast':>7} {'x euclid.':>9} {'extra MB':>9}"
    )
    found = []
    for n_items in options.items:
        states = torch.randn(options.rows, options.width, requires_grad=True)
        weight = (0.1 * torch.randn(n_items, options.width)).requires_grad_()
        offset = torch.zeros(n_items, requires_grad=True)
        targets = torch.randint(1, n_items, (options.rows,))
        geometries = {name: registry.resolve("geometry", name)() for name in ("euclidean", "poincare")}
        # logits that are far apart: nearly all shares are 0
        sharp = (10 * weight.detach()).requires_grad_()

        def ours(
            name: str, weight=weight, theta=0.02, states=states, offset=offset, targets=targets, known=geometries
        ) -> None:
            own = offset if name == "poincare" else None
            how = {"theta": theta, "padding_idx": 0, "memory_budget": options.budget}
            loss = exact_cross_entropy(states, targets, weight, own, known[name], **how)
            torch.autograd.grad(loss, [t for t in (states, weight, own) if t is not None])

        def naive(name: str, states=states, weight=weight, offset=offset, targets=targets, known=geometries) -> None:
            own = offset if name == "poincare" else None
            loss = F.cross_entropy(known[name].logits(states, weight, own, theta=0.02), targets)
            torch.autograd.grad(loss, [t for t in (states, weight, own) if t is not None])

        def chunked(states=states, weight=weight, targets=targets) -> None:
            loss = F.linear_cross_entropy(states, weight, targets, options=torch.nn.LinearCrossEntropyOptions())
            torch.autograd.grad(loss, [states, weight])

        calls: dict[str, Callable[[], object]] = {
            "products": lambda s=states, w=weight: bare_products(s.detach(), w.detach()),
            "products, fast library": lambda s=states, w=weight: fast_products(s.detach(), w.detach()),
            "euclidean, ours": lambda: ours("euclidean"),
            "poincare, ours": lambda: ours("poincare"),
            "euclidean, ours, sharp": lambda w=sharp: ours("euclidean", w),
            "poincare, ours, sharp": lambda w=sharp: ours("poincare", w, 0.1),
        }
        full = 4 * options.rows * n_items
        if hasattr(torch.nn, "LinearCrossEntropyOptions") and full * 2 <= options.naive_bytes:
            calls["euclidean, torch chunked"] = chunked
        if full * 3 <= options.naive_bytes:
            calls["euclidean, full logits"] = lambda: naive("euclidean")
        if full * 8 <= options.naive_bytes:
            calls["poincare, full logits"] = lambda: naive("poincare")
        repeats = options.repeats or (5 if n_items <= 20_000 else 3 if n_items <= 200_000 else 1)
        times = seconds(calls, repeats, time.process_time if options.processor else time.perf_counter)
        for name, value in times.items():
            extra = float("nan")
            if "products" not in name and ("ours" in name or n_items <= 20_000):
                extra = peak_bytes(calls[name], 4 * n_items * options.width, 4 * n_items) / 1e6
            row = {
                "items": n_items,
                "method": name,
                "seconds": value,
                "times_products": value / times["products"],
                "times_fast_products": value / times["products, fast library"],
                "times_euclidean": value / times["euclidean, ours"],
                "extra_megabytes": extra,
            }
            found.append(row)
            print(
                f"{n_items:>9} {name:<26} {value:>8.3f} {row['times_products']:>10.2f} "
                f"{row['times_fast_products']:>7.2f} {row['times_euclidean']:>9.2f} {extra:>9.1f}",
                flush=True,
            )
    if options.output is None:
        return
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "bench_ce.json"
    path.with_suffix(".tmp").write_text(json.dumps({"environment": environment(), "rows": found}, indent=1))
    path.with_suffix(".tmp").rename(path)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
