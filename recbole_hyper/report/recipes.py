"""Recipes of published tables.

The file of a table defines its rows, and under ``datasets`` what differs on each data set: published values, settings,
and changes to rows. A recipe is a table on one of its data sets, and its name is TABLE-DATASET.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.yaml_files import config_file, merged, properties_file, properties_folder, read_yaml

# keys of a table's file, in addition to "datasets", or "dataset" and "prepare" if there is one data set
TABLE_KEYS = {"about", "protocol", "settings", "tolerance", "small", "short", "rows", "published_only"}
DATASET_KEYS = {"title", "dataset", "prepare", "settings", "short", "rows", "published_only"}


@dataclass(frozen=True)
class Row:
    """A row of a table: a model with settings or a search space, and its published values."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # override those of the recipe
    space: str = ""  # name or file of a search space; "" runs the settings
    search: str = "grid"
    num_samples: int | None = None
    small: Mapping[str, Any] = field(default_factory=dict)  # settings under the small budget
    short: Mapping[str, Any] = field(default_factory=dict)  # settings under the short budget, instead of the space
    published: Mapping[str, float] = field(default_factory=dict)  # by RecBole's metric name; empty if not published
    note: str = ""  # what the reader must know


@dataclass(frozen=True)
class Recipe:
    """A published table on one data set."""

    name: str  # <paper>-<table>-<dataset>
    about: str  # one line on the table
    dataset: str
    prepare: str  # command that prepares the data set
    settings: Mapping[str, Any]  # of every row: protocol, metrics, training
    rows: Mapping[str, Row]  # rows to reproduce, by their printed name
    tolerance: float = 0.05  # largest relative difference that counts as reproduced
    small: Mapping[str, Any] = field(default_factory=dict)  # settings of every row under the small budget
    short: Mapping[str, Any] = field(default_factory=dict)  # settings of every row under the short budget
    # rows that are only printed for comparison
    published_only: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def recipes() -> dict[str, Path]:
    """Return the file of every recipe, by name."""
    return {f"{table}-{key}": path for table, path in _tables().items() for key in read_yaml(path)["datasets"]}


def _tables() -> dict[str, Path]:
    return {path.stem: path for path in sorted((properties_folder() / "reproduce").glob("*.yaml"))}


def read_recipe(name: str) -> Recipe:
    """Read a recipe by name or from a file: FILE.yaml if it has one data set, or FILE-DATASET."""
    path, table, dataset = _find(name)
    content = read_yaml(path)
    if "datasets" not in content and not dataset:
        return _recipe(content, path.stem, path)
    datasets = content.pop("datasets", {})
    if not isinstance(datasets, Mapping):
        raise ConfigError(f"{path}: datasets must be a mapping with an entry per data set, got {datasets!r}")
    names = [f"{table}-{key}" for key in datasets]
    if not dataset:
        raise ConfigError(f"recipe {name!r} has several data sets; name one: {', '.join(names)}")
    if dataset not in datasets:
        raise _unknown(name, names)
    _refuse_unknown(content, TABLE_KEYS, path)
    return _recipe(_of_dataset(content, dataset, datasets[dataset] or {}, path), f"{path.stem}-{dataset}", path)


def _find(name: str) -> tuple[Path, str, str]:
    """Split a recipe's name: return the file, the name of the table, and the name of the data set ("" for none)."""
    if Path(name).is_file():
        return Path(name), name.removesuffix(".yaml"), ""
    known, words = _tables(), name.split("-")
    for count in range(len(words), 0, -1):
        table = "-".join(words[:count])
        file = known.get(table, Path(f"{table}.yaml"))
        if file.is_file():
            return file, table, "-".join(words[count:])
    raise _unknown(name, list(recipes()))


def _unknown(name: str, known: Sequence[str]) -> ConfigError:
    hint = did_you_mean(name, known) or "; see recbole-hyper reproduce --list"
    return ConfigError(f"recipe {name!r} is unknown{hint}")


def _of_dataset(table: Mapping[str, Any], name: str, own: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the content of a table's file for one of its data sets."""
    where = f"{path}, data set {name}"
    _refuse_unknown(own, DATASET_KEYS, where)
    common, changes = table.get("rows") or {}, own.get("rows") or {}
    if unknown := [title for title in changes if title not in common]:
        raise ConfigError(f"{where}: the table has no row {unknown[0]!r}; its rows: {', '.join(common)}")
    rows = {}
    for title, row in common.items():
        # settings are merged with those of the table's row, anything else replaces it
        change, row = changes.get(title) or {}, row or {}
        keys = [key for key in ("settings", "small", "short") if key in change]
        rows[title] = {**row, **change, **{key: merged(row.get(key) or {}, change[key] or {}) for key in keys}}
    return {
        **table,
        "about": str(table.get("about", "")).replace("{title}", str(own.get("title", name))),
        "dataset": name,
        **{key: own[key] for key in ("dataset", "prepare", "published_only") if key in own},
        **{key: merged(table.get(key) or {}, own.get(key) or {}) for key in ("settings", "short")},
        "rows": rows,
    }


def _recipe(content: Mapping[str, Any], name: str, path: Path) -> Recipe:
    _refuse_unknown(content, {*TABLE_KEYS, "dataset", "prepare"}, path)
    for key in ("about", "dataset", "rows"):
        if not content.get(key):
            raise ConfigError(f"{path}: {key} is missing")
    protocol = content.get("protocol")
    own = {key: value for key, value in content.items() if value is not None and key != "protocol"}
    own["settings"] = merged(read_yaml(config_file(protocol)) if protocol else {}, own.get("settings", {}))
    own["rows"] = {str(title): _row(row or {}, f"{path}, row {title}") for title, row in content["rows"].items()}
    return Recipe(**{"prepare": f"recbole-hyper prepare {content['dataset']}", **own, "name": name})


def _row(entry: Mapping[str, Any], where: str) -> Row:
    _refuse_unknown(entry, {key.name for key in fields(Row)}, where)
    if not entry.get("model"):
        raise ConfigError(f"{where}: model is missing")
    row = Row(**{key: value for key, value in entry.items() if value is not None})
    if row.space:
        properties_file(row.space, "sweep", f"search space of {where}")
    return replace(row, published={str(metric): float(value) for metric, value in row.published.items()})


def _refuse_unknown(content: Mapping[str, Any], known: set[str], where: Any) -> None:
    if unknown := [key for key in content if key not in known]:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
