"""What someone with nothing but the installed package types, in an empty folder."""

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import recbole_hyper
from tests.reference import planted

CHECKOUT = Path(recbole_hyper.__file__).parents[1]
# an interpreter that has the package installed, as `make test-install` makes one; without it the checkout is found
INSTALLED = os.environ.get("RECBOLE_HYPER_PYTHON")


@functools.cache
def unpacked_wheel() -> Path:
    """Return a folder with the package as its wheel installs it, built by this process, and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="recbole-hyper-wheel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, wheels, site = (folder / name for name in ("source", "wheels", "site"))
    # a copy: what an earlier build left in the checkout would get into the wheel
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("recbole_hyper", "properties"):
        shutil.copytree(CHECKOUT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, f"--wheel-dir={wheels}", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def python(folder: Path, *arguments: str, package: Path = CHECKOUT) -> str:
    """Return what Python prints in ``folder``; AssertionError with its output where it fails.

    Args:
        folder: where it runs.
        arguments: of Python.
        package: the folder that the package is imported from, where no installed one is given.
    """
    done = subprocess.run(**started(folder, *arguments, package=package), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def started(folder: Path, *arguments: str, package: Path = CHECKOUT) -> dict[str, Any]:
    """Return what :mod:`subprocess` needs to start Python with these arguments, see :func:`python`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if INSTALLED is None:
        environment["PYTHONPATH"] = str(package)
    return {"args": [INSTALLED or sys.executable, *arguments], "cwd": folder, "env": environment}


def inline_commands(text: str) -> list[list[str]]:
    """Return the words of each `recbole-hyper ...` between backticks, without the program."""
    return [shlex.split(found) for found in re.findall(r"`recbole-hyper ([^`.][^`]*)`", text)]


def write_orders(folder: Path) -> None:
    """Write the CSV file of README and docs."""
    names = {"u0": "anna", "u1": "ben", "i3": "lamp", "i4": "chair"}
    rows = [[names.get(value, value) for value in map(str, row)] for row in planted.walk_rows()]
    (folder / "orders.csv").write_text("\n".join(",".join(row) for row in [["user", "item", "time"], *rows]) + "\n")
