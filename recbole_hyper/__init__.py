"""Sequential recommendation for RecBole: hyperbolic heads, losses for large catalogues, honest evaluation.

Importing this package first makes recbole 1.2.0 work on current numpy, scipy, pandas and torch (see ``compat``).
"""

from typing import Any

from recbole_hyper import compat

compat.apply()

__version__ = "0.1.0"
__all__ = ["load", "recommend", "run"]


def __getattr__(name: str) -> Any:
    # quick_start pulls in the whole of RecBole, which the functional surface does not need
    if name in __all__:
        from recbole_hyper import quick_start

        return getattr(quick_start, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
