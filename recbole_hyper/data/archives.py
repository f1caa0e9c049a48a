"""Where raw data come from: a file, plain or compressed, a member of an archive, or a folder of one or more files."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import fnmatch
import gzip
import hashlib
import lzma
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

# errors of decompressors and Arrow for bytes that they cannot read; zipfile raises RuntimeError for a password
_DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, EOFError, RuntimeError, pa.ArrowException)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2")
_COMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {".gz": gzip.open, ".bz2": bz2.open}


@contextlib.contextmanager
def damage_named(name: object) -> Iterator[None]:
    """Turn whatever is raised over bytes that cannot be unpacked into one DataError with the file's ``name``."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        # the system's own errors have numbers; a decompressor's have none
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{name} is cut off, damaged or packed in a way that cannot be undone here ({error}); fetch it again, or "
            "unpack it by another program and give the file itself"
        ) from error


@dataclass(frozen=True)
class SourceFile:
    """A raw file: ``path`` and, in an archive, its ``member``; ``parts`` of a folder are read as one file."""

    path: Path
    member: str | None = None
    parts: tuple[SourceFile, ...] = ()

    @property
    def name(self) -> str:
        """The file's own name, without folders."""
        return Path(self.member).name if self.member else self.path.name

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def sha256(self) -> str:
        """Return the checksum of the file on disk (of the whole archive for a member).

        That of parts is the checksum of what ``sha256sum`` prints for them, with their paths inside the folder.
        """
        if not self.parts:
            return file_digest(self.path)
        lines = (f"{part.sha256()}  {part.path.relative_to(self.path)}\n" for part in self.parts)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise DataError at the end where the file, or one of its parts, is no longer what it was."""

        def state() -> list[tuple[int, int, int]]:
            stats = [part.path.stat() for part in self.parts or (self,)]
            return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]

        before = state()
        yield
        if state() != before:
            raise DataError(f"{self} changed while it was read; nothing was written, run it again when it is complete")

    def first_bytes(self, count: int, encoding: str | None = None) -> bytes:
        """Return the start of the file, or of the first part."""
        data = b""
        with (self.parts or (self,))[0].open(progress=False, encoding=encoding) as stream:
            while len(data) < count and (piece := stream.read(count - len(data))):
                data += piece
        return data

    @contextlib.contextmanager
    def open(self, *, progress: bool | None = None, encoding: str | None = None) -> Iterator[BinaryIO]:
        """Open for reading, decompressed, with a progress bar over the bytes on disk (of a zip: over those inside).

        ``progress`` shows or hides the bar; None shows it on a terminal only. Text of another ``encoding`` comes as
        UTF-8.
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
            yield stream if encoding in (None, "utf-8") else cast(BinaryIO, Recoded(stream, str(encoding), str(self)))


class Recoded:
    """A stream of text in some encoding, read as UTF-8; DataError, with the line, for bytes that are not in it."""

    def __init__(self, stream: BinaryIO, encoding: str, name: str) -> None:
        self._stream, self._name, self._line = stream, name, 1
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int) -> bytes:
        """Return about ``size`` bytes, none at the end."""
        while True:
            data = self._stream.read(size)
            try:
                text = self._decoder.decode(data, final=not data).removeprefix("\ufeff" if self._line == 1 else "")
            except UnicodeDecodeError as error:
                line = self._line + error.object.count(b"\n", 0, error.start)
                raise DataError(
                    f"{self._name}, line {line}: the byte 0x{error.object[error.start]:02x} is not in {error.encoding} "
                    f"({error.reason}); give the file's --encoding"
                ) from error
            except UnicodeError as error:
                raise DataError(f"{self._name}: {error}; give the file's --encoding") from error
            self._line += text.count("\n")
            if text or not data:
                return text.encode("utf-8", "surrogatepass")


def _members(path: Path) -> list[SourceFile]:
    """Return the files inside an archive (zip or tar, compressed or not), the file itself where it is none."""
    if not path.name.lower().endswith(_ARCHIVES):
        return [SourceFile(path)]
    with damage_named(path):
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                return [SourceFile(path, entry.filename) for entry in archive.infolist() if not entry.is_dir()]
        with tarfile.open(path) as tar:
            return [SourceFile(path, entry.name) for entry in tar if entry.isfile()]


def matches(name: str, pattern: str) -> bool:
    """Compare a file's own name with a pattern, whatever its case, its folder and its .gz or .bz2 ending."""
    plain = Path(name).name.lower()
    candidates = [plain] + [plain.removesuffix(ending) for ending in _COMPRESSED if plain.endswith(ending)]
    return any(fnmatch.fnmatchcase(candidate, pattern.lower()) for candidate in candidates)


def contents(source: Path) -> list[SourceFile]:
    """List the raw files that ``source`` (a file, an archive or a folder) offers, in the order of their names.

    A folder whose files are all parquet, but for those that begin with a dot or with _, is one file with parts.
    DataError where there is no file, or an archive cannot be read.
    """
    if not source.exists():
        raise DataError(f"--source={source} does not exist; give a file, a zip or tar archive, or a folder")
    if not (source.is_file() or source.is_dir()):
        raise DataError(f"--source={source} is a pipe or a device; give a regular file, an archive or a folder")
    if source.is_file():
        members = _members(source)
    else:
        plain = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.name.startswith(".")]
        parts = [path for path in plain if not path.name.startswith("_")]
        many = len(parts) > 1 or any(path.parent != source for path in parts)
        if many and all(matches(path.name, "*.parquet") for path in parts):
            return [SourceFile(source, parts=tuple(SourceFile(path) for path in parts))]
        # an archive is a file of its own beside its members
        members = [file for path in plain for file in dict.fromkeys((SourceFile(path), *_members(path)))]
    if not members:
        kind = "folder" if source.is_dir() else "archive"
        raise DataError(f"--source={source} is a {kind} without files; give the file that was downloaded")
    return members


def parts_of(source: Path, files: Sequence[SourceFile]) -> SourceFile | None:
    """Return a folder of text files with one ending and one first line, or of json lines, as a file with parts."""
    plain = [file for file in files if file.member is None and not file.name.startswith("_")]
    endings = {"".join(Path(file.name.lower()).suffixes[-2:]) for file in plain}
    if not source.is_dir() or len(plain) < 2 or len(endings) != 1 or len(plain) != len(files):
        return None
    heads = [file.first_bytes(1 << 16).split(b"\n", 1)[0].strip() for file in plain]
    alike = len(set(heads)) == 1 or all(head.startswith(b"{") for head in heads)
    return SourceFile(source, parts=tuple(plain)) if alike and all(heads) else None


def pick(files: Sequence[SourceFile], patterns: Sequence[str]) -> SourceFile | None:
    """Return the file that fits the first pattern that any fits, a plain one first, or None; DataError for several."""
    for pattern in patterns:
        chosen = [file for file in files if matches(file.name, pattern)]
        chosen = [file for file in chosen if file.member is None] or chosen
        if len(chosen) > 1:
            listed = ", ".join(str(file) for file in chosen[:5])
            raise DataError(f"{len(chosen)} files fit {pattern!r}: {listed}; give one of them by --source=FILE")
        if chosen:
            return chosen[0]
    return None
