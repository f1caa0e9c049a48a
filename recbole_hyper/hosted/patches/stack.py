"""Patches for what RecBole expects from numpy, scipy, torch and hyperopt; filters of warnings no user can act on."""

import copy
import functools
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any


@functools.cache
def restore_names() -> None:
    """Restore names that numpy 1.24 and 2.0, and scipy 1.13 removed, and that RecBole uses.

    recbole.evaluator.metrics, recbole.data.interaction and recbole.data.dataset use ``np.float`` and ``np.str``;
    ``Config.compatibility_settings`` uses ``float_``, ``complex_`` and ``unicode_``; LightGCN and six other models
    use ``dok_matrix._update``.
    """
    import numpy as np
    from scipy.sparse import dok_matrix

    aliases: dict[str, Any] = {"bool": np.bool_, "object": np.object_}
    aliases |= dict.fromkeys(("int", "long"), np.int_)
    aliases |= dict.fromkeys(("float", "float_"), np.float64)
    aliases |= dict.fromkeys(("complex", "complex_"), np.complex128)
    aliases |= dict.fromkeys(("str", "unicode", "unicode_"), np.str_)
    for name in aliases.keys() - vars(np).keys():
        setattr(np, name, aliases[name])
    if not hasattr(dok_matrix, "_update"):
        dok_matrix._update = lambda self, entries: self._dict.update(entries)


# entries of one evaluation, which the next one must not see
_OUTDATED = ("rec.topk", "rec.meanrank", "rec.score", "rec.items", "data.label")


def _get_data_struct(self: Any) -> Any:
    """``Collector.get_data_struct``: 1.2.1 calls ``.cpu()`` on every value, but counts of items are not tensors."""
    import torch

    content = self.data_struct._data_dict
    content.update({name: value.cpu() for name, value in content.items() if isinstance(value, torch.Tensor)})
    returned = copy.deepcopy(self.data_struct)
    for name in _OUTDATED:
        content.pop(name, None)
    return returned


def collect_counts(collector: Any) -> None:
    """Make metrics that need counts of the training data (coverage, popularity) work in RecBole 1.2.1."""
    collector.Collector.get_data_struct = _get_data_struct


def draw_as_hyperopt(hyper_tuning: Any) -> None:
    """Let HyperTuning's ``exhaustive_search`` pass numpy's new generator to hyperopt, which needs it since 0.2.6."""
    np = hyper_tuning.np
    if isinstance(np, ModuleType):
        hyper_tuning.np = SimpleNamespace(**{**vars(np), "random": SimpleNamespace(RandomState=np.random.default_rng)})


def quiet_known_warnings() -> None:
    """Hide warnings from RecBole's and geoopt's code that a user cannot act on."""
    # geoopt compiles its functions when it is imported; torch 2.14 makes this a FutureWarning
    warnings.filterwarnings("ignore", message=r".*torch\.jit\.script.*")
    warnings.filterwarnings("ignore", message=".*torch.cuda.amp.GradScaler.*", category=FutureWarning)
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable.*", category=UserWarning)
    # outside a trial, RecBole's objective_function reports to Ray
    warnings.filterwarnings("ignore", message=".*report. is meant to only be called inside.*", category=UserWarning)
    warnings.filterwarnings("ignore", message=".*escape sequence.*", module="recbole.*")


def end_anomaly_detection(sine: Any) -> None:
    """Switch torch's anomaly detection off again, which importing RecBole's SINE switches on for the whole process."""
    sine.torch.autograd.set_detect_anomaly(False)
