"""One way to compile: kept in the user's cache folder, its time counted by :mod:`recbole_hyper.kernels.clock`.

numba keeps compiled functions beside their source, which an installed package may not allow, and looks at the file of
a function alone, not at those whose functions it uses. Here they are kept under a digest of all kernels.

Plain twin: ``numba.njit(cache=True)``.
Kept for: a start of seconds less wherever the package lies, in every process but the first.
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
    """Return ``numba.njit(**options)`` that keeps what it compiles in :func:`folder`, if that can be written."""

    def compile_(function: Callable[..., Any]) -> Any:
        # functions of other packages stay where they are
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder()  # type: ignore[attr-defined]
        try:
            return njit(function, cache=True, **options)
        except RuntimeError:  # neither that folder, nor the one beside the source, nor numba's own can be written
            COMPILING.place = ""
            return njit(function, **options)
        finally:
            numba.config.CACHE_DIR = before  # type: ignore[attr-defined]

    return compile_


@functools.cache
def folder() -> str:
    """Return where kernels are kept: ``NUMBA_CACHE_DIR`` where it is set, else in the user's cache folder."""
    COMPILING.place = str(numba.config.CACHE_DIR) or default_folder()  # type: ignore[attr-defined]
    return COMPILING.place


def threaded(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return :func:`compiled` for a parallel kernel that runs with as many threads as torch uses now.

    numba's first parallel call sets the thread count of OpenMP, which is torch's too; here it stays as it is. A process
    without torch keeps numba's number.
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
