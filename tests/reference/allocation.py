"""How much memory a call holds at its peak, from the allocator's own record of every allocation and release."""

from __future__ import annotations

from collections.abc import Callable

import torch


def peak_bytes(call: Callable[[], object], *gradients: int) -> int:
    """Return the largest number of bytes that ``call`` held at one time beyond what was there before, on CPU.

    ``gradients`` are the sizes of parameter gradients: one buffer of each size at a time is not counted.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = call()
    held = peak = 0
    alive = dict.fromkeys(gradients, 0)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        if abs(event.nbytes()) in alive:
            alive[abs(event.nbytes())] += 1 if event.nbytes() > 0 else -1
        peak = max(peak, held - sum(size for size, count in alive.items() if count > 0))
    del kept
    return peak
