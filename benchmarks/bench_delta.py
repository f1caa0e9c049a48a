"""Gromov delta: this package against the plain max-min product of Gromov products and, if installed, hypdelta.

    make bench-delta
    RECBOLE_HYPER_DATA=DIR .venv/bin/python benchmarks/bench_delta.py --dataset=ml-1m

The points are item vectors (SVD of the training part) of DIR/<dataset>/<dataset>.inter. Without data, heavy-tailed
random vectors are used, and the table says so. All methods get the same distance matrix in the same process. Times are
medians of the repeats, without compilation.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import njit, prange
from scipy.spatial.distance import squareform

from recbole_hyper.curvature.gromov import euclidean_distances, gromov_delta
from recbole_hyper.threads import default_threads


@njit(parallel=True)
def plain_product(distances: np.ndarray, base: int) -> float:
    """Return max_ij [max_k min((i|k), (k|j))] - (i|j) by three plain loops, rows in parallel."""
    n = distances.shape[0]
    rows = np.zeros(n)
    for i in prange(n):
        best = 0.0
        for j in range(i, n):
            here = distances[base, i] + distances[base, j] - distances[i, j]
            top = 0.0
            for k in range(n):
                left = distances[base, i] + distances[base, k] - distances[i, k]
                right = distances[base, j] + distances[base, k] - distances[j, k]
                top = max(top, min(left, right))
            best = max(best, top - here)
        rows[i] = best
    return 0.5 * rows.max()


@njit(parallel=True, fastmath={"nnan", "nsz"})
def vector_product(products: np.ndarray) -> float:
    """Return the same with products computed once and vector instructions: the fastest loop without pruning."""
    n = products.shape[0]
    rows = np.zeros(n)
    for i in prange(n):
        best = 0.0
        for j in range(i + 1, n):
            top = 0.0
            for k in range(n):
                top = max(top, min(products[i, k], products[j, k]))
            best = max(best, top - products[i, j])
        rows[i] = best
    return rows.max()


def vectorised(distances: np.ndarray, base: int) -> float:
    """Gromov products at the base, then :func:`vector_product`."""
    return vector_product(0.5 * ((distances[base][:, None] + distances[base][None, :]) - distances))


@njit(parallel=True)
def plain_four_points(distances: np.ndarray) -> float:
    """Return the four-point delta by looking at every quadruple once."""
    n = distances.shape[0]
    rows = np.zeros(n)
    for a in prange(n):
        best = 0.0
        for b in range(a):
            for c in range(b):
                for d in range(c):
                    x = distances[a, b] + distances[c, d]
                    y = distances[a, c] + distances[b, d]
                    z = distances[a, d] + distances[b, c]
                    largest = max(x, y, z)
                    middle = max(min(x, y), min(y, z), min(x, z))
                    best = max(best, largest - middle)
        rows[a] = best
    return 0.5 * rows.max()


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median seconds and the last value."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        value = function()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), value


def load_vectors(dataset: str, rank: int, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Return the item vectors of the data set, or random ones with norms like popularity."""
    folder = os.environ.get("RECBOLE_HYPER_DATA")
    if folder and Path(folder, dataset, f"{dataset}.inter").is_file():
        from examples.delta_study import training_matrix
        from recbole_hyper.curvature.estimate import item_vectors, trained_items

        matrix = trained_items(training_matrix(dataset, folder)[0])
        rank = min(rank, *matrix.shape)
        return item_vectors(matrix, rank), f"{dataset} item vectors, rank {rank}"
    vectors = rng.normal(size=(10_000, rank)) * rng.pareto(1.5, size=(10_000, 1))
    return vectors, f"random vectors with Pareto norms, rank {rank} (set RECBOLE_HYPER_DATA for {dataset})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument(
        "--large_dataset", default="amazon-beauty", help="more than 10,000 items, for the scaling table"
    )
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--samples", type=int, default=3, help="random samples, each with its own base")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    threads = default_threads()
    numba.set_num_threads(threads)
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, {threads} threads; Python {platform.python_version()}, "
        f"numpy {np.__version__}, numba {numba.__version__}"
    )
    vectors, label = load_vectors(arguments.dataset, arguments.rank, rng)
    small = euclidean_distances(rng.normal(size=(40, 3)))
    gromov_delta(distances=small)
    gromov_delta(distances=small, base="all")
    plain_product(small, 0), vectorised(small, 0), plain_four_points(small)

    print(f"\nFixed base, {label}, n = {arguments.n}: seconds (distances given), same points")
    print(f"{'sample':>6}{'delta_rel':>11}{'this':>9}{'plain':>9}{'ratio':>8}{'vector':>9}{'ratio':>8}  equal")
    ratios = []
    for sample in range(arguments.samples):
        chosen = rng.choice(len(vectors), min(arguments.n, len(vectors)), replace=False)
        distances = euclidean_distances(vectors[chosen])
        ours, result = timed(lambda: gromov_delta(distances=distances), 5)  # noqa: B023
        plain, first = timed(lambda: plain_product(distances, 0), 1)  # noqa: B023
        vector, second = timed(lambda: vectorised(distances, 0), 1)  # noqa: B023
        equal = abs(first - result.delta) <= 1e-12 * result.diameter and second == result.delta
        ratios.append(plain / ours)
        print(
            f"{sample:>6}{result.delta_rel:>11.4f}{ours:>9.3f}{plain:>9.2f}{plain / ours:>8.0f}{vector:>9.2f}"
            f"{vector / ours:>8.1f}  {equal}"
        )
    print(f"median ratio against the plain product: {statistics.median(ratios):.0f}")

    peer = importlib.util.find_spec("hypdelta") is not None
    if peer:
        from hypdelta.condensed import calculate_delta_condensed
        from hypdelta.delta import hypdelta

        version = importlib.metadata.version("hypdelta")
        calculate_delta_condensed(squareform(small), len(small))
        hypdelta(small, device="cpu", strategy="CCL", l=1.0)
        condensed = squareform(distances, checks=False)
        seconds, value = timed(lambda: calculate_delta_condensed(condensed, len(distances)), 1)
        print(
            f"hypdelta {version} (condensed loop, last sample): {seconds:.2f} s, ratio {seconds / ours:.0f}, "
            f"equal {abs(value - result.delta) <= 1e-12 * result.diameter}"
        )
    else:
        print("hypdelta is not installed: not compared")

    print("\nAll bases (exact four-point delta): seconds")
    print(f"{'n':>6}{'delta_rel':>11}{'this':>9}{'plain':>9}{'ratio':>8}  equal")
    for n in (200, 400, 1000, 2000, 3000):
        chosen = rng.choice(len(vectors), min(n, len(vectors)), replace=False)
        distances = euclidean_distances(vectors[chosen])
        ours, result = timed(lambda: gromov_delta(distances=distances, base="all"), 3 if n < 2000 else 1)  # noqa: B023
        line = f"{len(chosen):>6}{result.delta_rel:>11.4f}{ours:>9.3f}"
        if n <= 400:
            plain, value = timed(lambda: plain_four_points(distances), 1)  # noqa: B023
            line += f"{plain:>9.2f}{plain / ours:>8.0f}  {abs(value - result.delta) <= 1e-12 * result.diameter}"
            if peer and n <= 200:
                seconds, value = timed(lambda: hypdelta(distances, device="cpu", strategy="CCL", l=1.0), 1)  # noqa: B023
                line += f"   hypdelta CCL, all pairs: {seconds:.2f} s, ratio {seconds / ours:.0f}, "
                line += f"equal {abs(value - result.delta_rel) <= 1e-12}"
        print(line)

    large, label = load_vectors(arguments.large_dataset, arguments.rank, rng)
    print(f"\nScaling, fixed base, {label}: seconds, median of 3 bases")
    print(f"{'n':>6}{'distances':>11}{'search':>9}{'bytes':>8}")
    for n in (500, 1000, 2000, 3000, 5000, 10_000):
        if n > len(large):
            break
        chosen = rng.choice(len(large), n, replace=False)
        spent, distances = timed(lambda: euclidean_distances(large[chosen]), 1)  # noqa: B023
        searches = [gromov_delta(distances=distances, base=base).seconds for base in range(3)]
        print(f"{n:>6}{spent:>11.3f}{statistics.median(searches):>9.3f}{f'{2 * 8 * n * n / 1e6:.0f}M':>8}")


if __name__ == "__main__":
    main()
