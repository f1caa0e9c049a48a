"""Writes files that no reader sees half-written; also plain values for JSON and YAML, locks, and safe overwriting.

The package writes every file with :func:`replaced`: to a temporary name beside it, which is then renamed.
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
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import psutil
import yaml

from recbole_hyper.errors import ConfigError, LockedError, NoSpaceError
from recbole_hyper.values import YAML_NUMBER

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """PyYAML's safe dumper, which quotes a text that this package would read as a number: '1e-3'."""


Dumper.add_implicit_resolver("tag:yaml.org,2002:float", YAML_NUMBER, list("-+0123456789."))

# libyaml reads several times as fast as Python, but it follows nesting on the stack of the process
_DEEPEST = 1000

# the system's codes for a full disk, a quota and a file too large
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# torch, safetensors, Arrow and numpy raise errors with their own text
_NO_SPACE_TEXT = re.compile(
    r"no space left|disk quota exceeded|file too large|os error (28|122|27)\b|errno (28|122|27)\b|"
    r"PytorchStreamWriter failed writing|inline_container.*unexpected pos|basic_ios::clear: iostream error|"
    r"\d+ requested and \d+ written",
    re.IGNORECASE,
)
# control characters of a terminal, which move its cursor or change its colors or title; not line ends and tabs
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds, and is removed when it fails.

    Creates the folder, removes temporary files of killed processes, and lets the umask decide who may read the file
    (safetensors lets only its owner). NoSpaceError if the disk is full.
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
    """Yield an empty folder that replaces ``folder`` when the block succeeds; see :func:`replaced`."""
    with _part_of(folder) as part:
        part.mkdir()
        yield part
        old = part.with_suffix(".old")  # a kill or a file that cannot be removed loses nothing
        if folder.is_dir():
            os.replace(folder, old)
        os.replace(part, folder)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Yield the temporary path of this process for ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # on a shared disk, process ids of other machines must not be compared with ours
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    for part in path.parent.glob(f".{glob.escape(path.name)}.{host}.*.part"):
        number = part.name.removesuffix(".part").rpartition(".")[2]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            _remove(part)
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
    """Return whether ``error``, or an error that caused it, means that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            return True
        if not isinstance(error, ValueError) and _NO_SPACE_TEXT.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def naming_full_disk(text: str) -> Iterator[None]:
    """Raise NoSpaceError with ``text`` if the disk is full, whatever error a library raises."""
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


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with the columns of all rows in the order of their first appearance."""
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(key for row in rows for key in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as JSON; numbers that are not finite become null."""
    write_text(path, json.dumps(plain(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_yaml(path: Path, content: Mapping[str, Any], *, sort_keys: bool = True) -> None:
    """Write a mapping as YAML, which ``--config_files`` can read."""
    write_text(path, yaml_text(content, sort_keys=sort_keys))


def yaml_text(content: Mapping[str, Any], *, sort_keys: bool = True) -> str:
    """Return what :func:`write_yaml` writes."""
    return yaml.dump(plain(content, nan_to_null=False), Dumper=Dumper, sort_keys=sort_keys, allow_unicode=True)


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file; ValueError, which names the file, for any other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it must contain a mapping, but contains a {type(content).__name__}")
    return content


def load_written(text: str) -> Any:
    """Return what PyYAML's safe loader reads in ``text``, by libyaml unless it may be nested deeply."""
    may_nest_deeply = sum(map(text.count, "[{-?:")) > _DEEPEST
    return yaml.load(text, yaml.SafeLoader if may_nest_deeply else getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def read_written_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the mapping in a file that :func:`write_yaml` wrote.

    ConfigError, which calls the file ``what``, such as "damaged", for any other content.
    """
    try:
        content = load_written(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is {what}: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is {what}: it must contain a mapping, but contains a {type(content).__name__}")
    return content


def validated(kind: type[Model], content: Any, where: object) -> Model:
    """Return the pydantic model of ``content``; ConfigError names ``where``, and every wrong key with its reason."""
    from pydantic import ValidationError  # not needed at start-up

    try:
        return kind.model_validate(content)
    except ValidationError as error:
        texts = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ConfigError(f"{where}: {'; '.join(texts)}") from error


def plain(value: Any, nan_to_null: bool = True) -> Any:
    """Return ``value`` with numpy scalars, tuples, sets and paths as types of JSON and YAML."""
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
    """Return a hash of plain values with ``length`` hexadecimal digits; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:length]


def file_digest(path: Path) -> str:
    """Return the sha256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock the file ``path`` during the block; the system releases the lock if this process dies.

    LockedError if another process has the lock and ``wait`` is False.
    """
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise LockedError(error.errno, "another process uses this folder", str(path.parent)) from error
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped, for a terminal: ids come from other people."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def require_no_link(*paths: Path) -> None:
    """Raise ConfigError if a path is a link: writing to it would change another file."""
    for path in paths:
        if path.is_symlink():
            raise ConfigError(f"{path} is a link, and writing would change another file; remove it")


def require_own(
    output: Path, is_own: Callable[[Path], bool], what: str, inputs: Iterable[str | Path | None] = ()
) -> None:
    """Raise ConfigError if ``output`` exists, unless an earlier call of the command wrote it, or is one of ``inputs``.

    ``is_own`` returns whether a file is an earlier output; ``what`` describes such a file: "recommendations of this
    command".
    """
    if not output.exists() and not output.is_symlink():
        return
    for path in inputs:
        if path is not None and Path(path).exists() and output.exists() and Path(path).samefile(output):
            raise ConfigError(f"{output} is an input of this command; choose another --output")
    if output.is_dir():
        raise ConfigError(f"{output} is a folder; set --output to a file")
    if output.is_symlink():
        raise ConfigError(f"{output} is a link; choose another --output, or remove the link")
    if output.stat().st_size and not is_own(output):
        raise ConfigError(
            f"{output} does not contain {what}, so it is not overwritten; remove it, or choose another --output"
        )


def require_free(folder: Path, names: Iterable[str], what: str, option: str = "output_dir") -> None:
    """Raise ConfigError if ``folder`` is a file, or has files ``names`` that ``what`` ("a report") would overwrite."""
    others = ", ".join(name for name in names if (folder / name).exists())
    if found := f"has {others}, which {what} would overwrite" if others else folder.is_file() and "is a file":
        raise ConfigError(f"{folder} {found}; choose another {option}")


def require_empty(folder: Path, option: str = "folder") -> None:
    """Raise ConfigError if there is something in ``folder``, or it is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; choose another {option}")


def is_written_by(command: str, file: Path) -> bool:
    """Return whether ``file`` is a JSON file that ``command`` wrote."""
    with contextlib.suppress(OSError, ValueError):
        return read_json(file).get("written_by") == command
    return False
