"""Files that a reader never sees half-written, plain values for JSON and YAML, locks, and whose output may be replaced.

Every file of the package is written through :func:`replaced`: to a temporary name beside it, then renamed.
"""

import contextlib
import csv
import errno
import fcntl
import glob
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from recbole_hyper.errors import ConfigError, LockedError, NoSpaceError

# the system's codes for a full disk, a quota and a file too large
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# torch, safetensors, Arrow and numpy pass the system's error on as their own text
_NO_SPACE_TEXT = re.compile(
    r"no space left|disk quota exceeded|file too large|os error (28|122|27)\b|errno (28|122|27)\b|"
    r"PytorchStreamWriter failed writing|inline_container.*unexpected pos|\d+ requested and \d+ written",
    re.IGNORECASE,
)
# what moves the cursor of a terminal, changes its colours or its title; line ends and tabs stay
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds, and is removed when it fails.

    The folder is made where it is missing, leftovers of killed processes are removed, and the umask decides who may
    read the file (safetensors: its owner alone). NoSpaceError where the disk is full.
    """
    with _part_of(path) as part:
        part.touch()
        mode = part.stat().st_mode
        part.unlink()
        yield part
        part.chmod(mode)
        os.replace(part, path)


@contextlib.contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``folder`` when the block succeeds; else as :func:`replaced`."""
    with _part_of(folder) as part:
        part.mkdir()
        yield part
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(part, folder)


@contextlib.contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Yield the temporary path of this process for ``path``; a full disk is NoSpaceError, whatever the library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # on a shared disk the numbers of another machine's processes say nothing here
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    for left in path.parent.glob(f".{glob.escape(path.name)}.{host}.*.part"):
        number = left.name.removesuffix(".part").rpartition(".")[2]
        # the part of a process that still runs stays
        if number.isdigit() and not psutil.pid_exists(int(number)):
            _remove(left)
    part = path.with_name(f".{path.name}.{host}.{os.getpid()}.part")
    try:
        with naming_full_disk(f"no space left on the disk of {path.parent}: {path.name}"):
            yield part
    finally:
        _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def is_no_space(error: BaseException | None) -> bool:
    """Return whether ``error``, or one that led to it, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            return True
        if not isinstance(error, ValueError) and _NO_SPACE_TEXT.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def naming_full_disk(text: str) -> Iterator[None]:
    """Raise NoSpaceError with ``text`` for a full disk, in whatever words a library says so."""
    try:
        yield
    except Exception as error:
        if is_no_space(error):
            raise NoSpaceError(errno.ENOSPC, text) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8."""
    with replaced(path) as part:
        part.write_text(text, encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Write rows as CSV; the columns are those of any row, in the order in which they come, unless others are given."""
    text = io.StringIO()
    names = columns or list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_json(path: Path, content: Any, indent: int = 2) -> None:
    """Write plain values as JSON; numbers that are not finite become null."""
    write_text(path, json.dumps(plain(content), indent=indent, allow_nan=False, ensure_ascii=False) + "\n")


def write_yaml(path: Path, content: Mapping[str, Any], *, sort_keys: bool = True) -> None:
    """Write a mapping as YAML that ``--config_files`` reads again."""
    text = yaml.safe_dump(plain(content, nan_to_null=False), sort_keys=sort_keys, allow_unicode=True)
    write_text(path, text)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; ValueError, which names the file, for one that is no JSON or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: a mapping is expected, it holds a {type(content).__name__}")
    return content


def read_written_yaml(path: Path, what: str) -> dict[str, Any]:
    """Read a mapping that :func:`write_yaml` wrote; ConfigError, which names the file, for anything else.

    ``what`` says what such a file is, such as "damaged".
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is {what}: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is {what}: a mapping is expected, it holds a {type(content).__name__}")
    return content


def plain(value: Any, nan_to_null: bool = True) -> Any:
    """Turn numpy scalars, tuples and paths into what JSON and YAML know."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry, nan_to_null) for key, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(entry, nan_to_null) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value) and nan_to_null:
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def digest(content: Any, length: int = 8) -> str:
    """Return ``length`` hexadecimal digits that stand for plain values, whatever the order of keys."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def file_digest(path: Path) -> str:
    """Return the sha256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock on the file ``path``, which the system releases when this process ends.

    LockedError where it is held elsewhere and ``wait`` is False.
    """
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise LockedError(error.errno, "another process works here", str(path.parent)) from error
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def cache_folder() -> Path:
    """Return the user's cache folder: ``$XDG_CACHE_HOME/recbole_hyper`` or ~/.cache/..."""
    root = os.environ.get("XDG_CACHE_HOME")
    return Path(root if root else Path.home() / ".cache") / "recbole_hyper"


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
