"""Benchmarks at sizes that take seconds: a command that a page names still runs."""

import logging
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch

from tests.devices import conftest  # noqa: F401  registers the test device before the first backward of the process

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# {} is an empty folder
SMALL = {
    "ce": "--items 300 --rows 16 --width 8 --repeats 1 --threads 1 --output {}",
    "dual": "--users 40 --items 60 --length 8 --batch 8 --batches 1 --threads 1",
    "engines": "--forms --rows 2000 --output {}/forms.json",
    "losses": "--items 300 --geometries euclidean poincare --losses ce sce --batch 2 --length 5 --threads 1 "
    "--fidelity-items 200 --fidelity-steps 1 --bucket-sizes 8 --output {}",
    "prepare": "--rows 3000 --output {}/prepare.json",
    "rank": "--users 20 --items 2000 --repeats 1",
    "recommend": "--items 1200 --users 4 --width 8 --repeats 1 --threads 1 --output {}/recommend.json",
    "transfers": "--models SASRecCE",
}
# train or compile for longer, or need other environments: by hand
LONG = {"delta", "epoch", "first", "first_run", "gpu", "groups", "load", "moebius", "peers", "serve", "step", "sweep"}
LONG |= {"million", "threads", "turns", "validation", "warm_start"}


def test_every_benchmark_is_run_here_or_by_hand() -> None:
    assert SMALL.keys() | LONG == {file.stem.removeprefix("bench_") for file in BENCHMARKS.glob("bench_*.py")}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_run_ends_well(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECBOLE_HYPER_DATA", "")
    file, words = BENCHMARKS / f"bench_{name}.py", shlex.split(SMALL[name].format(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(file), *words])
    monkeypatch.syspath_prepend(BENCHMARKS)
    threads, code = torch.get_num_threads(), None
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    finally:
        torch.set_num_threads(threads)
        logging.disable(logging.NOTSET)
    assert not code
    assert "{}" not in SMALL[name] or list(tmp_path.iterdir())
