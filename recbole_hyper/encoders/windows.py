"""Window sizes of DualRec's attention heads, and the choice of heads that are faster in blocks."""

import math
from collections.abc import Sequence
from numbers import Integral


def window_sizes(n_heads: int, length: int) -> tuple[int, ...]:
    r"""Return how many items each head sees, itself included (DualRec, equation 8).

    .. math:: WS(i) = i + 1 \text{ if } i \le h/2, \text{ else }
              h/2 + \lceil e^{i - h/2} / e^{h/2} \cdot (n - h/2) \rceil, \quad i = 1..h

    The published code has the result for h = 8, n = 50 as constants: 2, 3, 4, 5, 7, 11, 21, 50. ValueError if
    ``n_heads`` is odd or not positive, or ``length`` is shorter than window h/2.
    """
    if n_heads < 2 or n_heads % 2:
        raise ValueError(f"n_heads={n_heads}: equation 8 needs an even number of heads; list the windows instead")
    half = n_heads // 2
    if length < half + 1:
        raise ValueError(
            f"sequence length {length} is shorter than window {half + 1} of head {half} out of {n_heads}; "
            f"use at most {2 * (length - 1)} heads, or MAX_ITEM_LIST_LENGTH of at least {half + 1}"
        )
    # e^(i-h/2) / e^(h/2) as one exponential: exactly 1 for the last head, whose window is then exactly n
    wide = [half + math.ceil(math.exp(i - n_heads) * (length - half)) for i in range(half + 1, n_heads + 1)]
    return (*range(2, half + 2), *wide)


def resolve_windows(windows: str | Sequence[int], n_heads: int, length: int) -> tuple[int, ...]:
    """Return a window per head from ``multi_scale`` (equation 8), ``full`` (no windows) or a list of sizes."""
    if isinstance(windows, str):
        if windows in ("multi_scale", "full"):
            return window_sizes(n_heads, length) if windows == "multi_scale" else (length,) * n_heads
        raise ValueError(f"windows={windows!r} must be multi_scale, full, or a list with one size per head")
    for size in windows:
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise ValueError(f"windows={list(windows)}: {size!r} is not a whole number; a window counts items")
        if not 1 <= size <= length:
            raise ValueError(f"windows={list(windows)}: {size} is outside 1..{length}, the maximal sequence length")
    if len(windows) != n_heads:
        raise ValueError(f"windows={list(windows)} has {len(windows)} entries for n_heads={n_heads}; list one per head")
    return tuple(map(int, windows))


def narrow_heads(windows: Sequence[int], length: int) -> list[int]:
    """Return the heads to compute in blocks of queries; [] if that saves too little."""
    order = sorted(range(len(windows)), key=lambda head: windows[head])
    best, chosen = float(len(windows) * length), 0
    for count, head in enumerate(order, start=1):
        cost = count * 2 * max(windows[head] - 1, 1) + (len(windows) - count) * length
        if cost < best:
            best, chosen = cost, count
    # measured on a CPU: for smaller savings the copies of the blocks cost more
    return sorted(order[:chosen]) if best <= 0.6 * len(windows) * length else []
