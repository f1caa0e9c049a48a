"""Checks of the files that a command overwrites, and of foreign text that it prints.

A command overwrites its own earlier output, recognised by its content, and none of its inputs.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json

# what moves the cursor of a terminal, changes its colours or its title; line ends and tabs stay
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return ``text`` for a terminal, control characters written out: ids come from other people."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def require_no_link(*paths: Path) -> None:
    """Raise ConfigError for a path that is a link: writing to it would change another file."""
    for path in paths:
        if path.is_symlink():
            raise ConfigError(f"{path} is a link, which would be written through; remove it")


def require_own(
    output: Path, is_own: Callable[[Path], bool], what: str, inputs: Iterable[str | Path | None] = ()
) -> None:
    """Raise ConfigError where ``output`` exists and the command did not write it, or is one of its ``inputs``.

    ``is_own`` tells an earlier output of the same command; ``what`` is that in words, as "recommendations of this
    command".
    """
    if not output.exists() and not output.is_symlink():
        return
    for path in inputs:
        if path is not None and Path(path).exists() and output.exists() and Path(path).samefile(output):
            raise ConfigError(f"{output} is an input of this command; choose another --output")
    if output.is_dir():
        raise ConfigError(f"{output} is a folder; name a file by --output")
    if output.is_symlink():
        raise ConfigError(f"{output} is a link to another place; choose another --output, or remove the link")
    if output.stat().st_size and not is_own(output):
        raise ConfigError(
            f"{output} does not hold {what}, so it is not written over; remove it, or choose another --output"
        )


def is_written_by(command: str, file: Path) -> bool:
    """Return whether a JSON file is there and says that ``command`` wrote it."""
    try:
        return read_json(file).get("written_by") == command
    except (OSError, ValueError):
        return False
