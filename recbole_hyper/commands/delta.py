"""``recbole-hyper delta --dataset=NAME``: is a data set hyperbolic, and which curvature fits it?"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recbole_hyper.commands import argument, command, dataset

if TYPE_CHECKING:
    import scipy.sparse

    from recbole_hyper.curvature.estimate import CurvatureEstimate
    from recbole_hyper.curvature.study import Measurement

EPS_SHOWN = (1e-12, 1e-5)
DEFAULT_RANKS = (32, 64, 128, 256, 512, 768, 1024)  # the paper's continue to 4096: set --ranks


@command(
    "measure the Gromov delta of a data set's items, and the curvature that it implies",
    *dataset("keys of the data set", required=True),
    argument("--data_path", default=None, help="folder of the data sets (default: as for run)"),
    argument("--train_quantile", type=float, default=0.95, help="use interactions before this quantile of time (0.95)"),
    argument("--ranks", type=int, nargs="+", help="SVD ranks (default 32 to 1024; the paper: to 4096)"),
    argument("--sample_sizes", type=int, nargs="+", help="items per sample (default 500 to 4000)"),
    argument("--repeats", type=int, default=48, help="random samples of each size (default 48)"),
    argument("--seed", type=int, default=0, help="seed of the samples (default 0)"),
    argument("--scaling", type=float, default=1.0, help="s of PureSVD-N; 1 is plain SVD (default)"),
    argument("--base", choices=["first", "all"], default="first", help="fixed base (paper) or four points"),
    argument("--eps", type=float, default=1e-12, help="eps of the recommended curvature (default 1e-12)"),
    argument("--output_dir", default=None, help="default saved/delta-NAME"),
    argument("--quiet", action="store_true", help="no progress bar"),
)
def delta(arguments: argparse.Namespace) -> None:
    """Measure; print the table and the verdict; write csv and json, which examples/delta_figures.py draws."""
    import pandas as pd

    from recbole_hyper.curvature.disk import disk_delta_rel
    from recbole_hyper.curvature.estimate import choose_ranks, item_vectors, summarise, trained_items
    from recbole_hyper.curvature.study import PAPER_SIZES, cut_list
    from recbole_hyper.data.sequences import matrix_fingerprint
    from recbole_hyper.files import write_json, write_text

    disk_delta_rel(arguments.eps)  # fails for a wrong eps before the work begins
    if arguments.repeats < 1:
        raise ValueError(f"--repeats={arguments.repeats}: at least 1 sample is needed, and 3 for a verdict")
    started = time.perf_counter()
    matrix, counts = training_matrix(arguments)
    matrix = trained_items(matrix)
    users, items = matrix.shape
    ranks, notes = choose_ranks(arguments.ranks, DEFAULT_RANKS, matrix.shape, "--ranks")
    sizes = cut_list(arguments.sample_sizes, PAPER_SIZES, items, "--sample_sizes")
    print(
        f"{arguments.dataset}: {users} users, {items} items, {matrix.nnz} interactions before "
        f"the {arguments.train_quantile:g} quantile of time ({counts} in all)"
    )
    for line in notes:
        print(line)
    folder = Path(arguments.output_dir or Path("saved") / f"delta-{arguments.dataset}")
    vectors = item_vectors(matrix, ranks[-1], scaling=arguments.scaling, seed=arguments.seed)
    vector_seconds = time.perf_counter() - started
    measurements = measured(vectors, ranks, sizes, arguments)
    seconds = time.perf_counter() - started
    options = {"scaling": arguments.scaling, "seed": arguments.seed, "base": arguments.base}
    key = json.dumps({"fingerprint": matrix_fingerprint(matrix), **options})
    estimate = summarise(measurements, eps=arguments.eps, seed=arguments.seed, n_items=items, seconds=seconds, key=key)
    shown = sorted({arguments.eps, *EPS_SHOWN})
    mean = mean_over_ranks(measurements, shown)
    print(report(measurements, estimate, shown, mean))
    table = pd.DataFrame([asdict(measurement) for measurement in measurements])
    write_text(folder / "delta.csv", table.to_csv(index=False))
    content = {
        "dataset": arguments.dataset,
        "train_quantile": arguments.train_quantile,
        "n_users": users,
        "n_train_interactions": int(matrix.nnz),
        "ranks": ranks,
        "sample_sizes": sizes,
        "base": arguments.base,
        "scaling": arguments.scaling,
        "estimate": asdict(estimate),
        "curvature_by_eps": _by_eps(estimate.delta_rel, shown) if estimate.delta_rel > 0 else None,
        "mean_over_all_ranks": mean,
    }
    searches = sum(measurement.seconds for measurement in measurements)
    content["seconds"] = {"vectors": vector_seconds, "this_call": seconds, "all_searches": searches}
    write_json(folder / "delta.json", content)
    print(f"{seconds:.1f} s, of which {vector_seconds:.1f} s for data and SVD; wrote {folder}/delta.json and .csv")


def measured(vectors: Any, ranks: list[int], sizes: list[int], arguments: argparse.Namespace) -> list[Measurement]:
    """Return the measurements of the item vectors; shows a progress bar."""
    from tqdm import tqdm

    from recbole_hyper.curvature.study import measure_samples

    total = len(ranks) * len(sizes) * arguments.repeats
    with tqdm(desc="samples", unit="sample", disable=arguments.quiet, total=total) as bar:
        return measure_samples(
            vectors,
            ranks=ranks,
            sample_sizes=sizes,
            repeats=arguments.repeats,
            seed=arguments.seed,
            every_base=arguments.base == "all",
            progress=lambda finished, _: bar.update(finished - bar.n),
        )


def training_matrix(arguments: argparse.Namespace) -> tuple[scipy.sparse.csr_matrix, int]:
    """Return the binary (users, items) matrix of the interactions before the quantile, and the number of all."""
    import numpy as np

    from recbole_hyper.config import Config
    from recbole_hyper.data.dataset import SequenceDataset
    from recbole_hyper.protocols.boundaries import boundary

    quantile = arguments.train_quantile
    if not 0.0 < quantile <= 1.0:
        raise ValueError(
            f"--train_quantile={quantile}: a number above 0 and up to 1 is needed; 1 uses all interactions"
        )
    keys: dict[str, Any] = {} if arguments.data_path is None else {"data_path": arguments.data_path}
    config = Config("SASRecCE", arguments.dataset, config_file_list=arguments.config_files, config_dict=keys)
    store = SequenceDataset(config).store
    cut = np.inf if quantile == 1.0 else boundary(store.times, quantile)
    lengths = np.bincount(store.row_of[store.times < cut], minlength=store.n_rows).astype(np.int64)
    matrix = store.matrix(lengths)[:, 1:]
    return matrix[np.flatnonzero(lengths > 0)], len(store.items)


def mean_over_ranks(measurements: list[Measurement], shown: list[float]) -> dict[str, Any]:
    """Return the mean of delta_rel over all ranks at the largest sample, and its curvature.

    With the ranks of the paper's code (32 to 4096, as far as the matrix allows) this is the published value of ML-1M.
    """
    size = max(measurement.sample_size for measurement in measurements)
    values = [measurement.delta_rel for measurement in measurements if measurement.sample_size == size]
    mean = sum(values) / len(values)
    return {"delta_rel": mean, "curvature_by_eps": _by_eps(mean, shown)}


def _by_eps(delta_rel: float, shown: list[float]) -> dict[str, float]:
    from recbole_hyper.curvature.disk import curvature_of

    return {f"{eps:g}": curvature_of(delta_rel, eps) for eps in shown}


def report(
    measurements: list[Measurement], estimate: CurvatureEstimate, shown: list[float], mean: dict[str, Any]
) -> str:
    """Return the text of the table, with the curvature at each rank, and of the verdict with its reasons."""
    import numpy as np

    from recbole_hyper.curvature.disk import curvature_of
    from recbole_hyper.curvature.study import table_of

    ranks, sizes, table = table_of(measurements)
    heading = "".join(f"{size:>15,}" for size in sizes) + "".join(f"{f'c, {eps:g}':>11}" for eps in shown)
    samples = f"{estimate.repeats} samples; c from the largest sample"
    lines = ["", f"delta_rel, mean and standard deviation over {samples}", f"{'rank':>6}{heading}"]
    for rank, cells in zip(ranks, table, strict=True):
        implied = "".join(f"{curvature_of(float(np.mean(cells[-1])), eps):>11.4f}" for eps in shown)
        lines.append(f"{rank:>6}" + "".join(f"{np.mean(c):>8.4f} {np.std(c):.4f}" for c in cells) + implied)
    level = ", ".join(map(str, estimate.plateau_ranks))
    by_eps = ", ".join(f"{c:.4g} at eps {eps}" for eps, c in mean["curvature_by_eps"].items())
    lines += ["", *(f"  {reason}" for reason in estimate.reasons)]
    lines += [
        f"verdict: {estimate.verdict} (level at ranks {level}, samples of {estimate.sample_size:,} items)",
        f"delta_rel {estimate.delta_rel:.4f} [{estimate.delta_rel_lower:.4f}, {estimate.delta_rel_upper:.4f}]",
        f"mean over all ranks: delta_rel {mean['delta_rel']:.4f}, c {by_eps}",
    ]
    if np.isfinite(estimate.curvature):
        c, between = f"{estimate.curvature:.4g}", f"[{estimate.lower:.4g}, {estimate.upper:.4g}]"
        lines.append(f"curvature {c} {between} at eps {estimate.eps:g}: --curvature={c}")
    else:
        lines.append("curvature: any value fits, as the items form a tree (delta is exactly 0)")
    return "\n".join(lines)
