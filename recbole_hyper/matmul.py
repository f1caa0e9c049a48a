"""float32 matrix products on a CPU with the faster of the libraries that torch ships.

On AVX-512 processors that are not Intel's, oneDNN is two to three times faster than torch's MKL, but torch uses it only
if less than float32 precision is allowed. Without AMX units oneDNN computes in float32 anyway; a test at the start
makes sure. The two round differently, so results record which one was used (:func:`product_library`).
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager, nullcontext

import torch

# error relative to the largest entry: bfloat16 factors would have 1e-3, float32 has 1e-6
_TOLERANCE = 2e-5
# with 100,000 x 64, MKL takes 1.1 ms and oneDNN 4.2 ms for one row, 4.3 and 4.5 ms for four
_FEW_ROWS = 3


class _LowerPrecision(ContextDecorator):
    """Let torch use less than float32. Its flag is shared by all threads, so the last one to leave restores it."""

    def __init__(self, precision: str = "medium") -> None:
        self._precision = precision
        self._lock, self._inside, self._before = threading.Lock(), 0, "highest"

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision(self._precision)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.set_float32_matmul_precision(self._before)

    def outside(self) -> str:
        """Return the precision that holds, or held before this one was set."""
        with self._lock:
            return self._before if self._inside else torch.get_float32_matmul_precision()

    def untouched(self) -> bool:
        """Return whether nobody else changed the precision from torch's default."""
        with self._lock:
            try:
                return bool(self._inside) or torch.get_float32_matmul_precision() == "highest"
            except RuntimeError:  # set per library, which has no single name in torch
                return False


_lower_precision = _LowerPrecision()


@functools.cache
def keeps_float32() -> bool:
    """Return whether this CPU's products and their gradients keep float32 precision even if torch may use less."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False  # torch does not use oneDNN, or it is not faster
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(rows, 64, generator=generator) for rows in (256, 2048))
    tile = left @ right.t()
    factors = ((left, right.t()), (tile, right), (tile.t(), left))
    with _lower_precision:
        products = [one @ other for one, other in factors]
    for product, (one, other) in zip(products, factors, strict=True):
        exact = one.double() @ other.double()
        if (product - exact).abs().max() > _TOLERANCE * exact.abs().max():
            return False
    return True


def product_library(device: torch.device | str = "cpu") -> str:
    """Return the library for the float32 products of losses and rankings: "oneDNN", or "torch" for torch's default.

    A process that uses a GPU takes torch's default: allowing oneDNN less precision would make the GPU less exact too.
    """
    only_cpu = torch.device(device).type == "cpu" and not torch.cuda.is_initialized()
    faster = only_cpu and _lower_precision.untouched() and keeps_float32()
    return "oneDNN" if faster else "torch"


def asked_precision() -> str:
    """Return the precision of float32 products that torch's user asked for.

    torch's own function says "medium" inside :func:`float32_products` where that chose oneDNN, which keeps float32.
    """
    return _lower_precision.outside()


@functools.cache
def gpu_precision(precision: str) -> _LowerPrecision:
    """Return a context or decorator that sets the precision of float32 products on a GPU in this process.

    ``precision`` is torch's: "highest" is float32, "high" TF32 with 10 bits of mantissa, "medium" bfloat16 with 7.
    """
    return _LowerPrecision(precision)


@contextmanager
def float32_products(device: torch.device, rows: int | None = None) -> Iterator[None]:
    """Turn autocast off, and on a CPU use the faster library for float32 products if that costs no precision.

    Products of few ``rows`` with a large matrix stay with torch's default, since oneDNN would copy the matrix first.
    Use this for products whose shapes repeat: oneDNN compiles a kernel per shape. A precision set by the user stays.
    """
    faster = (rows is None or rows > _FEW_ROWS) and product_library(device) == "oneDNN"
    with torch.autocast(device.type, enabled=False), _lower_precision if faster else nullcontext():
        yield
