"""Reads configuration files as their authors meant them: old names, the word None, duplicate keys, unknown keys."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.bridge import old_keys
from recbole_hyper.errors import ConfigError, near_key
from recbole_hyper.yaml_files import merged, read_yaml

logger = logging.getLogger("recbole_hyper")

# (file, warning) that were logged: a process reads a file more than once
_logged: set[tuple[Path, str]] = set()


def warn_once(file: Path, text: str) -> None:
    """Log a warning about a file once, under any of its paths."""
    if (file.resolve(), text) not in _logged:
        _logged.add((file.resolve(), text))
        logger.warning("%s: %s", file, text)


def read(path: Path, *, sequential: bool = True) -> dict[str, Any]:
    """Return the keys of a user's file in today's names, and log what was changed.

    Of a key given twice the last counts. ``sequential`` is the kind of the model. ConfigError as :func:`read_yaml`,
    and for an old key that has no equal.
    """
    twice: list[tuple[str, Any, Any]] = []
    content = without_words(read_yaml(path, twice=twice))
    for key, first, last in twice:
        warn_once(path, f"the key {key!r} is given twice, as {first!r} and as {last!r}; the last counts")
    content, lines = old_keys.translated(content, str(path), sequential=sequential)
    for line in lines:
        warn_once(path, line)
    return content


def read_all(paths: Sequence[Path], *, sequential: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the keys of all files, later ones win, and by key the file that it comes from."""
    contents = [read(path, sequential=sequential) for path in paths]
    return merged(*contents), {key: str(path) for path, keys in zip(paths, contents, strict=True) for key in keys}


def without_words(value: Any) -> Any:
    """Return ``value`` with None for the word None, which RecBole's documentation writes for it, at any depth."""
    if isinstance(value, Mapping):
        return {key: without_words(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_words(one) for one in value]
    return None if value == "None" else value


def foreign_keys(
    given: Mapping[str, str], known: Collection[str], read: Collection[str], *, strict: bool = False
) -> list[str]:
    """Return the keys that neither RecBole nor the model reads, of those ``given`` with their file; warn about them.

    ConfigError for a key that is within two letters of one that is ``read``, and if ``strict`` for every such key.
    """
    foreign = [key for key in given if key not in known or key in old_keys.SET_BY_RECBOLE]
    near = {key: near_key(key, read) for key in foreign if key not in old_keys.SET_BY_RECBOLE}
    if any(near.values()):
        file = next(given[key] for key in near if near[key])
        slips = [f"unknown key {key!r}, did you mean {other}?" for key, other in near.items() if other]
        raise ConfigError(f"{file}: {' '.join(slips)}")
    for file in dict.fromkeys(given[key] for key in foreign):
        names = ", ".join(key for key in foreign if given[key] == file)
        if not file:  # a run wrote it, and warned when it started
            continue
        if strict:
            raise ConfigError(f"{file}: nothing reads {names}; leave it out, or leave --strict out")
        warn_once(Path(file), f"nothing reads {names}")
    return foreign
