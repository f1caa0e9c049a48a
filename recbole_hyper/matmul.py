"""float32 matrix products on a CPU, by the faster of the libraries that torch carries.

On AVX-512 processors that are not Intel's, oneDNN is two to three times faster than torch's MKL, but torch asks it only
where less than float32 precision is allowed. Without AMX units it has no lower precision to use: a test at the start
makes sure. The two round differently, so results name the one that made them (:func:`product_library`).
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager, nullcontext

import torch

# of the largest entry; rounding the factors to bfloat16 would give 1e-3, float32 gives 1e-6
_TOLERANCE = 2e-5
# with 100,000 x 64: 1.1 ms against 4.2 ms for one row, 4.3 against 4.5 for four
_FEW_ROWS = 3


class _Allowing(ContextDecorator):
    """Let torch use less than float32; its flag is one for all threads, so the last one to leave restores it."""

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

    def untouched(self) -> bool:
        """Whether the precision is torch's default, or allowed here only."""
        with self._lock:
            try:
                return bool(self._inside) or torch.get_float32_matmul_precision() == "highest"
            except RuntimeError:  # set per library, which torch cannot express as one word
                return False


_allowing = _Allowing()


@functools.cache
def exact_when_allowed_less() -> bool:
    """Return whether this CPU's products, and their gradients, keep float32 precision even where torch may use less."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False  # oneDNN is not asked, or is no faster
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(rows, 64, generator=generator) for rows in (256, 2048))
    tile = left @ right.t()
    factors = ((left, right.t()), (tile, right), (tile.t(), left))
    with _allowing:
        products = [one @ other for one, other in factors]
    for product, (one, other) in zip(products, factors, strict=True):
        exact = one.double() @ other.double()
        if (product - exact).abs().max() > _TOLERANCE * exact.abs().max():
            return False
    return True


def product_library(device: torch.device | str = "cpu") -> str:
    """Return the library that makes the float32 products of losses and rankings: "oneDNN", or "torch" for its own.

    It is torch's own in a process that uses a GPU, whose products would lose digits by the precision of oneDNN.
    """
    alone = torch.device(device).type == "cpu" and not torch.cuda.is_initialized()
    faster = alone and _allowing.untouched() and exact_when_allowed_less()
    return "oneDNN" if faster else "torch"


@functools.cache
def gpu_precision(precision: str) -> _Allowing:
    """Return a context, or decorator, in which float32 products on a GPU have torch's ``precision``, process-wide.

    "highest" is float32, "high" TF32 with 10 bits of mantissa, "medium" bfloat16 with 7.
    """
    return _Allowing(precision)


@contextmanager
def float32_products(device: torch.device, rows: int | None = None) -> Iterator[None]:
    """Leave autocast, and on a CPU let the faster library make the float32 products where that costs no precision.

    Products of few ``rows`` with a large matrix are torch's: oneDNN would copy the matrix first. Meant for products of
    unvarying shapes, as oneDNN compiles a kernel for each. A precision that the user has set stays.
    """
    faster = (rows is None or rows > _FEW_ROWS) and product_library(device) == "oneDNN"
    with torch.autocast(device.type, enabled=False), _allowing if faster else nullcontext():
        yield
