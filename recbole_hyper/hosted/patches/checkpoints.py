"""RecBole's checkpoints load with torch's safe loader, which runs no code from a file.

RecBole writes its Config into every checkpoint, and some models write scipy matrices or whole modules. The patches
write the Config as plain values, and add the classes that checkpoints need to torch's list of safe classes.
"""

import enum
import pickle
from pathlib import Path
from typing import Any

from recbole_hyper.hosted.pickles import OldConfig, plain_config, restored_config


def patch_config(configurator: Any) -> None:
    """A Config is pickled as plain values; torch's safe loader accepts RecBole's classes."""
    from torch.serialization import add_safe_globals

    def reduced(self: Any, protocol: Any) -> Any:
        if type(self) is configurator.Config:
            return plain_config(self)
        return object.__reduce_ex__(self, protocol)

    configurator.Config.__reduce_ex__ = reduced
    members = [(_member, f"{module}.getattr") for module in ("builtins", "__builtin__")]
    add_safe_globals([restored_config, *members, OldConfig, configurator.Config, *_safe_classes()])


def _member(enumeration: Any, name: str) -> enum.Enum:
    """Return a member of an enumeration; early releases of Python 3.11 pickle it as a call of ``getattr``.

    UnpicklingError for an attribute of anything else.
    """
    if not isinstance(enumeration, enum.EnumMeta) or name not in enumeration.__members__:
        raise pickle.UnpicklingError(f"the attribute {name!r} of {enumeration!r} is no member of an enumeration")
    return enumeration[name]


def _safe_classes() -> list[Any]:
    """Return RecBole's enumerations, and the classes in pickled arrays and sparse matrices."""
    import numpy as np
    import scipy.sparse
    from numpy._core import multiarray
    from recbole.utils import enum_type

    classes: list[Any] = [
        cls for cls in vars(enum_type).values() if isinstance(cls, type) and cls.__module__ == enum_type.__name__
    ]
    # a pickle does not name the types of dtypes, but torch checks them
    classes += [np.ndarray, np.matrix, np.dtype, *(type(np.dtype(code)) for code in "?bBhHiIlLqQefdOSU")]
    for module in ("numpy._core.multiarray", "numpy.core.multiarray"):  # the second one before numpy 2
        classes += [(getattr(multiarray, name), f"{module}.{name}") for name in ("_reconstruct", "scalar")]
    kinds = [f"{form}_{kind}" for form in ("csr", "csc", "lil") for kind in ("matrix", "array")]
    return classes + [getattr(scipy.sparse, kind) for kind in kinds]


def patch_models(abstract: Any) -> None:
    """``load_other_parameter`` checks sparse matrices from a file, because scipy does not check their indices."""

    def load_other_parameter(self: Any, para: Any) -> None:
        import scipy.sparse

        for name, value in (para or {}).items():
            if scipy.sparse.issparse(value):
                (value.tocsr() if value.format == "lil" else value).check_format(full_check=True)
            setattr(self, name, value)

    abstract.AbstractRecommender.load_other_parameter = load_other_parameter


def _save_checkpoint(self: Any, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
    """``Trainer._save_checkpoint``: the same content, in a pickle protocol that torch's safe loader reads.

    Modules among the other parameters are left out: those of SASRecF, GRU4RecF, FDSA, DIN and DIEN contain the whole
    dataset, and their tensors are in ``state_dict`` already.
    """
    import torch
    from recbole.utils import set_color

    from recbole_hyper.files import replaced

    if not self.config["single_spec"] and self.config["local_rank"] != 0:
        return
    file = kwargs.pop("saved_model_file", self.saved_model_file)
    others = self.model.other_parameter()
    state = {
        "config": self.config,
        "epoch": epoch,
        "cur_step": self.cur_step,
        "best_valid_score": float(self.best_valid_score),
        "state_dict": self.model.state_dict(),
        "other_parameter": {name: value for name, value in others.items() if not isinstance(value, torch.nn.Module)},
        "optimizer": self.optimizer.state_dict(),
    }
    with replaced(Path(file)) as part:
        torch.save(state, part)
    if verbose:
        self.logger.info(set_color("Saving current", "blue") + f": {file}")


def patch_trainer(trainer: Any) -> None:
    """Checkpoints are written for torch's safe loader, to a temporary name first."""
    trainer.Trainer._save_checkpoint = _save_checkpoint
