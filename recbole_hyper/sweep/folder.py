"""The folder of a sweep: sweep.yaml, which a resume reads, and the lock that keeps other sweeps out."""

import contextlib
import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recbole_hyper.config import ConfigError
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.files import is_no_space, read_written_yaml, write_yaml
from recbole_hyper.runs.folder import alone_in

REQUEST, OUTCOME = "sweep.yaml", "sweep.json"
# keys of sweep.yaml that a resume may not change
SAME = {"model": str, "dataset": str, "fixed": dict, "space": dict, "search": str, "scheduler": str}


def read_request(folder: Path) -> dict[str, Any]:
    """Return the content of sweep.yaml; ConfigError if it is missing, damaged, or from another program."""
    file = folder / REQUEST
    if not file.is_file():
        raise ConfigError(f"{folder} has no sweep to resume: {REQUEST} is missing")
    content = read_written_yaml(file, "damaged")
    for key, kind in SAME.items():
        value = content.get(key, {} if key == "fixed" else None)
        if not isinstance(value, kind):
            raise ConfigError(f"{file} is damaged: {key} must be a {kind.__name__}, but is {value!r}")
        if kind is dict and not all(isinstance(name, str) for name in value):
            raise ConfigError(f"{file} is damaged: {key} has a key that is not text")
    return content


@contextlib.contextmanager
def opened(folder: Path, request: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[None]:
    """Lock the folder of a sweep and write ``request`` there.

    ``before`` is the request of the sweep to resume, {} for a new one. ConfigError if the folder is in use or has
    another sweep. When the disk is full, and at Ctrl-C, the message says how to continue.
    """
    try:
        with alone_in(folder, ".lock", f"another sweep is running in {folder}"):
            # a sweep that ended before its first trial, such as without a cluster, leaves the folder free
            if (folder / REQUEST).is_file() and (folder / "trials").is_dir() and not before:
                raise ConfigError(
                    f"{folder} already has a sweep; choose another output_dir, or continue with --resume=True"
                )
            if before:
                _require_same(request, before)
            # the order of the space is the order of the trials
            write_yaml(folder / REQUEST, request, sort_keys=False)
            yield
    except KeyboardInterrupt:
        print(f"interrupted; {how_to_continue(folder)}", flush=True)
        raise
    except Exception as error:
        if not is_no_space(error):
            raise
        raise NoSpaceError(errno.ENOSPC, f"the disk is full; make room, then {how_to_continue(folder)}") from error


def how_to_continue(folder: Path) -> str:
    """Return the advice that continues the sweep in ``folder``."""
    return f"continue with --resume=True --output_dir={folder}" if (folder / REQUEST).is_file() else "start again"


def _require_same(request: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    for key in SAME:
        old, new = before.get(key), request[key]
        if old == new:
            continue
        what = f"{key}: it was {old!r}, now {new!r}"
        if isinstance(old, dict):
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            what = f"{key}: " + "; ".join(f"{n} was {old.get(n)!r}, now {new.get(n)!r}" for n in names[:3])
        raise ConfigError(f"this sweep cannot be resumed with another {what}; choose another output_dir")
