"""Where compiled kernels are cached, how long this process compiled, and a stopwatch without that time; no numba."""

import hashlib
import logging
import threading
from pathlib import Path
from time import perf_counter

from recbole_hyper.processes import cache_folder

logger = logging.getLogger("recbole_hyper")


def default_folder() -> str:
    """Return a folder in the user's cache for exactly these sources of the kernels.

    "" if the user has no home; numba then chooses a place.
    """
    source = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        source.update(file.read_bytes())
    try:
        return str(cache_folder() / "kernels" / source.hexdigest()[:16])
    except RuntimeError:
        return ""


class CompileClock:
    """The seconds that this process spent on compiling kernels; kernels from the cache take none.

    If one kernel compiles another, the time is counted once. numba compiles one kernel at a time, in any thread.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self.seconds = 0.0
        self.place = ""

    def start(self) -> None:
        """Start the clock when a kernel is compiled; the first one of a process is logged."""
        depth = self._local.depth = getattr(self._local, "depth", 0) + 1
        if depth > 1:
            return
        if not self.seconds:
            logger.info("compiling kernels, once for this machine; cached in %s", self.place or "memory only")
        self._local.began = perf_counter()

    def stop(self) -> None:
        """Stop the clock."""
        self._local.depth -= 1
        if not self._local.depth:
            self.seconds += perf_counter() - self._local.began


COMPILING = CompileClock()


class Stopwatch:
    """Wall time since its creation, without the time in which kernels were compiled."""

    def __init__(self) -> None:
        self._start = perf_counter() - COMPILING.seconds

    def seconds(self) -> float:
        """Return the seconds so far."""
        return perf_counter() - COMPILING.seconds - self._start
