"""The cache of stores, in the user's cache folder, under a digest of everything that determines a store.

A store is written to a temporary folder, which is renamed when it is complete. So two processes may write the same
store, and no process maps an incomplete one. A store that cannot be mapped (another version, cut off) is rebuilt.
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

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.files import digest, file_digest, is_no_space, read_json, write_json
from recbole_hyper.processes import cache_folder

FORMAT = 2  # increase it if the same files and keys result in another store
SMALLEST = 4 << 20  # smaller files are not cached: reading them is as fast
LARGEST = 20 << 30  # bytes of all stores; the least recently used are removed first
CHECKED = "checked.json"  # the versions of the files at the last check
_UNSURE = 2.0  # a file modified in the last seconds may change again without a new modification time

logger = logging.getLogger("recbole_hyper")


def cached(source: Source, read: Callable[[Source], SequenceStore]) -> SequenceStore:
    """Return the store of ``source`` mapped into memory; ``read`` reads it if it is not in the cache."""
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
    return _saved(store, folder)


def _version(path: Path) -> list[int]:
    """Return what changes when a file changes; programs may set st_mtime, but not st_ctime."""
    state = path.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def known_digest(path: Path) -> str:
    """Return the sha256 of a file, which is cached as long as the file's size, times and inode stay the same."""
    resolved, version = str(path.resolve()), _version(path)
    note = cache_folder() / "digests" / f"{hashlib.sha256(resolved.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError):
        known = read_json(note)
        if known.get("signature") == [resolved, *version]:
            return str(known["sha256"])
    digest = file_digest(path)
    if time.time() - version[1] / 1e9 > _UNSURE:
        with contextlib.suppress(OSError):
            write_json(note, {"signature": [resolved, *version], "sha256": digest})
    return digest


def _mapped(folder: Path) -> SequenceStore | None:
    """Return the store in a folder, None if there is no valid one; all of it is checked if a file was touched."""
    if not folder.is_dir():
        return None
    try:
        store, versions = SequenceStore.load(folder), _versions(folder)
        if read_json(folder / CHECKED) != versions:
            store.__dict__.pop("_fingerprint", None)
            if store.fingerprint() != read_json(folder / "meta.json")["fingerprint"]:
                raise ValueError("a file is not what was written")
            with contextlib.suppress(OSError):
                write_json(folder / CHECKED, versions)
    except (OSError, ValueError, KeyError, EOFError) as error:
        logger.warning("the cache %s cannot be used (%s); it is rebuilt", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)
    return store


def _versions(folder: Path) -> dict[str, list[int]]:
    return {path.name: _version(path) for path in sorted(folder.glob("*.npy"))}


def _saved(store: SequenceStore, folder: Path) -> SequenceStore:
    """Save ``store`` in ``folder`` and return it mapped from there, or unchanged if the cache cannot be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_room(folder.parent, store)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent, ignore_cleanup_errors=True) as name:
            part = Path(name)
            store.save(part)
            write_json(part / CHECKED, _versions(part))
            for path in (*part.iterdir(), part):  # flush everything to the disk before the folder is renamed
                number = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)
            with contextlib.suppress(OSError):  # another process was faster
                part.rename(folder)
        logger.info("saved in the cache %s; you may delete it at any time", folder)
        return _mapped(folder) or store
    except OSError as error:
        reason = "no space to save the data" if is_no_space(error) else "cannot save the data"
        logger.warning("%s in the cache %s: %s", reason, folder.parent, error)
        return store


def _make_room(root: Path, store: SequenceStore) -> None:
    """Remove the least recently used stores, and temporary folders of killed processes."""
    space = LARGEST - store.nbytes
    folders = [path for path in root.iterdir() if path.is_dir()]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        if folder.name.startswith("."):
            remove = time.time() - folder.stat().st_mtime > 86_400
        else:
            space -= sum(file.stat().st_size for file in folder.iterdir())
            remove = space < 0
        if remove:
            shutil.rmtree(folder, ignore_errors=True)
