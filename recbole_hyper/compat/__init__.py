"""What recbole 1.2.0 needs to run on current numpy, scipy, pandas, torch and ray, and to know this package's models.

The only package that patches another one. Every shim says which RecBole code needs it, is applied once, right after
the module that it mends is imported (at once where that was before recbole_hyper), and does nothing where the installed
versions do not need it; RecBole's dataset alone is mended under every version of pandas, so that a file reads the same
under all. Importing recbole_hyper thus imports none of these packages.

* ``stack``: names that numpy and scipy dropped, a switch of torch;
* ``dataset``: the reading of atomic files;
* ``checkpoints``: RecBole's files load under torch's safe loader;
* ``names``: RecBole's functions take models of this package by name, see :mod:`recbole_hyper.hosted`.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from recbole_hyper.compat import checkpoints, dataset, names, stack

# by the name of the module that they mend
SHIMS: dict[str, tuple[Callable[[Any], None], ...]] = {
    "numpy": (stack.restore_numpy_aliases,),
    "scipy.sparse": (stack.restore_dok_update,),
    "recbole.config.configurator": (names.mend_config, checkpoints.mend_config),
    "recbole.data.dataset.dataset": (dataset.mend_dataset,),
    "recbole.data.dataset.sequential_dataset": (dataset.mend_sequential_dataset,),
    "recbole.data.utils": (names.mend_data,),
    "recbole.model.abstract_recommender": (checkpoints.mend_models,),
    "recbole.model.sequential_recommender.sine": (stack.end_anomaly_detection,),
    "recbole.quick_start.quick_start": (names.mend_quick_start, checkpoints.mend_quick_start),
    "recbole.trainer.hyper_tuning": (stack.draw_as_hyperopt,),
    "recbole.trainer.trainer": (names.mend_trainer, checkpoints.mend_trainer),
    "recbole.utils.utils": (names.mend_utils,),
}


class _Mender(MetaPathFinder):
    """Finds the modules of ``SHIMS`` as the other finders do, and mends each right after its code has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is to be mended, None for any other."""
        if fullname not in SHIMS:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_mend(module: ModuleType) -> None:
            execute(module)
            # a loader may serve more modules than one
            if module.__name__ == fullname:
                _mend(module)

        spec.loader.exec_module = execute_and_mend  # type: ignore[method-assign]
        return spec


def _mend(module: ModuleType) -> None:
    for shim in SHIMS[module.__name__]:
        shim(module)


def apply() -> None:
    """Apply every shim, now or when what it mends is imported; calling it again changes nothing."""
    stack.quiet_known_warnings()
    for name in SHIMS:
        if name in sys.modules:
            _mend(sys.modules[name])
    if not any(isinstance(finder, _Mender) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Mender())
