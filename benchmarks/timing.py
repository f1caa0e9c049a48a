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
    """Return the median seconds of a call, after one call that does not count."""
    call()
    return statistics.median(seconds_of(call) for _ in range(repeats))
