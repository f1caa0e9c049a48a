"""Where Triton's kernels can be tested: on a GPU, or by Triton's interpreter if it works with the installed numpy."""

import functools

import pytest
import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def _count(output, n):
    total = 0
    for _ in range(0, n):
        total += 1
    tl.store(output, total)


@functools.cache
def _why_not() -> str:
    """Return the interpreter's error in a loop with a bound of run time; "" if it works."""
    output = torch.zeros(1, dtype=torch.int32)  # Triton 3.6 fails with numpy 2.5
    try:
        _count[(1,)](output, 3)
    except triton.runtime.errors.InterpreterError as error:
        return f"Triton's interpreter does not work with this numpy: {error}"
    assert int(output) == 3
    return ""


#: marks a module of tests: with pytest -m gpu its kernels run on the GPU, otherwise in the interpreter
MARKS = [pytest.mark.gpu] if DEVICE == "cuda" else [pytest.mark.skipif(bool(_why_not()), reason=_why_not())]
