"""The folder of a sweep: sweep.yaml, which a resume reads, and the lock that keeps other sweeps out."""

import contextlib
import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from recbole_hyper.cluster import is_full_disk
from recbole_hyper.config import ConfigError
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.files import read_written_yaml, require_free, validated, write_yaml
from recbole_hyper.runs.claim import alone_in

REQUEST, OUTCOME = "sweep.yaml", "sweep.json"
# what a resume may not change
SAME = ("model", "dataset", "fixed", "space", "search", "scheduler")


class Request(BaseModel):
    """The content of sweep.yaml: what the user wants, with the options that a resume keeps."""

    model: str
    dataset: str
    space: dict[str, Any]
    fixed: dict[str, Any] = {}  # keys of every trial
    search: str = "grid"
    scheduler: str = "none"
    num_samples: int | None = None


def read_request(folder: Path) -> dict[str, Any]:
    """Return the content of sweep.yaml; ConfigError if it is missing, damaged, or from another program."""
    file = folder / REQUEST
    if not file.is_file():
        raise ConfigError(f"{folder} has no sweep to resume: {REQUEST} is missing")
    return validated(Request, read_written_yaml(file, "damaged"), f"{file} is damaged").model_dump()


@contextlib.contextmanager
def opened(folder: Path, request: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[None]:
    """Lock the folder of a sweep and write ``request`` there.

    ``before`` is the request of the sweep to resume, {} for a new one. ConfigError if the folder is in use or has
    another sweep. When the disk is full, and at Ctrl-C, the message says how to continue.
    """
    try:
        with alone_in(folder, ".lock", f"another sweep is running in {folder}"):
            if not before:
                _require_free(folder)
            if changed := [key for key in SAME if before and before[key] != request[key]]:
                values = f"{before[changed[0]]!r} before, {request[changed[0]]!r} now"
                raise ConfigError(f"a resume cannot change {changed[0]}: {values}; choose another output_dir")
            # the order of the space is the order of the trials
            write_yaml(folder / REQUEST, request, sort_keys=False)
            yield
    except KeyboardInterrupt:
        print(f"interrupted; {how_to_continue(folder)}", flush=True)
        raise
    except Exception as error:
        if not is_full_disk(error):
            raise
        raise NoSpaceError(errno.ENOSPC, f"the disk is full; make room, then {how_to_continue(folder)}") from error


def _require_free(folder: Path) -> None:
    """Raise ConfigError for a sweep, or for files of others that a sweep would overwrite."""
    if (folder / "trials").is_dir() and (folder / REQUEST).is_file():
        raise ConfigError(f"{folder} already has a sweep; choose another output_dir, or add --resume=True")
    if (folder / REQUEST).is_file():
        read_request(folder)  # of a sweep that ended before its first trial, such as without a cluster
    else:
        require_free(folder, ["trials.csv"], "a sweep")


def how_to_continue(folder: Path) -> str:
    """Return the advice that continues the sweep in ``folder``."""
    return f"continue with --resume=True --output_dir={folder}" if (folder / REQUEST).is_file() else "start again"
