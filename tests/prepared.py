"""What each process that runs tests prepares before it imports them; a process that only gives them out does not."""

import functools
import os

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    # Triton's kernels run in its interpreter; read when triton is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

import recbole_hyper  # noqa: F401  applies the patches before RecBole is imported
from recbole_hyper import processes, registry
from recbole_hyper.evaluation import results
from recbole_hyper.kernels.clock import default_folder
from recbole_hyper.training import memory

# the same examples in every run
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# what is installed and checked out stays while tests run, and each of their many runs writes it into its result
processes.version = functools.cache(processes.version)
results.commit = functools.cache(results.commit)
registry.entry_points = functools.cache(registry.entry_points)

# each of these runs tries its first step on a whole batch, not on ever larger parts of one
HALVINGS, memory._HALVINGS = memory._HALVINGS, 1

# tests that move the user's cache folder, and the processes that they start, need not compile everything again
os.environ.setdefault("NUMBA_CACHE_DIR", default_folder())
