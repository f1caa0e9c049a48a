"""float32 matrix products on a CPU, by the faster of the libraries that torch carries.

On processors with AVX-512 that are not Intel's, torch's MKL multiplies with half-width instructions; oneDNN, which
torch asks only where less than float32 precision is allowed, is two to three times faster there. Without AMX units it
has no lower precision to use, and its products are as exact as MKL's: that is tried before it is relied upon.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

# of the largest entry; rounding the factors to bfloat16 would give 1e-3, float32 gives 1e-6
_TOLERANCE = 2e-5


@contextmanager
def _allowing(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@functools.cache
def exact_when_allowed_less() -> bool:
    """Whether this CPU's products keep float32 precision although torch is told that less would do.

    Tried once per process on the three shapes of a product and its two gradients.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False  # oneDNN is not asked, or is no faster
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(rows, 64, generator=generator) for rows in (256, 2048))
    tile = left @ right.t()
    factors = ((left, right.t()), (tile, right), (tile.t(), left))
    with _allowing("medium"):
        found = [one @ other for one, other in factors]
    for product, (one, other) in zip(found, factors, strict=True):
        exact = one.double() @ other.double()
        if (product - exact).abs().max() > _TOLERANCE * exact.abs().max():
            return False
    return True


@contextmanager
def float32_products(device: torch.device) -> Iterator[None]:
    """Leave autocast, and on a CPU let the faster library make the float32 products where that costs no precision.

    A precision that the user has set stays. Meant for products of unvarying shapes: oneDNN compiles a kernel for each.
    """
    try:
        untouched = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # set per library, which torch cannot express as one word
        untouched = False
    faster = device.type == "cpu" and untouched and exact_when_allowed_less()
    with torch.autocast(device.type, enabled=False), _allowing("medium") if faster else nullcontext():
        yield
