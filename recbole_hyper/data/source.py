"""The settings that determine which interactions are read, as plain values."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper.data.tables.atomic import CARD as CARD
from recbole_hyper.data.tables.atomic import read_atomic, typed_header
from recbole_hyper.data.tables.filters import require_allowed
from recbole_hyper.errors import ConfigError, DataError, did_you_mean
from recbole_hyper.files import read_json

_TIMELESS = (
    ". Without times: 'recbole-hyper prepare NAME --source=FILE --order=file' takes the order of the file; models "
    "without sequences need none with eval_args: {order: RO}"
)


@dataclass(frozen=True)
class Source:
    """Atomic files, their columns, and RecBole's filters; attributes have the names of RecBole's keys."""

    folder: Path  # of the atomic files
    name: str  # of the data set and its files
    user_field: str
    item_field: str
    time_field: str
    field_separator: str
    seq_separator: str
    encoding: str | None
    load_col: Mapping[str, Any]  # columns to read, by file, "*" for all; other files are not read
    unload_col: Mapping[str, Any]  # columns not to read, by file
    rm_dup_inter: str | None
    val_interval: Mapping[str, Any]
    user_inter_num_interval: str | None
    item_inter_num_interval: str | None
    given: bool  # the interactions come from a frame, there are no files
    # the PARTs of files NAME.PART.inter: training, validation and test, or training and test; empty if NAME.inter has
    # all interactions. As in RecBole, filters do not apply to parts
    parts: tuple[str, ...] = ()
    aliases: frozenset[str] = frozenset()  # further fields of users or items
    list_suffix: str = "_list"  # suffix of the column of histories that parts may have
    random_order: bool = False  # whether a model without sequences splits the interactions in random order
    columns_of_source: Mapping[str, str] = dataclasses.field(default_factory=dict)  # raw columns, by field

    @classmethod
    def of(cls, config: Any) -> Source:
        """Read the settings of a configuration; ConfigError for invalid ones."""
        named = ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")
        if len(set(fields := [config[key] for key in named])) < 3:
            raise ConfigError(f"USER_ID_FIELD, ITEM_ID_FIELD, TIME_FIELD are {', '.join(fields)}; they must differ")
        for key, example in (("unload_col", "{inter: [rating]}"), ("val_interval", "{rating: '[3,inf)'}")):
            if config[key] and not isinstance(config[key], Mapping):
                raise ConfigError(f"{key}={config[key]!r} must be a mapping, such as {example}")
        for key in ("alias_of_user_id", "alias_of_item_id"):
            if not isinstance(config[key] or [], list):
                raise ConfigError(f"{key}={config[key]!r} must be a list of columns")
        parts, given = tuple(config["benchmark_filename"] or ()), config["interactions"] == "given"
        limits = ("rm_dup_inter", "user_inter_num_interval", "item_inter_num_interval")
        filters: dict[str, Any] = {key: None if parts else config[key] for key in limits}
        sequential = getattr(config, "model_class", None) is None or config.model_class.type.name == "SEQUENTIAL"
        order = config["eval_args"].get("order") if isinstance(config["eval_args"], Mapping) else None
        card: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # files that prepare did not write have no card
            card = {} if given else read_json(Path(config["data_path"]) / CARD)
        if card.get("escaped"):
            raise ConfigError(f"{config['data_path']} has ids as %XX, which earlier versions wrote: prepare it again")
        return cls(
            folder=Path(config["data_path"]),
            name=str(config["dataset"]),
            **{key: config[key] for key in ("field_separator", "seq_separator", "encoding", "load_col")},
            **dict(zip(("user_field", "item_field", "time_field"), fields, strict=True)),
            **filters,
            val_interval=(not parts and config["val_interval"]) or {},
            unload_col=config["unload_col"] or {},
            given=given,
            parts=parts,
            aliases=frozenset([*(config["alias_of_user_id"] or ()), *(config["alias_of_item_id"] or ())]),
            list_suffix=config["LIST_SUFFIX"],
            random_order=order == "RO" and not sequential,
            columns_of_source=card.get("columns") or {},
        )  # fmt: skip

    def path(self, suffix: str) -> Path:
        """Return the atomic file "inter" (of parts, the first), "user" or "item"."""
        return self.inter_paths()[0] if suffix == "inter" else self.folder / f"{self.name}.{suffix}"

    def inter_paths(self) -> list[Path]:
        """Return the files of interactions, one per part."""
        middles = [f".{part}" for part in self.parts] or [""]
        return [self.folder / f"{self.name}{middle}.inter" for middle in middles]

    def files(self) -> list[Path]:
        """Return the files that are read."""
        if self.given:
            return []
        inter = self.inter_paths() if "inter" in self.load_col else []
        return inter + [self.path(suffix) for suffix in ("user", "item") if suffix in self.load_col]

    @property
    def has_features(self) -> bool:
        """Whether more than users, items and times is loaded."""
        return not self.given and (bool(set(self.load_col) - {"inter"}) or len(self.columns("inter")) > 3)

    def header(self, file: str | Path) -> dict[str, str]:
        """Return name and type of all columns of a path, or of "inter", "user" or "item", loaded or not."""
        path = self.path(file) if isinstance(file, str) else file
        return typed_header(path, self.field_separator, self.encoding)

    def columns(self, suffix: str) -> dict[str, str]:
        """Return name and type of the loaded columns of a file."""
        loaded, unloaded = self.load_col.get(suffix, []), self.unload_col.get(suffix) or []
        kinds = self.header(suffix).items()
        return {name: kind for name, kind in kinds if (loaded == "*" or name in loaded) and name not in unloaded}

    def filtering(self, suffix: str) -> dict[str, str]:
        """Return name and type of the columns of a file that ``val_interval`` names, loaded or not."""
        return {name: kind for name, kind in self.header(suffix).items() if name in self.val_interval}

    def read(self, path: Path, columns: Mapping[str, str], ids: Collection[str]) -> pd.DataFrame:
        """Return columns of a file, see :func:`~recbole_hyper.data.tables.atomic.read_atomic`."""
        form = {"separator": self.field_separator, "seq_separator": self.seq_separator, "encoding": self.encoding}
        return read_atomic(path, columns, ids=ids, **form)  # type: ignore[arg-type]

    def nothing_left(self, where: object) -> DataError:
        """Return the error for filters that remove all interactions."""
        return DataError(
            f"{where}: filtering removes all interactions (user_inter_num_interval="
            f"{self.user_inter_num_interval!r}, item_inter_num_interval={self.item_inter_num_interval!r}, "
            f"val_interval={dict(self.val_interval) or None!r})"
        )

    @property
    def timed(self) -> bool:
        """Whether times are read: optional for interactions in parts, or split in random order."""
        if self.parts or self.random_order:
            return not self.has_histories and self.time_field in self.columns("inter")
        return True

    @property
    def list_field(self) -> str:
        """The column of histories."""
        return f"{self.item_field}{self.list_suffix}"

    @property
    def has_histories(self) -> bool:
        """Whether the interactions come in parts whose rows are a history and its target."""
        return bool(self.parts) and self.header("inter").get(self.list_field) == "token_seq"

    def check_header(self) -> None:
        """Raise DataError if a column (user, item, time, or of ``val_interval``) is missing or of the wrong type."""
        fields = {"USER_ID_FIELD": self.user_field, "ITEM_ID_FIELD": self.item_field, "TIME_FIELD": self.time_field}
        if not self.timed:
            del fields["TIME_FIELD"]
        loaded = self.load_col.get("inter", [])
        for path in self.inter_paths():
            types = self.header(path)
            if self.has_histories and types.get(self.list_field) != "token_seq":
                raise DataError(f"{path} has no column {self.list_field}:token_seq, which {self.path('inter')} has")
            for key, field in fields.items():
                wanted = "float" if key == "TIME_FIELD" else "token"
                if types.get(field) != wanted:
                    raise DataError(
                        f"{path} has no column {field!r} of type {wanted} ({key}); its tab-separated columns: "
                        f"{', '.join(f'{name}:{kind}' for name, kind in types.items())}"
                        f"{did_you_mean(field, types, f'; did you mean --{key}=', n=1)}"
                        + (_TIMELESS if key == "TIME_FIELD" else "")
                    )
                if loaded != "*" and field not in loaded:
                    raise DataError(f"column {field!r} ({key}) is not loaded: add it to load_col inter: {loaded}")
        for suffix, field in (("user", self.user_field), ("item", self.item_field)):
            if suffix in self.load_col and self.header(suffix).get(field) != "token":
                raise DataError(f"{self.path(suffix)} has no column {field!r} of type token, for load_col {suffix}")
        known = {name: kind for suffix in self.load_col for name, kind in self.header(suffix).items()}
        for name, allowed in sorted(self.val_interval.items()):
            if name in known:
                require_allowed(name, known[name], allowed)
                continue
            columns = ", ".join(self.header("inter"))
            raise DataError(f"val_interval: {name!r} is no column of {self.path('inter')}, or of load_col: {columns}")
