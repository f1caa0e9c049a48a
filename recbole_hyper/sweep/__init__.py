"""Sweeps over hyper-parameters, in which trials see validation only.

space (settings) -> search (which to try) -> workers (the executor runs them on Ray) -> trial (a run in a folder, with
a record) -> driver (winner, tested runs, sweep.json). To resume, folder checks that the sweep is the same, the driver
runs the trials that have not ended, and a trial continues its run.
"""

from recbole_hyper.sweep.driver import sweep
from recbole_hyper.sweep.space import Space, read_space

__all__ = ["Space", "read_space", "sweep"]
