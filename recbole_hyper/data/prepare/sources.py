"""Where raw data come from: a file, plain or compressed, a member of an archive, or a folder that holds one."""

from __future__ import annotations

import bz2
import contextlib
import fnmatch
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from tqdm import tqdm

from recbole_hyper.data.prepare.errors import PrepareError
from recbole_hyper.files import file_digest

# what decompressors raise over bytes that are not theirs
DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2")
_COMPRESSED = (".gz", ".bz2")


@dataclass(frozen=True)
class SourceFile:
    """One raw file: ``path`` on disk and, where that is an archive, the name of the ``member`` inside."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """The file's own name, without folders."""
        return Path(self.member).name if self.member else self.path.name

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def sha256(self) -> str:
        """Return the checksum of the file on disk (of the whole archive for a member)."""
        return file_digest(self.path)

    @contextlib.contextmanager
    def open(self, *, progress: bool | None = None) -> Iterator[BinaryIO]:
        """Open for reading, decompressed, with a progress bar over the bytes on disk (of a zip: over those inside).

        Args:
            progress: True or False shows or hides the bar; None shows it on a terminal only.
        """
        with contextlib.ExitStack() as stack:

            def counted(stream: BinaryIO, total: int) -> BinaryIO:
                hidden = None if progress is None else not progress
                bar = tqdm.wrapattr(
                    stream, "read", total=total, unit="B", unit_scale=True, desc=self.name, disable=hidden
                )
                return cast(BinaryIO, stack.enter_context(bar))

            disk = stack.enter_context(self.path.open("rb"))
            if self.member and self.path.suffix.lower() == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(disk))
                extracted = stack.enter_context(_unzipped(archive, self.member, self))
                yield _decompressed(counted(extracted, archive.getinfo(self.member).file_size), self.member)
                return
            stream = counted(disk, self.path.stat().st_size)
            if self.member:
                tar = stack.enter_context(tarfile.open(fileobj=stream, mode="r:*"))
                member = tar.extractfile(self.member)
                if member is None:
                    raise PrepareError(f"{self} is not a regular file; unpack the archive and give the file itself")
                stream = cast(BinaryIO, stack.enter_context(member))
            yield _decompressed(stream, self.name)


def _unzipped(archive: zipfile.ZipFile, member: str, file: SourceFile) -> BinaryIO:
    try:
        return cast(BinaryIO, archive.open(member))
    # zipfile's errors for a password and for a compression that it or this Python lacks
    except (RuntimeError, NotImplementedError) as error:
        encrypted = archive.getinfo(member).flag_bits & 1
        reason = "is encrypted" if encrypted else f"is compressed by a method that Python cannot undo ({error})"
        raise PrepareError(
            f"{file} {reason}; unpack the archive by another program and give the file itself"
        ) from error


def _decompressed(stream: BinaryIO, name: str) -> BinaryIO:
    if name.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    if name.lower().endswith(".bz2"):
        return cast(BinaryIO, bz2.BZ2File(stream))
    return stream


def is_archive(path: Path) -> bool:
    """Say whether ``path`` names an archive with members (zip or tar, compressed or not)."""
    return path.name.lower().endswith(_ARCHIVES)


def _members(path: Path) -> list[str]:
    try:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        with tarfile.open(path) as tar:
            return [entry.name for entry in tar if entry.isfile()]
    except (*DAMAGED, OSError, NotImplementedError) as error:
        raise PrepareError(f"{path} cannot be read as an archive ({error}); fetch it again") from error


def matches(name: str, pattern: str) -> bool:
    """Compare a file's own name with a pattern, whatever its case, its folder and its .gz or .bz2 ending."""
    plain = Path(name).name.lower()
    candidates = [plain] + [plain.removesuffix(ending) for ending in _COMPRESSED if plain.endswith(ending)]
    return any(fnmatch.fnmatchcase(candidate, pattern.lower()) for candidate in candidates)


def contents(source: Path) -> list[SourceFile]:
    """List the raw files that ``source`` (a file, an archive or a folder) offers.

    Raises:
        PrepareError: the path does not exist, holds no files, or is an archive that cannot be read.
    """
    if not source.exists():
        raise PrepareError(f"--source={source} does not exist; give a file, a zip or tar archive, or a folder")
    if not (source.is_file() or source.is_dir()):
        raise PrepareError(f"--source={source} is a pipe or a device; give a regular file, an archive or a folder")
    found = _listed(source)
    if not found:
        kind = "folder" if source.is_dir() else "archive"
        raise PrepareError(f"--source={source} is a {kind} without files; give the file that was downloaded")
    return found


def _listed(source: Path) -> list[SourceFile]:
    if source.is_file():
        return (
            [SourceFile(source, member) for member in _members(source)] if is_archive(source) else [SourceFile(source)]
        )
    found: list[SourceFile] = []
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            found.append(SourceFile(path))
            if is_archive(path):
                found.extend(SourceFile(path, member) for member in _members(path))
    return found


def pick(files: Sequence[SourceFile], patterns: Sequence[str]) -> SourceFile | None:
    """Return the file that fits the first pattern that any file fits, or None.

    A plain file wins over the same file inside an archive.

    Raises:
        PrepareError: several different files fit the same pattern.
    """
    for pattern in patterns:
        fitting = [file for file in files if matches(file.name, pattern)]
        plain = [file for file in fitting if file.member is None]
        fitting = plain or fitting
        if len(fitting) > 1:
            listed = ", ".join(str(file) for file in fitting[:5])
            raise PrepareError(f"{len(fitting)} files fit {pattern!r}: {listed}; give one of them by --source=FILE")
        if fitting:
            return fitting[0]
    return None
