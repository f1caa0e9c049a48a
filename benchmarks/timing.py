"""How long a call takes: shared by the benchmarks."""

import statistics
import time
from collections.abc import Callable


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of a call; if there is more than one, another one before them does not count."""
    if repeats > 1:
        call()
    return statistics.median(seconds_of(call) for _ in range(repeats))
