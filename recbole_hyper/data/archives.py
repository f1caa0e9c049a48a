"""Sources of raw data: a file, plain or compressed, a member of an archive, or a folder with files."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import fnmatch
import gzip
import hashlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
from tqdm import tqdm

from recbole_hyper.errors import DataError
from recbole_hyper.files import file_digest

# errors of decompressors and Arrow for invalid bytes; zipfile raises RuntimeError if a password is needed
_DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, EOFError, RuntimeError, pa.ArrowException)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_MARKS = ("_SUCCESS", "_committed_", "_started_", "_metadata", "_common_metadata")  # files that Spark adds to a folder
GROUP = re.compile(rb"^([0-9]+):\r?\n", flags=re.MULTILINE)  # a line ``12:``, see ``parsers.ungrouped``
_COMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@contextlib.contextmanager
def damage_named(name: object) -> Iterator[None]:
    """Turn all errors of unpacking into a DataError with the file's ``name``."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        # errors of the system have numbers, errors of decompressors do not
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{name} is cut off, damaged, or packed in an unsupported way ({error}); fetch it again, or unpack it with "
            "another program and use the unpacked file"
        ) from error


@dataclass(frozen=True)
class SourceFile:
    """A raw file: ``path`` and, in an archive, its ``member``; the ``parts`` of a folder are read as one file."""

    path: Path
    member: str | None = None
    parts: tuple[SourceFile, ...] = ()

    @property
    def name(self) -> str:
        """The file's name, without folders."""
        return Path(self.member).name if self.member else self.path.name

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def sha256(self) -> str:
        """Return the checksum of the file on disk (for a member, of the whole archive).

        For parts it is the checksum of the lines that ``sha256sum`` prints in their folder.
        """
        if not self.parts:
            return file_digest(self.path)
        lines = (f"{part.sha256()}  {part.path.relative_to(self.path)}\n" for part in self.parts)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise DataError at the end if the file, or one of its parts, has changed."""

        def state() -> list[tuple[int, int, int]]:
            stats = [part.path.stat() for part in self.parts or (self,)]
            return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]

        before = state()
        yield
        if state() != before:
            raise DataError(f"{self} changed while it was read; nothing was written, try again when it is complete")

    def first_bytes(self, count: int, encoding: str | None = None) -> bytes:
        """Return the start of the file, or of the first part."""
        data = b""
        with (self.parts or (self,))[0].open(progress=False, encoding=encoding) as stream:
            while len(data) < count and (piece := stream.read(count - len(data))):
                data += piece
        return data

    @contextlib.contextmanager
    def open(self, *, progress: bool | None = None, encoding: str | None = None) -> Iterator[BinaryIO]:
        """Open for reading, decompressed, with a progress bar over the bytes on disk (for a zip, the unpacked bytes).

        ``progress`` shows or hides the bar; None shows it in a terminal only. Text in another ``encoding`` is converted
        to UTF-8.
        """
        hidden = None if progress is None else not progress
        with damage_named(self), contextlib.ExitStack() as stack:
            stream: Any = stack.enter_context(self.path.open("rb"))
            size, zipped = self.path.stat().st_size, self.member and self.path.suffix.lower() == ".zip"
            if zipped:
                archive = stack.enter_context(zipfile.ZipFile(stream))
                stream = stack.enter_context(archive.open(str(self.member)))
                size = archive.getinfo(str(self.member)).file_size
            bar = tqdm.wrapattr(stream, "read", total=size, unit="B", unit_scale=True, desc=self.name, disable=hidden)
            stream = stack.enter_context(bar)
            if self.member and not zipped:
                tar = stack.enter_context(tarfile.open(fileobj=stream, mode="r:*"))
                stream = stack.enter_context(cast(BinaryIO, tar.extractfile(self.member)))
            if unpack := _COMPRESSED.get(Path(self.name.lower()).suffix):
                stream = unpack(stream)
            if encoding not in (None, "utf-8"):
                stream = Recoded(stream, str(encoding), str(self))
            yield cast(BinaryIO, stream)


class Recoded:
    """Converts a stream of text to UTF-8; DataError, with the line, for bytes that are invalid in its encoding."""

    def __init__(self, stream: BinaryIO, encoding: str, name: str) -> None:
        self._stream, self._name, self._line = stream, name, 1
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int) -> bytes:
        """Return about ``size`` bytes, b"" at the end."""
        while True:
            data = self._stream.read(size)
            try:
                text = self._decoder.decode(data, final=not data).removeprefix("\ufeff" if self._line == 1 else "")
            except UnicodeDecodeError as error:
                line = self._line + error.object.count(b"\n", 0, error.start)
                raise DataError(
                    f"{self._name}, line {line}: the byte 0x{error.object[error.start]:02x} is invalid in "
                    f"{error.encoding} ({error.reason}); set the file's --encoding"
                ) from error
            except UnicodeError as error:
                raise DataError(f"{self._name}: {error}; set the file's --encoding") from error
            self._line += text.count("\n")
            if text or not data:
                return text.encode("utf-8", "surrogatepass")


def _members(path: Path) -> list[SourceFile]:
    """Return the files inside an archive (zip or tar, compressed or not), or the file itself if it is not one."""
    if not path.name.lower().endswith(_ARCHIVES):
        return [SourceFile(path)]
    with damage_named(path):
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                return [SourceFile(path, entry.filename) for entry in archive.infolist() if is_data(entry)]
        with tarfile.open(path) as tar:
            return [SourceFile(path, entry.name) for entry in tar if entry.isfile()]


def is_data(entry: zipfile.ZipInfo) -> bool:
    """Return whether a member is a file, and not one that a Mac adds (``__MACOSX/._x``, ``.DS_Store``)."""
    parts = Path(entry.filename).parts
    return not entry.is_dir() and parts[0] != "__MACOSX" and not parts[-1].startswith((".", "._"))


def matches(name: str, pattern: str) -> bool:
    """Compare a file's name with a pattern; ignores case, folder, and the endings .gz, .bz2 and .xz."""
    plain = Path(name).name.lower()
    candidates = [plain] + [plain.removesuffix(ending) for ending in _COMPRESSED if plain.endswith(ending)]
    return any(fnmatch.fnmatchcase(candidate, pattern.lower()) for candidate in candidates)


def contents(source: Path) -> list[SourceFile]:
    """List the raw files in ``source`` (a file, an archive or a folder), in the order of their names.

    A folder of parquet files only (ignoring names that start with a dot or _) is one file with parts. DataError if
    there is no file, or an archive cannot be read.
    """
    if not source.exists():
        raise DataError(f"--source={source} does not exist; give a file, a zip or tar archive, or a folder")
    if not (source.is_file() or source.is_dir()):
        raise DataError(f"--source={source} is a pipe or a device; use a regular file, an archive or a folder")
    if source.is_file():
        members = _members(source)
    else:
        plain = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.name.startswith(".")]
        parts = [path for path in plain if not path.name.startswith("_")]
        plain = [path for path in plain if not path.name.startswith(_MARKS)]
        many = len(parts) > 1 or any(path.parent != source for path in parts)
        if many and all(matches(path.name, "*.parquet") for path in parts):
            return [SourceFile(source, parts=tuple(SourceFile(path) for path in parts))]
        # list an archive itself too: a pattern may match its name
        members = [file for path in plain for file in dict.fromkeys((SourceFile(path), *_members(path)))]
    if not members:
        kind = "folder" if source.is_dir() else "archive"
        raise DataError(f"--source={source} is a {kind} without files; use the downloaded file")
    return members


def parts_of(source: Path, files: Sequence[SourceFile], header: bool = True) -> SourceFile | None:
    """Return a folder of json lines, or of text files with equal endings and first lines, as a file with parts.

    Files without a ``header`` may differ in their first lines. Spark writes empty files too, which are left out.
    """
    files = [file for file in files if file.member is not None or file.path.stat().st_size]
    plain = [file for file in files if file.member is None and not file.name.startswith("_")]
    endings = {"".join(Path(file.name.lower()).suffixes[-2:]) for file in plain}
    if not source.is_dir() or len(endings) != 1 or len(plain) != len(files):
        return None
    heads = [file.first_bytes(1 << 16).split(b"\n", 1)[0].strip() for file in plain]
    alike = (
        not header or len(set(heads)) == 1 or all(head.startswith(b"{") or GROUP.match(head + b"\n") for head in heads)
    )
    return SourceFile(source, parts=tuple(plain)) if alike and all(heads) else None


def pick(files: Sequence[SourceFile], patterns: Sequence[str]) -> SourceFile | None:
    """Return the file for the first pattern that matches, None if there is none; DataError for several files.

    Plain files are preferred to members of archives.
    """
    for pattern in patterns:
        matching = [file for file in files if matches(file.name, pattern)]
        matching = [file for file in matching if file.member is None] or matching
        if len(matching) > 1:
            names = ", ".join(str(file) for file in matching[:5])
            raise DataError(f"{len(matching)} files match {pattern!r}: {names}; choose one with --source=FILE")
        if matching:
            return matching[0]
    return None
