"""Where compiled kernels are kept, how long this process compiled them, and a watch without that time; no numba."""

import hashlib
import logging
import threading
from pathlib import Path
from time import perf_counter

from recbole_hyper.files import cache_folder

logger = logging.getLogger("recbole_hyper")


def default_folder() -> str:
    """Return a folder of the user's cache that other sources of the kernels do not share.

    "" where the user has no home: numba then looks for a place.
    """
    source = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        source.update(file.read_bytes())
    try:
        return str(cache_folder() / "kernels" / source.hexdigest()[:16])
    except RuntimeError:
        return ""


class CompileClock:
    """The seconds that this process spent on compiling kernels; what is read from the cache costs none.

    One kernel may compile another, whose time is counted once. numba compiles one kernel at a time, in any thread.
    """

    def __init__(self) -> None:
        self._own = threading.local()
        self.seconds = 0.0
        self.place = ""

    def start(self) -> None:
        """Begin the compilation of a kernel; the first one of a process is logged."""
        depth = self._own.depth = getattr(self._own, "depth", 0) + 1
        if depth > 1:
            return
        if not self.seconds:
            logger.info("compiling kernels, once for this machine; kept in %s", self.place or "memory only")
        self._own.began = perf_counter()

    def stop(self) -> None:
        """End the compilation of a kernel."""
        self._own.depth -= 1
        if not self._own.depth:
            self.seconds += perf_counter() - self._own.began


COMPILING = CompileClock()


class Stopwatch:
    """Wall time since its creation, without the time in which kernels were compiled."""

    def __init__(self) -> None:
        self._start = perf_counter() - COMPILING.seconds

    def seconds(self) -> float:
        """Return the seconds so far."""
        return perf_counter() - COMPILING.seconds - self._start
