"""Sources of raw data: a file, plain or compressed, a member of an archive, or a folder with files."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import fnmatch
import gzip
import hashlib
import lzma
import shutil
import tarfile
import tempfile
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
_MARKS = ("_SUCCESS", "_committed_", "_started_", "_metadata", "_common_metadata")  # files that Spark adds to a folder
_COMPRESSED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda stream: pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd"),
}


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
    """A raw file; the ``parts`` of a folder are read as one file."""

    path: Path
    parts: tuple[SourceFile, ...] = ()

    @property
    def name(self) -> str:
        """The file's name, without folders."""
        return self.path.name

    def __str__(self) -> str:
        return str(self.path)

    def sha256(self) -> str:
        """Return the file's checksum; for parts, that of the lines that ``sha256sum`` prints in their folder."""
        if not self.parts:
            return file_digest(self.path)
        lines = (f"{part.sha256()}  {part.path.relative_to(self.path)}\n" for part in self.parts)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def first_bytes(self, count: int, encoding: str | None = None) -> bytes:
        """Return the start of the file, or of the first part."""
        data = b""
        with (self.parts or (self,))[0].open(encoding=encoding) as stream:
            while len(data) < count and (piece := stream.read(count - len(data))):
                data += piece
        return data

    @contextlib.contextmanager
    def open(self, *, bar: bool = False, encoding: str | None = None) -> Iterator[BinaryIO]:
        """Open for reading, decompressed, in a terminal with a progress ``bar`` over the bytes on disk.

        Text in another ``encoding`` is converted to UTF-8.
        """
        hidden = None if bar else True
        with damage_named(self), contextlib.ExitStack() as stack:
            stream: Any = stack.enter_context(self.path.open("rb"))
            size = self.path.stat().st_size
            shown = tqdm.wrapattr(stream, "read", total=size, unit="B", unit_scale=True, desc=self.name, disable=hidden)
            stream = stack.enter_context(shown)
            if unpack := _COMPRESSED.get(Path(self.name.lower()).suffix):
                stream = unpack(stream)
            if encoding not in (None, "utf-8"):
                stream = codecs.EncodedFile(stream, "utf-8", encoding)
            try:
                yield cast(BinaryIO, stream)
            except UnicodeError as error:
                raise DataError(f"{self}: {error}; set the file's --encoding") from error


def matches(name: str, pattern: str) -> bool:
    """Compare a file's name with a pattern; ignores case, folder, and the endings .gz, .bz2, .xz and .zst."""
    plain = Path(name).name.lower()
    candidates = [plain] + [plain.removesuffix(ending) for ending in _COMPRESSED if plain.endswith(ending)]
    return any(fnmatch.fnmatchcase(candidate, pattern.lower()) for candidate in candidates)


@contextlib.contextmanager
def unpacked(source: Path) -> Iterator[Path]:
    """Yield a folder with the files of an archive (zip or tar, compressed or not), or the source if it is not one."""
    endings = tuple(ending for _, some, _ in shutil.get_unpack_formats() for ending in some)
    if not (source.is_file() and source.name.endswith(endings)):
        yield source
        return
    with tempfile.TemporaryDirectory() as folder:
        with damage_named(source):
            # no file beside the folder; shutil leaves out such files of a zip archive
            shutil.unpack_archive(source, folder, filter=None if source.suffix == ".zip" else "data")
        yield Path(folder)


def contents(source: Path) -> list[SourceFile]:
    """List the raw files in ``source`` (a file or a folder), in the order of their names; DataError if there is none.

    Names that start with a dot, the marks that Spark adds, and its empty files are left out.
    """
    if not (source.is_file() or source.is_dir()):
        raise DataError(f"--source={source} does not exist; give a file, a zip or tar archive, or a folder")
    if source.is_file():
        return [SourceFile(source)]
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.name.startswith((".", *_MARKS))]
    full = [path for path in files if path.stat().st_size or path.suffix == ".parquet"]
    if not full:
        raise DataError(f"--source={source} has no files; use the downloaded file")
    return [SourceFile(path) for path in full]


def one_of(source: Path, files: Sequence[SourceFile], header: bool = True) -> SourceFile | None:
    """Return the only file, or a folder of parquet, of json lines, or of text files with equal endings as a whole.

    Text files must have equal first lines, unless they have no ``header``. None for other folders.
    """
    if len(files) == 1 and files[0].path.parent in (source, source.parent):
        return files[0]
    endings = {"".join(Path(file.name.lower()).suffixes[-2:]) for file in files}
    whole = SourceFile(source, parts=tuple(files))
    if all(matches(file.name, "*.parquet") for file in files):
        return whole
    heads = [file.first_bytes(1 << 16).split(b"\n", 1)[0].strip() for file in files] if len(endings) == 1 else [b""]
    alike = not header or len(set(heads)) == 1 or all(head.startswith(b"{") for head in heads)
    return whole if alike and all(heads) else files[0] if len(files) == 1 else None


def pick(files: Sequence[SourceFile], patterns: Sequence[str]) -> SourceFile | None:
    """Return the file for the first pattern that matches, None if there is none; DataError for several files."""
    for pattern in patterns:
        matching = [file for file in files if matches(file.name, pattern)]
        if len(matching) > 1:
            names = ", ".join(str(file) for file in matching[:5])
            raise DataError(f"{len(matching)} files match {pattern!r}: {names}; choose one with --source=FILE")
        if matching:
            return matching[0]
    return None
