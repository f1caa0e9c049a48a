"""Patches that let RecBole 1.2.0 and 1.2.1 run on current packages and find the models of this package.

No other module patches another package. A patch is applied once, right after its module is imported, so importing
recbole_hyper imports none of these packages. A patch does nothing if the installed versions do not need it, except that
of RecBole's dataset: files read the same way under every version of pandas.

* ``stack``: names that numpy and scipy removed, a switch of torch, metrics of counts in 1.2.1;
* ``dataset``: reading atomic files;
* ``checkpoints``: RecBole's checkpoints load with torch's safe loader;
* ``names``: RecBole's functions accept models of this package by name, see :mod:`recbole_hyper.host`.

============================  ===================================================  ==================================
patch                         needed because                                       until
============================  ===================================================  ==================================
``np.float``, ``np.str``...   RecBole uses types that numpy 1.24 and 2.0 removed   no release so far
``dok_matrix._update``        LightGCN and six others call it                      no release so far
reading of atomic files       RecBole assigns in place, which pandas 3 forbids     no release so far
``len`` in datasets           RecBole calls ``Series.agg(len)`` for each cell      no release so far
checkpoints                   RecBole pickles whole objects                        no release so far
counts in ``Collector``       RecBole 1.2.1 calls ``.cpu()`` on an int             not needed in 1.2.0
anomaly detection in SINE     RecBole switches it on for the process               no release so far
``HyperTuning``               RecBole passes hyperopt an old generator             no release so far
names of models               RecBole finds only its own models                    always: it is the purpose
filters of warnings           RecBole and geoopt warn about what no user can fix   geoopt without ``torch.jit.script``
============================  ===================================================  ==================================

"No release so far" was checked in 1.2.0 and 1.2.1, the newest release. ``import recbole_hyper`` does nothing else to a
process. The command line and the first use of the package set environment variables (:mod:`recbole_hyper.threads`).
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from recbole_hyper.host.recbole_files import installed_recbole
from recbole_hyper.hosted.patches import checkpoints, dataset, names, stack

# by module
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
    """Finds the modules of ``PATCHES`` with the other finders, and patches each right after it was executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the installed RecBole or of a module that has a patch, None for any other."""
        if fullname == "recbole":
            return installed_recbole()
        if fullname not in PATCHES:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            # a loader may be shared by several modules
            if module.__name__ == fullname:
                _patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def _patch(module: ModuleType) -> None:
    for patch in PATCHES[module.__name__]:
        patch(module)


def apply() -> None:
    """Apply every patch, now or when its module is imported. Calling it again changes nothing."""
    stack.quiet_known_warnings()
    for name in PATCHES:
        if name in sys.modules:
            _patch(sys.modules[name])
    if not any(isinstance(finder, _Patcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Patcher())
