"""Reading YAML: plain values; any mistake is one error with file and line."""

import functools
import importlib.util
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.values import YAML_NUMBER

logger = logging.getLogger("recbole_hyper")

# values of a file; anchors in anchors multiply them
_MOST_VALUES = 100_000


# warnings that were logged, because a process reads a file several times
_logged: set[tuple[str, str]] = set()


def warn_once(where: str | Path, text: str) -> None:
    """Log a warning about a file, but only once."""
    if (str(where), text) not in _logged:
        _logged.add((str(where), text))
        logger.warning("%s: %s", where, text)


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which builds no objects from tags, with RecBole's numbers; it lists keys that are twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[str] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of ``node``; of a key that is twice the last value counts."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        self.twice += [key for key, count in Counter(keys).items() if count > 1]
        return super().construct_mapping(node, deep)


class _PackagedLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads files of installed packages: libyaml is ten times faster, but its errors name no reason."""


for _loader in (Loader, _PackagedLoader):
    _loader.add_implicit_resolver("tag:yaml.org,2002:float", YAML_NUMBER, list("-+0123456789."))


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain value that ``text`` spells; errors, and a warning of keys that are twice, name ``where``.

    ConfigError if the text is not YAML, has a tag of an object, or is nested too deeply.
    """
    try:
        loader = Loader(text)
        content = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where} is not valid YAML{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} is nested too deeply to be read") from error
    for key in loader.twice:
        warn_once(where, f"the key {key!r} is given twice; the last value counts")
    if _n_values(content, _MOST_VALUES) > _MOST_VALUES:
        raise ConfigError(f"{where} repeats values by anchors (&, *) without end, or too often to be read")
    return content


def _n_values(content: Any, most: int) -> int:
    """Return the number of values in lists and mappings at any depth; it stops above ``most``."""
    count, pending = 0, [content]
    while pending and count <= most:
        value = pending.pop()
        count += 1
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return count


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, {} for an empty file.

    ConfigError unless it is UTF-8, valid for :func:`parse_yaml`, and a mapping with texts as keys.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    content = parse_yaml(text, str(path))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must contain 'key: value' lines, but is a {type(content).__name__}")
    for key in content:
        if not isinstance(key, str):
            raise ConfigError(f"{path}: the key {key!r} is not text")
    return content


@functools.cache
def packaged_yaml(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file of this package or of RecBole; it is read once and must not be changed."""
    return yaml.load(path.read_text(encoding="utf-8"), _PackagedLoader) or {}


@functools.cache
def properties_folder() -> Path:
    """Return the folder of this package's YAML files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "properties", package.parent / "properties"):
        if (folder / "datasets.yaml").is_file():
            return folder
    raise FileNotFoundError(f"the properties/ folder is missing from {package} and {package.parent}; reinstall")


def properties_file(name: str | Path, folder: str, what: str) -> Path:
    """Return the file ``name``, or else the file of that name in ``properties/<folder>``.

    ConfigError, which calls the file a ``what`` and names the nearest ones, if there is none.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    known = {file.stem: file for file in sorted((properties_folder() / folder).glob("*.yaml"))}
    bare = str(name).removesuffix(".yaml")
    if bare in known:
        return known[bare]
    beside = [file.name for file in sorted(path.parent.glob("*.yaml"))]
    near = did_you_mean(path.name, beside) or did_you_mean(path.stem, known)
    hint = near or f"; known by name: {', '.join(known)}"
    raise ConfigError(f"the {what} {str(name)!r} does not exist (looked in {Path.cwd()}){hint}")


def config_file(name: str | os.PathLike[str]) -> Path:
    """Return the configuration file at the path ``name``, or of that name in properties/protocol."""
    return properties_file(os.fspath(name), "protocol", "config file")


def config_files(text: str) -> list[str]:
    """Return the space-separated paths in ``text``; a text that names a file is a single path."""
    return [text] if Path(text).is_file() else text.split()


def only(names: Iterable[str], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``keys`` that are called ``names``."""
    return {name: keys[name] for name in names if name in keys}


def without(names: Collection[str], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``keys`` that are not called ``names``."""
    return {key: value for key, value in keys.items() if key not in names}


def merge(target: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Update ``target`` with ``update``; merges eval_args key by key, so that a mode alone does not reset the split."""
    for key, value in update.items():
        if key == "eval_args" and isinstance(value, Mapping) and isinstance(target.get(key), Mapping):
            target[key] = {**target[key], **value}
        else:
            target[key] = value


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of all ``parts``; later ones win, see :func:`merge`."""
    keys: dict[str, Any] = {}
    for part in parts:
        merge(keys, part)
    return keys


@functools.cache
def recbole_folder() -> Path:
    """Return the folder of the package recbole."""
    spec = importlib.util.find_spec("recbole")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package recbole is not installed", name="recbole")
    return Path(spec.origin).parent


def data_addresses() -> Mapping[str, str]:
    """Return the address of each data set that RecBole knows by name."""
    return packaged_yaml(recbole_folder() / "properties" / "dataset" / "url.yaml")
