"""Recipes of published tables: a file for each table, with its rows and its data sets.

A table's file says what its rows are, and under ``datasets`` what differs on each data set: its published values, its
settings, what the rows change there. A recipe is a table on one of its data sets, and is called TABLE-DATASET.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.yaml_files import config_file, merged, properties_file, properties_folder, read_yaml

# keys of a table's file, beside "dataset" and "prepare" for one data set or "datasets" for several
TABLE_KEYS = {"about", "protocol", "settings", "tolerance", "small", "short", "rows", "published_only"}
DATASET_KEYS = {"title", "dataset", "prepare", "settings", "short", "rows", "published_only"}


@dataclass(frozen=True)
class Row:
    """One row of a table: a model with its settings or search space, and what was published."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # keys of this row, over those of the recipe
    space: str = ""  # search space to tune over, a name or a file, or "" to run the settings
    search: str = "grid"
    num_samples: int | None = None
    small: Mapping[str, Any] = field(default_factory=dict)  # keys of this row under the small budget
    short: Mapping[str, Any] = field(default_factory=dict)  # and under the short one, instead of the search space
    # RecBole's metric name to the printed value; nothing for a row that was not published
    published: Mapping[str, float] = field(default_factory=dict)
    note: str = ""  # what the reader must know


@dataclass(frozen=True)
class Recipe:
    """A published table on one data set."""

    name: str  # ``<paper>-<table>-<dataset>``: the name of the table's file and that of the data set in it
    about: str  # one line on the table
    dataset: str
    prepare: str  # command that prepares it
    settings: Mapping[str, Any]  # keys of every row: protocol, metrics, training
    rows: Mapping[str, Row]  # rows to reproduce, by their printed name
    tolerance: float = 0.05  # relative difference up to which a value counts as reproduced
    small: Mapping[str, Any] = field(default_factory=dict)  # keys of every row under the small budget
    short: Mapping[str, Any] = field(default_factory=dict)  # and under the short one: a quicker way of training
    # rows that are printed for comparison
    published_only: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def recipes() -> dict[str, Path]:
    """Return the file of every recipe, by its name TABLE-DATASET."""
    return {f"{table}-{key}": path for table, path in _tables().items() for key in read_yaml(path)["datasets"]}


def _tables() -> dict[str, Path]:
    return {path.stem: path for path in sorted((properties_folder() / "reproduce").glob("*.yaml"))}


def read_recipe(name: str) -> Recipe:
    """Read a recipe by name, or from a file: FILE.yaml with one data set, or FILE-DATASET of its data sets."""
    path, table, dataset = _find(name)
    content = read_yaml(path)
    if "datasets" not in content and not dataset:
        return _recipe(content, path.stem, path)
    datasets = content.pop("datasets", {})
    if not isinstance(datasets, Mapping):
        raise ConfigError(f"{path}: datasets needs an entry for each data set, got {datasets!r}")
    names = [f"{table}-{key}" for key in datasets]
    if not dataset:
        raise ConfigError(f"recipe {name!r} has a table for each of its data sets; name one: {', '.join(names)}")
    if dataset not in datasets:
        raise _unknown(name, names)
    _refuse(content, TABLE_KEYS, path)
    return _recipe(_of_dataset(content, dataset, datasets[dataset] or {}, path), f"{path.stem}-{dataset}", path)


def _find(name: str) -> tuple[Path, str, str]:
    """Return the file of a recipe, what is typed for the file, and which of its data sets is meant ("" for none)."""
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
    _refuse(own, DATASET_KEYS, where)
    common, others = table.get("rows") or {}, own.get("rows") or {}
    if unknown := [title for title in others if title not in common]:
        raise ConfigError(f"{where}: row {unknown[0]!r} is none of {', '.join(common)}")
    rows = {}
    for title, row in common.items():
        # the settings of a data set are added to those of a row, all else is replaced
        added, row = others.get(title) or {}, row or {}
        keys = [key for key in ("settings", "small", "short") if key in added]
        rows[title] = {**row, **added, **{key: merged(row.get(key) or {}, added[key] or {}) for key in keys}}
    return {
        **table,
        "about": str(table.get("about", "")).replace("{title}", str(own.get("title", name))),
        "dataset": name,
        **{key: own[key] for key in ("dataset", "prepare", "published_only") if key in own},
        **{key: merged(table.get(key) or {}, own.get(key) or {}) for key in ("settings", "short")},
        "rows": rows,
    }


def _recipe(content: Mapping[str, Any], name: str, path: Path) -> Recipe:
    _refuse(content, {*TABLE_KEYS, "dataset", "prepare"}, path)
    for key in ("about", "dataset", "rows"):
        if not content.get(key):
            raise ConfigError(f"{path}: {key} is missing")
    protocol = content.get("protocol")
    own = {key: value for key, value in content.items() if value is not None and key != "protocol"}
    own["settings"] = merged(read_yaml(config_file(protocol)) if protocol else {}, own.get("settings", {}))
    own["rows"] = {str(title): _row(row or {}, f"{path}, row {title}") for title, row in content["rows"].items()}
    return Recipe(**{"prepare": f"recbole-hyper prepare {content['dataset']}", **own, "name": name})


def _row(entry: Mapping[str, Any], where: str) -> Row:
    _refuse(entry, {key.name for key in fields(Row)}, where)
    if not entry.get("model"):
        raise ConfigError(f"{where}: model is missing")
    row = Row(**{key: value for key, value in entry.items() if value is not None})
    if row.space:
        properties_file(row.space, "sweep", f"search space of {where}")
    return replace(row, published={str(metric): float(value) for metric, value in row.published.items()})


def _refuse(content: Mapping[str, Any], known: set[str], where: Any) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known: {', '.join(sorted(known))}")
