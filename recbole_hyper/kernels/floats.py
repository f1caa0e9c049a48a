"""Building blocks of the numba kernels: exp and log1p that LLVM vectorises.

numba calls libm's exp and log one number at a time. These reduce the argument by integer arithmetic without branches,
and evaluate a polynomial (Cephes' for exp, ours for log); float32 only.

Plain twin: torch's exp and log1p.
Kept for: the kernels ``softmax`` and ``moebius``.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_F, _I = np.float32, np.int32
ONE, HALF = _F(1.0), _F(0.5)
SIGN, _REST = _I(-(2**31)), _I(2**31 - 1)
_LOG2E = _F(1.44269504)
# log(2) in two parts, the first exact in few bits, so that k * log(2) loses nothing
_LN2_HIGH, _LN2_LOW = _F(0.693359375), _F(-2.12194440e-4)
_ROUND = _F(12582912.0)  # 1.5 * 2^23: adding and subtracting it rounds to an integer
_LEAST = _F(-87.0)
_E5, _E4, _E3 = _F(1.9875691500e-4), _F(1.3981999507e-3), _F(8.3334519073e-3)
_E2, _E1, _E0 = _F(4.1665795894e-2), _F(1.6666665459e-1), _F(5.0000001201e-1)
# (log(1 + r) - r) / r^2 for 1 + r from sqrt(1/2) to sqrt(2): with the least relative error of log(1 + r), 3.2e-8
_L7, _L6, _L5, _L4 = _F(8.7004013360e-2), _F(-1.4266932011e-1), _F(1.4914508164e-1), _F(-1.6577652097e-1)
_L3, _L2, _L1 = _F(1.9963100553e-1), _F(-2.5001335144e-1), _F(3.3333909512e-1)
_SQRT_HALF_BITS, _ONE_BITS, _BIAS, _MANTISSA = _I(0x3F3504F3), _I(0x3F800000), _I(127), _I(23)
_EXPONENT = _I(-(2**23))  # the bits of sign and exponent
_LN2_OF_BITS = _F(math.log(2) * 2.0**-23)  # times k * 2^23: k * log(2) to 3e-9


def _bitcast(source: Any, target: Any, kind: ir.Type) -> Any:
    """Return a numba function that keeps the bits of its argument and changes the type."""

    def convert(typing: Any, x: Any) -> Any:
        return target(source), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], kind)

    return intrinsic(convert)


# the bits of a float32 as int32, and back
bits = _bitcast(types.float32, types.int32, ir.IntType(32))
from_bits = _bitcast(types.int32, types.float32, ir.FloatType())


@njit(inline="always", error_model="numpy", fastmath={"contract"})
def exp(x: Any) -> Any:
    """Return exp(x) of a float32 x <= 88 to 2 units in the last place; below -87 exp(-87); NaN stays NaN."""
    x = _LEAST if x < _LEAST else x
    n = (x * _LOG2E + _ROUND) - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = ((((_E5 * r + _E4) * r + _E3) * r + _E2) * r + _E1) * r + _E0
    return (p * r * r + r + ONE) * from_bits(_I((_I(n) + _BIAS) << _MANTISSA))


@njit(inline="always", error_model="numpy", fastmath={"contract"})
def log1p_nonnegative(y: Any) -> Any:
    """Return log(1 + y) of a float32 y >= 0 to 2 units in the last place, tiny y included; NaN stays NaN."""
    # 1 + y = 2^k (1 + r). All in 32 bits: a right shift would widen to 64 bits and halve the vector width
    k = _I(_I(bits(ONE + y) - _SQRT_HALF_BITS) & _EXPONENT)  # times 2^23
    s = from_bits(_I(_ONE_BITS - k))  # 2^-k
    r = y * s + (s - ONE)  # from y, since 1 + y has lost digits
    p = ((((((_L7 * r + _L6) * r + _L5) * r + _L4) * r + _L3) * r + _L2) * r + _L1) * r - HALF
    return (r * r * p + r) + _F(k) * _LN2_OF_BITS


@njit(inline="always", error_model="numpy", fastmath={"contract"})
def signed_asinh(x: Any, w: Any, root: Any) -> Any:
    """Return asinh(x) of a float32 x, with w = |x| and root = sqrt(1 + w^2)."""
    # asinh(w) = log1p(w + w^2 / (1 + sqrt(1 + w^2))): the form that keeps tiny w exact
    value = log1p_nonnegative(w + w * (w / (ONE + root)))
    return from_bits(bits(value) | (bits(x) & SIGN))


@njit(inline="always", error_model="numpy")
def _ordered(b: Any) -> Any:
    """Map the bits of floats to integers of the same order, and back."""
    return _I(b ^ ((b >> _I(31)) & _REST))


@njit(error_model="numpy")
def largest(row: Any) -> Any:
    """Return the largest float32 of a row; NaN if the row has a NaN with a positive sign.

    It compares integers, whose maximum LLVM vectorises; that of floats takes ten times as long.
    """
    maximum = SIGN
    for j in range(len(row)):
        maximum = max(maximum, _ordered(bits(row[j])))
    return from_bits(_ordered(maximum))
