"""Reads users' configuration files: old keys, the word None, duplicate keys and unknown keys."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.errors import near_names
from recbole_hyper.host import old_keys
from recbole_hyper.yaml_files import merged, only, read_yaml, without

logger = logging.getLogger("recbole_hyper")

EVAL_KEYS = ("split", "order", "group_by", "mode", "successive")

# warnings by file that were logged, because a process reads a file several times
_logged: set[tuple[Path, str]] = set()


def warn_once(file: Path, text: str) -> None:
    """Log a warning about a file, but only once."""
    if (file.resolve(), text) not in _logged:
        _logged.add((file.resolve(), text))
        logger.warning("%s: %s", file, text)


def read(path: Path, *, sequential: bool = True) -> dict[str, Any]:
    """Return the keys of a user's file with today's names, and log the changes.

    If a key is given twice, the last one counts. ``sequential`` is the kind of the model. ConfigError as
    :func:`read_yaml`, and for an old key that cannot be translated.
    """
    twice: list[tuple[str, Any, Any]] = []
    content = without_words(read_yaml(path, twice=twice))
    for key, first, last in twice:
        warn_once(path, f"the key {key!r} is given twice, as {first!r} and as {last!r}; the last counts")
    old = only(old_keys.TRANSLATED, content)
    new, lines = old_keys.translated(old, str(path), sequential=sequential)
    for line in lines:
        warn_once(path, line)
    content = without(old, content) | new
    if isinstance(arguments := content.get("eval_args"), Mapping):
        # RecBole ignores them; one that is nearly a known key is a slip, which the checks report
        ignored = [key for key in arguments if key not in EVAL_KEYS and not near_names(str(key), EVAL_KEYS)]
        if ignored:
            warn_once(path, f"nothing reads {', '.join(map(str, ignored))} in eval_args, as in RecBole")
            content["eval_args"] = without(ignored, arguments)
    return content


def read_all(paths: Sequence[Path], *, sequential: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the keys of all files (later files win), and the file of each key."""
    contents = [read(path, sequential=sequential) for path in paths]
    return merged(*contents), {key: str(path) for path, keys in zip(paths, contents, strict=True) for key in keys}


def without_words(value: Any) -> Any:
    """Return ``value`` with null for the word None, at any depth; RecBole's documentation writes None for null."""
    if isinstance(value, Mapping):
        return {key: without_words(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [without_words(entry) for entry in value]
    return None if value == "None" else value
