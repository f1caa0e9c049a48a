"""How long kernels were compiled in this process, and a watch that leaves that time out. No numba is imported here."""

import logging
import threading
from time import perf_counter

logger = logging.getLogger("recbole_hyper")


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
        depth = getattr(self._own, "depth", 0)
        self._own.depth = depth + 1
        if depth:
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
        self._start, self._compiled = perf_counter(), COMPILING.seconds

    def seconds(self) -> float:
        """Return the seconds so far."""
        return perf_counter() - self._start - (COMPILING.seconds - self._compiled)
