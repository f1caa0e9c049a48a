"""Patches that let RecBole 1.2.0 and 1.2.1 run on current packages and find the models of this package.

No other module patches another package. Importing recbole_hyper imports none of these packages: a loader for RecBole's
folders patches each module right after it was executed. A patch does nothing if the installed versions do not need it,
except that of RecBole's dataset: files read the same way under every version of pandas.

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
from collections.abc import Callable
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from recbole_hyper.hosted.patches import checkpoints, dataset, names, stack

# by module
PATCHES: dict[str, tuple[Callable[[Any], None], ...]] = {
    "recbole.config.configurator": (names.patch_config, checkpoints.patch_config),
    "recbole.data.dataset.dataset": (dataset.patch_dataset,),
    "recbole.data.dataset.kg_dataset": (dataset.patch_len,),
    "recbole.data.dataset.sequential_dataset": (dataset.patch_len,),
    "recbole.data.utils": (names.patch_data,),
    "recbole.evaluator.collector": (stack.collect_counts,),
    "recbole.model.abstract_recommender": (checkpoints.patch_models,),
    "recbole.model.sequential_recommender.sine": (stack.end_anomaly_detection,),
    "recbole.trainer.hyper_tuning": (stack.draw_as_hyperopt,),
    "recbole.trainer.trainer": (names.patch_trainer, checkpoints.patch_trainer),
    "recbole.utils.utils": (names.patch_utils,),
}


class _Loader(SourceFileLoader):
    """Executes a module of RecBole, and patches it."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module and its patches."""
        super().exec_module(module)
        _patch(module)


def _finder(place: str) -> FileFinder:
    """Return what finds the modules in a folder of RecBole; ImportError for any other folder."""
    parts = Path(place).parts
    folder = Path(*parts[: -parts[::-1].index("recbole") or None]) if "recbole" in parts else None
    if folder is None or not (folder / "quick_start").is_dir():
        raise ImportError(f"{place} is no folder of RecBole", path=place)
    stack.restore_names()
    return FileFinder(place, (_Loader, SOURCE_SUFFIXES))


def _patch(module: ModuleType) -> None:
    for patch in PATCHES.get(module.__name__, ()):
        patch(module)


def apply() -> None:
    """Apply every patch when its module is imported, or now to modules that were imported before this package."""
    stack.quiet_known_warnings()
    sys.path_hooks.insert(0, _finder)
    if "recbole" in sys.modules:
        stack.restore_names()
        sys.path_importer_cache.clear()
        for name in PATCHES.keys() & sys.modules.keys():
            _patch(sys.modules[name])
