"""Errors that more than one part raises, and checks that raise them; a leaf that imports nothing of the package."""

import math
import numbers
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path


class ConfigError(ValueError):
    """A configuration that cannot run; the message says which key, what came, what is allowed."""


class DataError(ValueError):
    """Data that cannot be used; the message says which file, line and column, what came, and what to do."""


class MissingDataError(ConfigError):
    """A data set without a folder: its ``name``, the ``root`` where it belongs, and whether it may be fetched."""

    def __init__(self, message: str, name: str, root: Path, *, of_recbole: bool, offline: bool) -> None:
        super().__init__(message)
        self.name, self.root, self.of_recbole, self.offline = name, root, of_recbole, offline


class NoSpaceError(OSError):
    """The disk is full, or a quota is used up: nothing was half-written, and with space the work can continue."""


class NonFiniteScoreError(ValueError):
    """A model gave NaN or infinite scores; ranking them would put NaN first."""


class LockedError(OSError):
    """Another process uses the same folder."""


def check_above_zero(**values: float) -> None:
    """Raise ValueError, with its name, for a value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: a finite number above 0 is needed")


def positive_int(name: str, value: object) -> int:
    """Return a whole number of at least 1; ConfigError for anything else, True and 3.0 among it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigError(f"{name}={value!r}: a whole number of at least 1 is needed")
    return int(value)


def did_you_mean(
    name: object, known: Iterable[str], before: str = "; did you mean ", n: int = 3, cutoff: float = 0.6
) -> str:
    """Return ``before`` and at most ``n`` of the ``known`` that are near to ``name``, "" for none; case is ignored."""
    by_text = {one.lower(): one for one in known}
    near = [by_text[match] for match in get_close_matches(str(name).lower(), by_text, n, cutoff)]
    return f"{before}{' or '.join(near)}?" if near else ""


def near_key(name: str, known: Iterable[str]) -> str:
    """Return the one of ``known`` that a slip of the fingers turns into ``name``, "" for none.

    A slip is one letter left out, added, changed or swapped with the next; a word of more than five letters may have
    two, and so may a name in two words. ``save_path`` is no slip of ``save_data``, and ``d_state`` none of ``state``.
    """
    slips = ((one, _slips(name.lower(), one.lower())) for one in known if one != name)
    near = sorted((count, one) for one, count in slips if count is not None)
    return near[0][1] if near else ""


# names that other tools have for keys
_OTHER_NAMES = {
    **dict.fromkeys(("run_dir", "out_dir", "save_dir", "log_dir"), "output_dir"),
    **dict.fromkeys(("max_len", "max_length", "max_seq_len", "max_seq_length"), "MAX_ITEM_LIST_LENGTH"),
    "lr": "learning_rate",
    "batch_size": "train_batch_size",
    "num_epochs": "epochs",
    "patience": "stopping_step",
    "optimizer": "learner",
    "loss": "loss_type",
    "wd": "weight_decay",
}


def near_hint(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for the keys of ``known`` that ``name`` may mean, "" where there are none."""
    known = list(known)
    if (near := _OTHER_NAMES.get(name, "")) not in known:
        near = near_key(name, known) or " or ".join(
            sorted(key for key in known if len(name) > 3 and key.startswith(f"{name}_"))[:3]
        )
    return f"; did you mean {near}?" if near else did_you_mean(name, known, n=1, cutoff=0.85)


def _slips(name: str, other: str) -> int | None:
    """Return the number of slips between two keys, None for too many."""
    words, others = name.split("_"), other.split("_")
    if len(words) != len(others):
        return 1 if min(len(name), len(other)) > 4 and _distance(name, other) == 1 else None
    total = 0
    for word, another in zip(words, others, strict=True):
        count = _distance(word, another) if abs(len(word) - len(another)) <= 2 else 3
        longest = max(len(word), len(another))
        if count > (2 if longest > 5 else 1 if longest > 3 else 0):
            return None
        total += count
    return total if 0 < total <= 2 and len(name) > 4 else None


def _distance(first: str, second: str) -> int:
    """Return how many letters are left out, added, changed or swapped with their neighbour between two words."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        last, row, older = row, [i], before
        for j, other in enumerate(second, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]


def require(extra: str, what: str, *modules: str) -> None:
    """Raise ConfigError, naming the ``extra`` to install, if ``what`` cannot import one of ``modules``."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{what} needs the package {module} ({error}); install the extra: pip install 'recbole-hyper[{extra}]'"
            ) from error
