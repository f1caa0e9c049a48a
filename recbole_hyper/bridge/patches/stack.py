"""What recbole 1.2.0 needs of numpy, scipy, torch and hyperopt, and which of its warnings nobody can act on."""

import warnings
from types import ModuleType, SimpleNamespace
from typing import Any


def restore_numpy_aliases(np: Any) -> None:
    """Names that numpy 1.24 and 2.0 removed.

    ``np.float`` and ``np.str`` are used by recbole.evaluator.metrics, recbole.data.interaction and
    recbole.data.dataset; ``float_``, ``complex_`` and ``unicode_`` by ``Config.compatibility_settings``.
    """
    aliases: dict[str, Any] = {
        "bool": np.bool_,
        "int": np.int_,
        "float": np.float64,
        "complex": np.complex128,
        "object": np.object_,
        "str": np.str_,
        "long": np.int_,
        "unicode": np.str_,
        "float_": np.float64,
        "complex_": np.complex128,
        "unicode_": np.str_,
    }
    for name, value in aliases.items():
        if name not in np.__dict__:
            setattr(np, name, value)


def restore_dok_update(sparse: Any) -> None:
    """``dok_matrix._update``, gone since scipy 1.13: LightGCN, NGCF, GCMC, SpectralCF, NCL, KGIN, MCCLK."""
    if not hasattr(sparse.dok_matrix, "_update"):
        sparse.dok_matrix._update = lambda self, entries: self._dict.update(entries)


def draw_as_hyperopt(hyper_tuning: Any) -> None:
    """HyperTuning's ``exhaustive_search`` makes the generator that hyperopt draws from, since 0.2.6 numpy's new one."""
    np = hyper_tuning.np
    if isinstance(np, ModuleType):
        hyper_tuning.np = SimpleNamespace(**{**vars(np), "random": SimpleNamespace(RandomState=np.random.default_rng)})


def quiet_known_warnings() -> None:
    """Warnings that RecBole's own code raises at every step and that its user cannot act on."""
    warnings.filterwarnings("ignore", message=".*torch.cuda.amp.GradScaler.*", category=FutureWarning)
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable.*", category=UserWarning)
    warnings.filterwarnings("ignore", message=".*escape sequence.*", module="recbole.*")


def end_anomaly_detection(sine: Any) -> None:
    """recbole's SINE switches torch's anomaly detection on for the whole process when it is imported."""
    sine.torch.autograd.set_detect_anomaly(False)
