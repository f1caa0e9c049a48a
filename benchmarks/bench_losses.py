"""Time and memory of every loss with 3 thousand to 1 million items, and how close SCE's gradient is to the exact one.

    make bench-losses        (or: python benchmarks/bench_losses.py --items 3000 30000 --threads 2 --output FOLDER)

The shapes are those of the SCE paper, section 4.2.3: sequences of 200, 256 negatives, b_y = 256, d = 64. The batch is
smaller, so that a CPU takes minutes (--batch, by default 16 sequences; the paper has 64). The naive formula (full
logits and torch's cross-entropy) runs with as many rows as fit into --naive-bytes and is scaled linearly to the batch
(marked ~). Memory is the allocator's peak without the gradients of the parameters. With --output: bench_losses.json,
bench_losses.png and bench_losses_fidelity.json.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_ce import environment
from timing import median_seconds, seconds_of

from recbole_hyper import registry
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses.sce import ScalableCrossEntropy
from tests.reference.allocation import peak_bytes

NEGATIVES = 256
SETTINGS: dict[str, dict] = {
    "ce": {},
    # the same loss with a tight budget: slower, because tiles are computed twice
    "ce 48MB": {"memory_budget": 48_000_000},
    "bce": {},
    "bce_plus": {"n_negatives": NEGATIVES},
    "gbce": {"n_negatives": NEGATIVES},
    "sampled_ce": {"n_negatives": NEGATIVES},
    "sce": {"bucket_size_y": NEGATIVES},
    "rece": {},
}


def problem(geometry: str, rows: int, n_items: int, width: int) -> tuple[Tensor, Tensor, OutputHead]:
    """Return random states (rows, width), targets and a head over n_items items."""
    torch.manual_seed(0)
    states = torch.randn(rows, width, requires_grad=True)
    weight = nn.Parameter(0.1 * torch.randn(n_items, width))
    known = registry.resolve("geometry", geometry)()
    head = OutputHead(known, weight, offset=geometry == "poincare", theta=0.02)
    return states, torch.randint(1, n_items, (rows,)), head


class SequenceSets:
    """Draws one set of negatives per sequence of ``length`` rows, as training does for sampled_ce."""

    def __init__(self, targets: Tensor, n_items: int, length: int) -> None:
        self.targets, self.n_items, self.length = targets, n_items, length

    def per_position(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> Tensor:
        """Return uniform items."""
        return torch.randint(1, self.n_items, (len(self.targets), k))

    def per_sequence(self, k: int) -> tuple[Tensor, Tensor]:
        """Return uniform items, one row per sequence."""
        rows = torch.arange(len(self.targets)) // self.length
        return torch.randint(1, self.n_items, (int(rows[-1]) + 1, k)), rows


def step(loss: Callable[[], Tensor], states: Tensor, head: OutputHead) -> None:
    """Compute the loss and its gradients."""
    torch.autograd.grad(loss(), [t for t in (states, head.weight, head.offset) if t is not None])


def naive(states: Tensor, targets: Tensor, head: OutputHead) -> Tensor:
    """Return the cross-entropy over full logits."""
    return F.cross_entropy(head.logits(states), targets)


def measure(call: Callable[[], object], sizes: tuple[int, ...], repeats: int) -> tuple[float, int]:
    """Return the median seconds and the peak bytes of a call; those of a single call have no other before it."""
    return median_seconds(call, repeats) if repeats > 1 else seconds_of(call), peak_bytes(call, *sizes)


def table(options: argparse.Namespace) -> list[dict]:
    """Measure all losses and print the table."""
    rows = options.batch * options.length
    print(f"{rows} rows (batch {options.batch} x {options.length}), width {options.width}, forward + backward")
    print(f"{'items':>8} {'geometry':<9} {'loss':<11} {'seconds':>8} {'x naive':>8} {'MB':>9} {'naive/it':>8}")
    found = []
    for n_items in options.items:
        for geometry in options.geometries:
            states, targets, head = problem(geometry, rows, n_items, options.width)
            sizes = (4 * n_items * options.width, 4 * n_items)
            copies = 8 if geometry == "poincare" else 3
            fitting = min(rows, max(1, int(options.naive_bytes / (4 * copies * n_items))))
            share = rows / fitting
            small, some = states[:fitting].detach().requires_grad_(), targets[:fitting]
            seconds, memory = measure(lambda s=small, t=some, h=head: step(lambda: naive(s, t, h), s, h), sizes, 1)
            full_seconds, full_memory = seconds * share, memory * share
            results: list[tuple[str, float, float]] = [
                ("naive ce" + ("~" if share > 1 else ""), full_seconds, full_memory)
            ]
            for name, settings in SETTINGS.items():
                if name not in options.losses or (name == "rece" and n_items > options.rece_items):
                    continue
                loss = registry.resolve("losses", name.split()[0])(**settings)
                source = SequenceSets(targets, n_items, options.length) if name == "sampled_ce" else None
                repeats = 3 if rows * n_items < 2e8 else 1
                seconds, memory = measure(
                    lambda ls=loss, s=states, t=targets, h=head, n=source: step(lambda: ls(s, t, h, n), s, h),
                    sizes,
                    repeats,
                )
                results.append((name, seconds, memory))
            for name, seconds, memory in results:
                found.append(
                    {
                        "items": n_items,
                        "geometry": geometry,
                        "loss": name,
                        "rows": rows,
                        "seconds": seconds,
                        "bytes": memory,
                    }
                )
                print(
                    f"{n_items:>8} {geometry:<9} {name:<11} {seconds:>8.3f} {seconds / full_seconds:>8.2f} "
                    f"{memory / 1e6:>9.1f} {full_memory / memory:>8.1f}",
                    flush=True,
                )
    return found


def figure(found: list[dict], path: Path) -> None:
    """Plot loss memory against catalogue size, like figure 1 of the SCE paper."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    geometries = sorted({row["geometry"] for row in found})
    plot, axes = pyplot.subplots(1, len(geometries), figsize=(5.5 * len(geometries), 4.6), sharey=True, squeeze=False)
    for axis, geometry in zip(axes[0], geometries, strict=True):
        for name in dict.fromkeys(row["loss"].rstrip("~") for row in found):
            chosen = [r for r in found if r["geometry"] == geometry and r["loss"].rstrip("~") == name]
            style = "--" if name == "naive ce" else "-"
            axis.plot([r["items"] for r in chosen], [r["bytes"] / 2**20 for r in chosen], style, marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="items", title=geometry)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("loss memory, MiB")
    plot.set_layout_engine("constrained")
    plot.legend(
        *axes[0][-1].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=9, frameon=False
    )
    plot.savefig(path, dpi=150)


def trained_state(options: argparse.Namespace, geometry: str) -> tuple[Tensor, Tensor, OutputHead]:
    """Return states after a short exact training, clustered like those of a trained model; their targets and head."""
    torch.manual_seed(1)
    n_items, rows, width = options.fidelity_items, 3200, options.width
    groups = torch.randint(0, 64, (n_items,))
    head = problem(geometry, 1, n_items, width)[2]
    popularity = (1.0 / torch.arange(1, n_items)).repeat(1)
    targets = torch.multinomial(popularity, rows, replacement=True) + 1
    centres = nn.Parameter(0.5 * torch.randn(64, width))
    noise = 0.5 * torch.randn(rows, width)
    parameters = [centres, head.weight] + ([head.offset] if head.offset is not None else [])
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    exact = registry.resolve("losses", "ce")()
    for _ in range(options.fidelity_steps):
        optimizer.zero_grad()
        exact(centres[groups[targets]] + noise, targets, head).backward()
        optimizer.step()
    states = (centres[groups[targets]] + noise).detach().requires_grad_()
    return states, targets, head


def fidelity(options: argparse.Namespace) -> list[dict]:
    """Return the cosine between SCE's gradient and the exact one as the buckets grow, with and without Mix."""
    found = []
    print(f"\nSCE gradient against the exact one ({options.fidelity_items} items, 3200 rows, mean of 3 draws)")
    print(f"{'geometry':<9} {'b_y':>6} {'mix':<5} {'cos states':>10} {'cos items':>10} {'selected':>8} {'found':>6}")
    for geometry in options.geometries:
        states, targets, head = trained_state(options, geometry)
        leaves = [states, head.weight]
        exact = torch.autograd.grad(registry.resolve("losses", "ce")()(states, targets, head), leaves)
        buckets = int(2 * math.sqrt(len(states)))
        for size_y in options.bucket_sizes:
            for mix in (True, False):
                rows, sizes = [], {"n_buckets": buckets, "bucket_size_x": buckets, "bucket_size_y": size_y}
                loss = ScalableCrossEntropy(**sizes, mix=mix)
                for seed in range(3):
                    torch.manual_seed(seed)
                    got = torch.autograd.grad(loss(states, targets, head), leaves)
                    shares = loss.statistics
                    cosines = [
                        float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0))
                        for a, b in zip(got, exact, strict=True)
                    ]
                    rows.append((*cosines, float(shares["selected"]), float(shares["positives_found"])))
                mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
                found.append(
                    {
                        "geometry": geometry,
                        "bucket_size_y": size_y,
                        "mix": mix,
                        "cosine_states": mean[0],
                        "cosine_items": mean[1],
                        "selected": mean[2],
                        "positives_found": mean[3],
                    }
                )
                print(
                    f"{geometry:<9} {size_y:>6} {mix!s:<5} {mean[0]:>10.3f} {mean[1]:>10.3f} {mean[2]:>8.3f} "
                    f"{mean[3]:>6.3f}",
                    flush=True,
                )
    return found


def write(path: Path, content: object) -> None:
    """Write JSON to a temporary file, then rename it."""
    path.with_suffix(".tmp").write_text(json.dumps(content, indent=1))
    path.with_suffix(".tmp").rename(path)
    print(f"written: {path}")


def main() -> None:
    """Print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[3000, 30_000, 100_000, 1_000_000])
    parser.add_argument("--geometries", nargs="+", default=["euclidean", "poincare"])
    parser.add_argument("--losses", nargs="+", default=list(SETTINGS))
    parser.add_argument(
        "--rece-items", type=int, default=300_000, help="largest catalogue for rece, which takes minutes above"
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--naive-bytes", type=float, default=2e9)
    parser.add_argument("--bucket-sizes", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--fidelity-items", type=int, default=10_000)
    parser.add_argument("--fidelity-steps", type=int, default=60)
    parser.add_argument("--output", type=Path, help="folder of the files; default: print only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(environment())
    found = table(options)
    shares = fidelity(options) if options.bucket_sizes else []
    if options.output is None:
        return
    options.output.mkdir(parents=True, exist_ok=True)
    write(options.output / "bench_losses.json", {"environment": environment(), "rows": found})
    figure(found, options.output / "bench_losses.png")
    if shares:
        write(options.output / "bench_losses_fidelity.json", {"environment": environment(), "rows": shares})


if __name__ == "__main__":
    main()
