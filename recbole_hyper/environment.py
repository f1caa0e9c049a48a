"""What torch's libraries read from the environment when they are loaded: set here, unless the user has said how."""

from __future__ import annotations

import os

# turns of a loop; libgomp's own default is 300,000, a millisecond
SPINS = "1000"
# a training step takes some thirty; oneDNN's own default is 1024
KERNELS_KEPT = "64"


def limit_spinning() -> None:
    """Let torch's threads wait for each other asleep rather than in a loop, unless the environment says how.

    A thread that spins keeps its processor from the one that it waits for, where another process computes too: of two
    trainings at once an epoch took 5 to 40 times that of one alone, and takes 2.1 times that so; alone, steps as small
    as those of ml-100k are about a tenth slower (``make bench-threads``).
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPINS


def limit_kept_kernels() -> None:
    """Let oneDNN keep fewer of the kernels that it compiles, one for each shape, unless the environment says how many.

    Batches differ in length and in their number of targets, so that most kernels serve one step, and each holds a
    megabyte or two: FMLPRecCE on MovieLens-1M grew to 5.1 GB in 20 epochs, and has 1.6 GB in its third so, no slower.
    """
    if not {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"} & set(os.environ):
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = KERNELS_KEPT
