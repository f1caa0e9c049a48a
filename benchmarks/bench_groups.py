"""Time of a batch in an encoder, forward and backward, in groups of similar length, by the assumed cost of a call.

    make bench-groups            (or: python benchmarks/bench_groups.py --threads 2)

There are two generated data sets. "shop" has 256 histories per batch, half of them with at most 3 items, the longest
with 50; "movies" has 64 histories of 16 to 200 items. ``inf`` is the whole batch at once, padded to its longest row.
The last column is the time with ``encoders.base.CALL_POSITIONS`` as a share of that.
"""

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from recbole_hyper import registry
from recbole_hyper.encoders import base
from recbole_hyper.evaluation.tables import table

PRICES = (64, 128, 256, 512, 1024, math.inf)
ENCODERS = ("fmlp", "transformer", "gru")


def batches(data: str, count: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Return items (B, L) and lengths (B,), sorted by length."""
    generator, made = np.random.default_rng(0), []
    for _ in range(count):
        if data == "shop":
            lengths = np.clip(generator.pareto(1.2, 256) * 2 + 1, 1, 50).astype(np.int64)
        else:
            lengths = np.clip(generator.lognormal(4.6, 0.9, 64), 16, 200).astype(np.int64)
        lengths = torch.from_numpy(np.sort(lengths))
        items = torch.from_numpy(generator.integers(1, 5000, (len(lengths), int(lengths[-1]))))
        made.append((items * (torch.arange(items.shape[1]) < lengths[:, None]), lengths))
    return made


def milliseconds(encoder: base.Encoder, data: list[tuple[Tensor, Tensor]], price: float, repeats: int) -> float:
    """Return the median time of a batch; the first round does not count."""
    before, base.CALL_POSITIONS = base.CALL_POSITIONS, price
    seconds = []
    for _ in range(repeats + 1):
        for items, lengths in data:
            start = time.perf_counter()
            base.supervised_states(encoder, items, items, lengths)[0].sum().backward()
            seconds.append(time.perf_counter() - start)
    base.CALL_POSITIONS = before
    return 1000 * statistics.median(seconds[len(data) :])


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for data in ("shop", "movies"):
        made = batches(data)
        for name in ENCODERS:
            for size in arguments.sizes:
                torch.manual_seed(0)
                options = {} if name == "gru" else {"max_length": 200}
                encoder = registry.resolve("encoders", name)(nn.Embedding(5000, size, padding_idx=0), **options)
                times = {price: milliseconds(encoder, made, price, arguments.repeats) for price in PRICES}
                ours = milliseconds(encoder, made, base.CALL_POSITIONS, arguments.repeats)
                shown = {f"{price:g}": round(value, 1) for price, value in times.items()}
                rows.append(
                    {"data": data, "encoder": name, "d": size, **shown, "share": f"{ours / times[math.inf]:.2f}"}
                )
    print(
        f"milliseconds per batch if a call costs as much as ... positions; {arguments.threads} threads, "
        f"torch {torch.__version__}"
    )
    print(table(rows))


if __name__ == "__main__":
    main()
