"""Everything that numba compiles. Each file names its plain twin and the gain that justifies it.

A caller runs the twin where a step has little work: its ``KERNEL_FROM`` says from where on the kernel pays.
"""

import numpy as np

# marks excluded items: the smallest finite float32, so that a model's infinite score is still detected
LOWEST = np.float32(np.finfo(np.float32).min)
