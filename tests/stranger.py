"""What someone with nothing but the installed package types, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import recbole_hyper
from tests.reference import planted

CHECKOUT = Path(recbole_hyper.__file__).parents[1]
# an interpreter that has the package installed, as `make test-install` makes one; without it the checkout is found
INSTALLED = os.environ.get("RECBOLE_HYPER_PYTHON")


def python(folder: Path, *arguments: str) -> str:
    """Return what Python prints in ``folder``; AssertionError with its output where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if INSTALLED is None:
        environment["PYTHONPATH"] = str(CHECKOUT)
    done = subprocess.run(
        [INSTALLED or sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def write_orders(folder: Path) -> None:
    """Write the CSV that README and docs speak of."""
    names = {"u0": "anna", "u1": "ben", "i3": "lamp", "i4": "chair"}
    rows = [[names.get(value, value) for value in map(str, row)] for row in planted.walk_rows()]
    (folder / "orders.csv").write_text("\n".join(",".join(row) for row in [["user", "item", "time"], *rows]) + "\n")
