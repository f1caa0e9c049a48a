"""Errors that several modules raise, checks that raise them, and hints for names that are misspelled."""

import contextlib
import numbers
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from importlib import import_module
from pathlib import Path


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key, its value, and what is allowed."""


class Mistakes:
    """The mistakes of one configuration, which a user wants to see together."""

    def __init__(self) -> None:
        self.errors: list[ValueError] = []

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Keep a ValueError of the block as a mistake; the code behind the block runs then."""
        try:
            yield
        except ValueError as error:
            self._keep(error)

    def add(self, text: str) -> None:
        """Keep a mistake with this message."""
        self._keep(ConfigError(text))

    def _keep(self, error: ValueError) -> None:
        # one mistake a value: messages begin with "key=value:"
        about = str(error).partition(": ")[0]
        if all(str(other).partition(": ")[0] != about for other in self.errors):
            self.errors.append(error)

    def raise_all(self) -> None:
        """Raise the mistake, or for several one ConfigError with a line for each."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            lines = "".join(f"\n* {error}" for error in self.errors)
            raise ConfigError(f"{len(self.errors)} mistakes:{lines}")


class DataError(ValueError):
    """Data that cannot be used; the message names file, line, column and value, and says what to do."""


class MissingDataError(ConfigError):
    """The data set ``name`` has no folder below ``root``; unless ``offline`` it may be downloaded."""

    def __init__(self, message: str, name: str, root: Path, *, of_recbole: bool, offline: bool) -> None:
        super().__init__(message)
        self.name, self.root, self.of_recbole, self.offline = name, root, of_recbole, offline


class NoSpaceError(OSError):
    """The disk is full or a quota is used up; no file is half-written, and with space the work can continue."""


class NonFiniteScoreError(ValueError):
    """A model returned NaN or infinite scores; a ranking would put NaN first."""


class LockedError(OSError):
    """Another process has locked the folder."""


def positive_int(name: str, value: object) -> int:
    """Return ``value`` as an int; ConfigError unless it is a whole number of at least 1 (True and 3.0 are not)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigError(f"{name}={value!r}: a whole number of at least 1 is needed")
    return int(value)


def did_you_mean(
    name: object, known: Iterable[str], before: str = "; did you mean ", n: int = 3, cutoff: float = 0.6
) -> str:
    """Return ``before`` and at most ``n`` of the ``known`` names that are near ``name``, "" for none; ignores case."""
    near = near_names(str(name), known, n, cutoff)
    return f"{before}{' or '.join(near)}?" if near else ""


def near_names(
    name: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6, key: Callable[[str], str] = str.lower
) -> list[str]:
    """Return the ``known`` names that are near ``name``, which have at most ``n`` values of ``key``; nearest first."""
    by_text: dict[str, list[str]] = {}
    for one in dict.fromkeys(known):
        by_text.setdefault(key(one), []).append(one)
    return [one for text in get_close_matches(key(name), by_text, n, cutoff) for one in by_text[text]]


def near_key(name: str, known: Iterable[str]) -> str:
    """Return the one of ``known`` of which ``name`` is a misspelling, "" for none.

    Both have the same number of words, and each word is near: ``save_path`` is no misspelling of ``save_data``, nor
    ``d_state`` of ``state``. A missing or additional ``_`` is one too.
    """

    def is_near(one: str) -> bool:
        words, others = name.lower().split("_"), one.lower().split("_")
        if "".join(words) == "".join(others):
            return words != others
        pairs = zip(words, others, strict=False)
        return len(words) == len(others) and all(SequenceMatcher(None, *pair).ratio() >= 0.75 for pair in pairs)

    # another short word may be meant: mode is not model
    return next(iter(get_close_matches(name, filter(is_near, known), 1, 0.8)), "") if len(name) > 4 else ""


# names of keys in other tools
_OTHER_NAMES = {
    **dict.fromkeys(("run_dir", "out_dir", "save_dir", "log_dir"), "output_dir"),
    **dict.fromkeys(("max_len", "max_length", "max_seq_len", "max_seq_length"), "MAX_ITEM_LIST_LENGTH"),
    "lr": "learning_rate",
    "batch_size": "train_batch_size",
    "num_epochs": "epochs",
    "patience": "stopping_step",
    "optimizer": "learner",
    "loss": "loss_type",
    "device": "use_gpu",
    "wd": "weight_decay",
}


def near_hint(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" with the keys of ``known`` that ``name`` may mean, "" for none."""
    known = list(known)
    if (near := _OTHER_NAMES.get(name, "")) not in known:
        near = near_key(name, known) or " or ".join(
            sorted(key for key in known if len(name) > 3 and key.startswith(f"{name}_"))[:3]
        )
    return f"; did you mean {near}?" if near else did_you_mean(name, known, n=1, cutoff=0.85)


def require(extra: str, what: str, *modules: str) -> None:
    """Raise ConfigError, which names the ``extra`` to install, if ``what`` cannot import one of ``modules``."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{what} needs the package {module} ({error}); install the extra: pip install 'recbole-hyper[{extra}]'"
            ) from error
