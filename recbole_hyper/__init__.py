"""Sequential recommendation for RecBole: hyperbolic heads, losses for large catalogues, honest evaluation.

Importing this package patches RecBole for current numpy, scipy, pandas and torch, and does nothing else to the process;
:mod:`recbole_hyper.hosted.patches` lists every patch, and the release that will not need it.
"""

from importlib import import_module
from typing import Any

from recbole_hyper.hosted import patches
from recbole_hyper.models import MODULES
from recbole_hyper.threads import limit_cached_kernels, limit_spinning

patches.apply()

__version__ = "0.2.0"
_FUNCTIONS = {"Estimator": "runs.estimator", "load": "runs.load", "recommend_all": "runs.batch"}
_FUNCTIONS |= {"run": "runs.run", "run_seeds": "experiment.seeds"}
_PLACES = _FUNCTIONS | {name: f"models.{file}" for name, file in MODULES.items()}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    # these import all of RecBole, which recbole_hyper.functional does not need
    if name in _PLACES:
        limit_spinning()
        limit_cached_kernels()
        return getattr(import_module(f"recbole_hyper.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
