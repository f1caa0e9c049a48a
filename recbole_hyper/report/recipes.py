"""Recipes of published tables.

The file of a table defines its rows, and under ``datasets`` what differs on each data set: published values, settings,
and changes to rows. A recipe is a table on one of its data sets, and its name is TABLE-DATASET. A user's own file has
one data set, as the key ``dataset``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, field_validator

from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.files import validated
from recbole_hyper.yaml_files import config_file, merged, packaged_yaml, properties_file, properties_folder, read_yaml

Keys = dict[str, Any]


class Row(BaseModel, extra="forbid"):
    """A row of a table: a model with settings or a search space, and its published values."""

    model: str
    settings: Keys = {}  # override those of the recipe
    space: str = ""  # name or file of a search space; "" runs the settings
    search: str = "grid"
    num_samples: int | None = None
    small: Keys = {}  # settings under the small budget
    short: Keys = {}  # settings under the short budget, instead of the space
    published: dict[str, float] = {}  # by RecBole's metric name; empty if not published
    note: str = ""  # what the reader must know

    @field_validator("space")
    @classmethod
    def _exists(cls, space: str) -> str:
        if space:
            properties_file(space, "sweep", "search space")
        return space


class Recipe(BaseModel, extra="forbid"):
    """A published table on one data set."""

    name: str  # TABLE-DATASET
    about: str = Field(min_length=1)  # one line on the table
    dataset: str
    rows: dict[str, Row] = Field(min_length=1)  # rows to reproduce, by their printed name
    settings: Keys = {}  # of every row: protocol, metrics, training
    tolerance: float = 0.05  # largest relative difference that counts as reproduced
    small: Keys = {}  # settings of every row under the small budget
    short: Keys = {}  # settings of every row under the short budget
    published_only: dict[str, dict[str, float]] = {}  # rows that are only printed for comparison


def recipes() -> dict[str, Path]:
    """Return the file of every recipe, by name."""
    files = sorted((properties_folder() / "reproduce").glob("*.yaml"))
    return {f"{path.stem}-{dataset}": path for path in files for dataset in packaged_yaml(path)["datasets"]}


def read_recipe(name: str) -> Recipe:
    """Read a bundled recipe by its name, or the file of one data set; ConfigError names what is wrong in it."""
    known = recipes()
    path = known.get(name, Path(name))
    if not path.is_file():
        hint = did_you_mean(name, known) or "; see recbole-hyper reproduce --list"
        raise ConfigError(f"recipe {name!r} is unknown{hint}")
    content = dict(packaged_yaml(path)) if name in known else read_yaml(path)
    if name in known:
        content = _of_dataset(content, name.removeprefix(f"{path.stem}-"))
    if protocol := content.pop("protocol", None):
        content["settings"] = merged(read_yaml(config_file(protocol)), content.get("settings", {}))
    return validated(Recipe, {**content, "name": name if name in known else path.stem}, path)


def _of_dataset(table: Keys, dataset: str) -> Keys:
    """Return the content of a table's file for one of its data sets."""
    own = table.pop("datasets")[dataset] or {}
    content = _changed({"dataset": dataset, **table}, own)
    content["about"] = content["about"].replace("{title}", content.pop("title", dataset))
    changes = own.get("rows", {})
    # a change to a row that the table lacks is a row without a model, which is refused
    content["rows"] = {title: _changed(table["rows"].get(title, {}), changes.get(title, {})) for title in
                       {**table["rows"], **changes}}  # fmt: skip
    return content


def _changed(base: Mapping[str, Any], change: Mapping[str, Any]) -> Keys:
    """Return ``base`` with a ``change``: settings are merged, anything else is replaced."""
    settings = {key: merged(base.get(key, {}), change.get(key, {})) for key in ("settings", "small", "short")}
    return {**base, **change, **settings}
