"""Reads users' configuration files: old keys, the word None and unknown keys."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError, near_names
from recbole_hyper.host import old_keys
from recbole_hyper.values import EVALUATION
from recbole_hyper.yaml_files import merged, read_yaml, warn_once, without


def read(path: Path, *, sequential: bool = True) -> dict[str, Any]:
    """Return the keys of a user's file with today's names, and log the changes.

    ``sequential`` is the kind of the model. ConfigError as :func:`read_yaml`, and for an old key without an equal.
    """
    content = without_words(read_yaml(path))
    try:
        content, lines = old_keys.translated(content, sequential=sequential)
    except ConfigError as error:
        raise ConfigError(f"{error} ({path})") from error
    for line in lines:
        warn_once(path, line)
    if isinstance(arguments := content.get("eval_args"), Mapping):
        # RecBole ignores them; one that is nearly a known key is a slip, which the checks report
        ignored = [key for key in arguments if key not in EVALUATION and not near_names(str(key), EVALUATION)]
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
