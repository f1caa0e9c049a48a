"""How often a training step and the ranking of one batch copy data or wait for the device, for every model.

    make bench-transfers            (or: python benchmarks/bench_transfers.py --models SASRecCE DualRec --places)

Counted on the test device of tests/devices, which is not a GPU: every operator runs on the CPU. "to device" are copies
that do not wait (the columns of a batch, from pinned memory). The others wait for the device: "size" for results whose
size depends on the data, "to host" for copies, "number" for a single number. The losses of 64 steps are read together;
this read is not counted.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recbole_hyper import registry
from recbole_hyper.evaluation.tables import table
from tests.devices.foreign import Transfers, foreign_device, registered
from tests.devices.steps import step_and_ranking, write_random

KINDS = ("to device", "size", "to host", "number")


def main() -> None:
    """Print a row per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=registry.names("models"))
    parser.add_argument("--places", action="store_true", help="print the lines of the package that cause them")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    registered()
    rows = []
    with tempfile.TemporaryDirectory() as scratch, foreign_device():
        data = write_random(Path(scratch) / "data")
        for model in options.models:
            step, ranking, _ = step_and_ranking(model, data, Path(scratch) / model)
            # a model that is fitted in one step has no training steps
            counts = {"step": step, "ranking": ranking}
            rows.append(
                {
                    "model": model,
                    **{f"{what}: {kind}": count(found, kind) for what, found in counts.items() for kind in KINDS},
                }
            )
            if options.places:
                for what, found in counts.items():
                    for place, times in (found.places if found is not None else {}).items():
                        print(f"{model}, {what}: {times} x {place}")
    print(table(rows, list(rows[0])))


def count(found: Transfers | None, kind: str) -> int | str:
    """Return how often a kind was counted; "" if the model has no such part."""
    return "" if found is None else found[kind]


if __name__ == "__main__":
    main()
