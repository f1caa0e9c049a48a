"""The cache of stores, in the user's cache folder, under a digest of everything that determines a store.

A file counts as unchanged while its path, size, inode and times are the same. A store that cannot be mapped (another
version, cut off) is rebuilt.
"""

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.files import digest, is_no_space, replaced_folder
from recbole_hyper.processes import cache_folder

FORMAT = 3  # increase it if the same files and keys result in another store
SMALLEST = 4 << 20  # smaller files are not cached: reading them is as fast
LARGEST = 20 << 30  # bytes of all stores; the least recently used are removed first

logger = logging.getLogger("recbole_hyper")


def cached(source: Source, read: Callable[[Source], SequenceStore]) -> SequenceStore:
    """Return the store of ``source`` mapped into memory; ``read`` reads it if it is not in the cache."""
    files = [path for path in source.files() if path.is_file()]
    if sum(path.stat().st_size for path in files) < SMALLEST:
        return read(source)
    start = time.perf_counter()
    key = {"format": FORMAT, "files": [_version(path) for path in files], **source.plain()}
    folder = cache_folder() / "stores" / digest(key, 32)
    if (mapped := _mapped(folder)) is not None:
        seconds = time.perf_counter() - start
        logger.info("data from the cache %s in %.2f s (--use_cache=False reads the files)", folder, seconds)
        return mapped
    store = read(source)
    logger.info("data read in %.2f s", time.perf_counter() - start)
    return _saved(store, folder)


def _version(path: Path) -> list[object]:
    """Return what changes when a file changes; programs may set st_mtime, but not st_ctime."""
    state = path.stat()
    return [str(path.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def _mapped(folder: Path) -> SequenceStore | None:
    """Return the store in a folder, None if there is no valid one."""
    if not folder.is_dir():
        return None
    try:
        store = SequenceStore.load(folder)
    except (OSError, ValueError, KeyError, EOFError) as error:
        logger.warning("the cache %s cannot be used (%s); it is rebuilt", folder, error)
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)
    return store


def _saved(store: SequenceStore, folder: Path) -> SequenceStore:
    """Save ``store`` in ``folder`` and return it mapped from there, or unchanged if the cache cannot be written."""
    try:
        with replaced_folder(folder) as part:
            _make_room(folder.parent, store)
            store.save(part)
        logger.info("saved in the cache %s; you may delete it at any time", folder)
        return _mapped(folder) or store
    except OSError as error:
        reason = "no space to save the data" if is_no_space(error) else "cannot save the data"
        logger.warning("%s in the cache %s: %s", reason, folder.parent, error)
        return store


def _make_room(root: Path, store: SequenceStore) -> None:
    """Remove the least recently used stores."""
    space = LARGEST - store.nbytes
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        space -= sum(file.stat().st_size for file in folder.iterdir())
        if space < 0:
            shutil.rmtree(folder, ignore_errors=True)
