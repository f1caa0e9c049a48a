"""Compile the kernels of the cross-entropy for a GPU that is not here, and count the bytes that spill.

Triton's wheel has NVIDIA's assembler. This runs in another process than the tests, which use Triton's interpreter.

    python -m tests.losses.spills 90 64        architecture and width; one line for each kernel, link and precision
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from recbole_hyper.losses import _triton as kernels

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
#: whether items have terms, whether there is a link, and a name
LINKS = (False, False, "dot"), (True, False, "lifted"), (True, True, "asinh")
INTEGERS = ("n", "m", "d", "padding", "share")


def resources(kernel: object, constants: dict[str, object], architecture: int, warps: int) -> tuple[int, int]:
    """Return the registers and the spilled bytes of a kernel."""
    names = kernel.arg_names  # type: ignore[attr-defined]
    kinds = {name: "constexpr" if name in constants else "i32" if name in INTEGERS else "*fp32" for name in names}
    if "targets" in kinds:
        kinds["targets"] = "*i64"
    # as at run time, where addresses and the width are multiples of 16
    attributes = {
        (at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if kinds[name][0] == "*" or name == "d"
    }
    source = ASTSource(fn=kernel, signature=kinds, constexprs=constants, attrs=attributes)
    # the assembler of the wheel is older than the newest PTX
    options = {"ptx_version": 87, "num_warps": warps, "num_stages": kernels.STAGES}
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder, "kernel.ptx")
        ptx.write_text(made.asm["ptx"])
        suffix = "a" if architecture == 90 else ""
        command = [PTXAS, "-v", f"-arch=sm_{architecture}{suffix}", ptx, "-o", Path(folder, "kernel.cubin")]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = (re.search(pattern, said) for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill stores"))
    registers, spilled = (int(one[1]) for one in found if one is not None)
    return registers, spilled


def print_resources(label: str, kernel: object, constants: dict[str, object], architecture: int, warps: int) -> None:
    registers, spilled = resources(kernel, constants, architecture, warps)
    print(f"{label} {registers} registers, {spilled} spilled", flush=True)


def main(architecture: int, width: int) -> None:
    for lifts, asinh, link in LINKS:
        of_link = {"LIFTS": lifts, "ASINH": asinh, "WIDTH": width}
        given = {**of_link, "ROWS": kernels.TARGET_ROWS}
        print_resources("_targets " + link, kernels._targets, given, architecture, 4)
        for precision in kernels.PRECISIONS.values():
            tiles = kernels.TILES[width, lifts, precision]
            of_states, of_items = (kernels.constants_of(one, width) for one in tiles)
            for kernel, tile in ((kernels._states, of_states), (kernels._items, of_items)):
                sizes = {size: tile[size] for size in ("ROWS", "ITEMS", "STEP")}
                constants = {**of_link, **sizes, "PRECISION": precision}
                label = f"{kernel.__name__} {link} {precision}"
                print_resources(label, kernel, constants, architecture, tile["num_warps"])


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
