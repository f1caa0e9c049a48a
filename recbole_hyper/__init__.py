"""Sequential recommendation for RecBole: hyperbolic heads, losses for large catalogues, honest evaluation.

Importing this package patches RecBole for current numpy, scipy, pandas and torch, and does nothing else to the process;
:mod:`recbole_hyper.hosted.patches` lists every patch, and the release that will not need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from recbole_hyper.hosted import patches
from recbole_hyper.models import MODULES
from recbole_hyper.threads import limit_cached_kernels, limit_spinning

if TYPE_CHECKING:
    # what editors and mypy see of the functions that __getattr__ imports at their first use
    from recbole_hyper.experiment.seeds import run_seeds as run_seeds
    from recbole_hyper.runs.estimator import Estimator as Estimator
    from recbole_hyper.runs.load import load as load
    from recbole_hyper.runs.run import run as run

patches.apply()

__version__ = "0.2.0"
_FUNCTIONS = {"Estimator": "runs.estimator", "load": "runs.load", "run": "runs.run", "run_seeds": "experiment.seeds"}
_PLACES = _FUNCTIONS | {name: f"models.{file}" for name, file in MODULES.items()}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    # these import all of RecBole, which recbole_hyper.functional does not need
    if name in _PLACES:
        limit_spinning()
        limit_cached_kernels()
        return getattr(import_module(f"recbole_hyper.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
