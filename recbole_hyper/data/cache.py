"""Stores that were read before, in the user's cache folder under the digest of everything that decides them.

A store is written to a temporary folder, which is renamed when it is complete: two processes may write the same store,
and no process maps an incomplete one. A store that cannot be mapped (another version, cut off) is removed and rebuilt.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.files import cache_folder, digest, file_digest, is_no_space, read_json, write_json

FORMAT = 2  # raised when the same files and keys give another store
# a smaller file is read again as quickly
SMALLEST = 4 << 20
LARGEST = 20 << 30  # bytes of all stores together; those not used for the longest time go first
CHECKED = "checked.json"  # digest of some blocks, and the files as they were when all blocks were compared
_SAMPLED, _BLOCK = 16, 4096
# a file written to less than this many seconds before it was looked at may change again under the same time
_UNSURE = 2.0

logger = logging.getLogger("recbole_hyper")


def cached(source: Source, read: Callable[[Source], SequenceStore]) -> SequenceStore:
    """Return the store of ``source`` mapped into memory; ``read`` makes it if the cache does not have it."""
    files = [path for path in source.files() if path.is_file()]
    if sum(path.stat().st_size for path in files) < SMALLEST:
        return read(source)
    start = time.perf_counter()
    digests = {path.name.removeprefix(source.name): known_digest(path) for path in files}
    folder = cache_folder() / "stores" / digest({"format": FORMAT, "files": digests, **source.plain()}, 32)
    if (mapped := _mapped(folder)) is not None:
        seconds = time.perf_counter() - start
        logger.info("data from the cache %s in %.2f s (--use_cache=False reads the files)", folder, seconds)
        return mapped
    store = read(source)
    logger.info("data read in %.2f s", time.perf_counter() - start)
    return _kept(store, folder)


def _version(path: Path) -> list[int]:
    """Return what changes with a file: a program may set the time of its content, but not that of its last change."""
    state = path.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def known_digest(path: Path) -> str:
    """Return the sha256 of a file, remembered while its size, its time and its place on the disk stay the same."""
    place = str(path.resolve())
    signature = [place, *_version(path)]
    note = cache_folder() / "digests" / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError):
        known = read_json(note)
        if known.get("signature") == signature:
            return str(known["sha256"])
    digest = file_digest(path)
    if time.time() - signature[2] / 1e9 > _UNSURE:  # type: ignore[operator]
        with contextlib.suppress(OSError):
            write_json(note, {"signature": signature, "sha256": digest})
    return digest


def _mapped(folder: Path) -> SequenceStore | None:
    """Return the store in a folder, None where there is none, or none any more: some blocks are compared each time."""
    if not folder.is_dir():
        return None
    try:
        store, note, state = SequenceStore.load(folder), read_json(folder / CHECKED), _state(folder)
        if note.get("sample") != state["sample"]:
            raise ValueError("a file is not what was written")
        if note.get("versions") != state["versions"]:
            store.__dict__.pop("_fingerprint", None)
            if store.fingerprint() != read_json(folder / "meta.json")["fingerprint"]:
                raise ValueError("a file is not what was written")
            with contextlib.suppress(OSError):
                write_json(folder / CHECKED, state)
    except (OSError, ValueError, KeyError, EOFError) as error:
        logger.warning("the cache %s cannot be used (%s); it is rebuilt", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)
    return store


def _state(folder: Path) -> dict[str, Any]:
    """Return a digest of some blocks of each array, the first and last among them, and the versions of the files."""
    sha256, files = hashlib.sha256(), sorted(folder.glob("*.npy"))
    for path in files:
        size = path.stat().st_size
        sha256.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for place in range(_SAMPLED):
                file.seek(max(0, size - _BLOCK) * place // (_SAMPLED - 1))
                sha256.update(file.read(_BLOCK))
    return {"sample": sha256.hexdigest(), "versions": {path.name: _version(path) for path in files}}


def _kept(store: SequenceStore, folder: Path) -> SequenceStore:
    """Return ``store`` mapped from ``folder``, or unchanged if the cache cannot be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_room(folder.parent, store)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent, ignore_cleanup_errors=True) as name:
            part = Path(name)
            store.save(part)
            write_json(part / CHECKED, _state(part))
            for path in (*part.iterdir(), part):  # everything is on the disk before the folder is renamed
                number = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)
            with contextlib.suppress(OSError):  # another process has made it meanwhile
                part.rename(folder)
        logger.info("kept in the cache %s; it may be deleted at any time", folder)
        return _mapped(folder) or store
    except OSError as error:
        why = "there is no space to keep the data" if is_no_space(error) else "the data cannot be kept"
        logger.warning("%s in the cache %s: %s", why, folder.parent, error)
        return store


def _make_room(root: Path, store: SequenceStore) -> None:
    """Remove the least recently used stores, and what killed processes left."""
    left = LARGEST - store.nbytes
    for entry in sorted((one for one in root.iterdir() if one.is_dir()), key=lambda entry: -entry.stat().st_mtime):
        if entry.name.startswith("."):
            gone = time.time() - entry.stat().st_mtime > 86_400
        else:
            left -= sum(file.stat().st_size for file in entry.iterdir())
            gone = left < 0
        if gone:
            shutil.rmtree(entry, ignore_errors=True)
