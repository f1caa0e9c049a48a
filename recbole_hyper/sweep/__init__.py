"""Sweeps over hyper-parameters: spaces, proposals, trials that see validation only, and the driver."""

from recbole_hyper.sweep.driver import sweep
from recbole_hyper.sweep.space import Space, read_space

__all__ = ["Space", "read_space", "sweep"]
