"""What recbole 1.2.0 and 1.2.1 need to run on the current stack and to find the models of this package.

The only package that patches another one. A patch is applied once, right after its module is imported, and does nothing
if the installed versions do not need it; RecBole's dataset alone is patched under every version of pandas, so that a
file reads the same under all. Importing recbole_hyper thus imports none of these packages.

* ``stack``: names that numpy and scipy dropped, a switch of torch, metrics of counts in 1.2.1;
* ``dataset``: the reading of atomic files;
* ``checkpoints``: RecBole's files load under torch's safe loader;
* ``names``: RecBole's functions take models of this package by name, see :mod:`recbole_hyper.bridge`.

==================================  ==========================================  ====================================
patch                               needed because RecBole                      not needed from
==================================  ==========================================  ====================================
``np.float``, ``np.str``, ...       names types that numpy 1.24 and 2.0 dropped  no release so far
``dok_matrix._update``              calls it, in LightGCN and six others        no release so far
reading of atomic files             assigns in place, which pandas 3 forbids    no release so far
``len`` in its datasets             calls ``Series.agg(len)`` for each cell     no release so far
checkpoints                         pickles whole objects                       no release so far
counts in ``Collector``             1.2.1 calls ``.cpu()`` of an int            1.2.0 does not call it
anomaly detection in SINE           switches it on for the process              no release so far
``HyperTuning``                     gives hyperopt an old generator             no release so far
names of models                     finds its own models alone                  stays: it is what the bridge is for
filters of warnings                 and geoopt raise what no user can act on    geoopt without ``torch.jit.script``
==================================  ==========================================  ====================================

"Not needed from" was looked up in 1.2.0 and 1.2.1, the newest release. ``import recbole_hyper`` does no more to a
process; the command line and the first use of the package set environment variables (:mod:`recbole_hyper.threads`).
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from recbole_hyper.bridge.patches import checkpoints, dataset, names, stack

# by the name of the patched module
PATCHES: dict[str, tuple[Callable[[Any], None], ...]] = {
    "numpy": (stack.restore_numpy_aliases,),
    "scipy.sparse": (stack.restore_dok_update,),
    "recbole.config.configurator": (names.patch_config, checkpoints.patch_config),
    "recbole.data.dataset.dataset": (dataset.patch_dataset,),
    "recbole.data.dataset.kg_dataset": (dataset.patch_len,),
    "recbole.data.dataset.sequential_dataset": (dataset.patch_len,),
    "recbole.data.utils": (names.patch_data,),
    "recbole.evaluator.collector": (stack.collect_counts,),
    "recbole.model.abstract_recommender": (checkpoints.patch_models,),
    "recbole.model.sequential_recommender.sine": (stack.end_anomaly_detection,),
    "recbole.quick_start.quick_start": (names.patch_quick_start, checkpoints.patch_quick_start),
    "recbole.trainer.hyper_tuning": (stack.draw_as_hyperopt,),
    "recbole.trainer.trainer": (names.patch_trainer, checkpoints.patch_trainer),
    "recbole.utils.utils": (names.patch_utils,),
}


class _Patcher(MetaPathFinder):
    """Finds the modules of ``PATCHES`` as the other finders do, and patches each right after its code has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that has a patch, None for any other."""
        if fullname not in PATCHES:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            # a loader may serve more modules than one
            if module.__name__ == fullname:
                _patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def _patch(module: ModuleType) -> None:
    for patch in PATCHES[module.__name__]:
        patch(module)


def apply() -> None:
    """Apply every patch, now or when its module is imported; calling it again changes nothing."""
    stack.quiet_known_warnings()
    for name in PATCHES:
        if name in sys.modules:
            _patch(sys.modules[name])
    if not any(isinstance(finder, _Patcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Patcher())
