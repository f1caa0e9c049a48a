"""Compile with numba, cache the result in the user's cache folder, and count the time (``kernels.clock``).

numba caches compiled functions beside their source, where an installed package may not be writable. It also looks only
at the file of a function, not at the files of the functions that it calls. Here the cache has a digest of all kernels.

Plain twin: ``numba.njit(cache=True)``.
Kept for: every process but the first starts seconds earlier, wherever the package is installed.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numba
from numba import njit
from numba.core import event

from recbole_hyper.kernels.clock import COMPILING, default_folder


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.njit(**options)`` with its cache in :func:`folder`, if that is writable."""

    def compile_(function: Callable[..., Any]) -> Any:
        # the caches of other packages stay where they are
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder()  # type: ignore[attr-defined]
        try:
            return njit(function, cache=True, **options)
        except RuntimeError:  # neither that folder, nor the one beside the source, nor numba's own is writable
            COMPILING.place = ""
            return njit(function, **options)
        finally:
            numba.config.CACHE_DIR = before  # type: ignore[attr-defined]

    return compile_


@functools.cache
def folder() -> str:
    """Return where kernels are cached: ``NUMBA_CACHE_DIR`` if it is set, else a folder in the user's cache."""
    COMPILING.place = str(numba.config.CACHE_DIR) or default_folder()  # type: ignore[attr-defined]
    return COMPILING.place


def threaded(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return :func:`compiled` for a parallel kernel that runs with torch's current number of threads.

    numba's first parallel call would change OpenMP's thread count, which torch shares; here it stays. A process without
    torch uses numba's number.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        kernel = compiled(parallel=True, **options)(function)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            torch = sys.modules.get("torch")
            if torch is None:
                return kernel(*arguments)
            threads, before = torch.get_num_threads(), numba.get_num_threads()
            numba.set_num_threads(max(1, min(threads, numba.config.NUMBA_NUM_THREADS)))  # type: ignore[attr-defined]
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            try:
                return kernel(*arguments)
            finally:
                numba.set_num_threads(before)

        return call

    return compile_


class _Compilation(event.Listener):
    def on_start(self, _: Any) -> None:
        COMPILING.start()

    def on_end(self, _: Any) -> None:
        COMPILING.stop()


event.register("numba:compile", _Compilation())
