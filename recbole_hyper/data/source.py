"""Everything of a configuration that decides which interactions are read, as plain values: the key of the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recbole_hyper.data.atomic import read_atomic, typed_header
from recbole_hyper.data.filters import require_allowed
from recbole_hyper.data.ids import PAD, unescaped
from recbole_hyper.errors import ConfigError, DataError, did_you_mean
from recbole_hyper.files import read_json

CARD = "SOURCE.json"  # what ``prepare`` notes beside the files


def prepared_card(folder: Path) -> dict[str, Any]:
    """Return what ``prepare`` noted of the files in ``folder``, {} where there is nothing that can be read."""
    try:
        return read_json(folder / CARD)
    except (OSError, ValueError):
        return {}


def original_ids(tokens: pa.Array) -> pa.Array:
    """Return ids as they were before :func:`ids.escaped`, all but the name of padding."""
    plain = unescaped(tokens)
    return pc.if_else(pc.equal(plain, PAD), tokens, plain)


def _check(config: Any) -> None:
    """Raise ConfigError for keys that cannot be those of any files."""
    for key in ("field_separator", "seq_separator", "LIST_SUFFIX", "USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD"):
        if not isinstance(config[key], str) or not config[key]:
            raise ConfigError(f"{key}={config[key]!r}: a text that is not empty is needed")
    fields = [config[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")]
    if len(set(fields)) < len(fields):
        raise ConfigError(
            f"USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD are {', '.join(fields)}: three different columns are needed"
        )
    for key in ("unload_col", "val_interval"):
        if config[key] and not isinstance(config[key], Mapping):
            example = "{inter: [rating]}" if key == "unload_col" else "{rating: '[3,inf)'}"
            raise ConfigError(f"{key}={config[key]!r}: a mapping is needed, such as {example}")


def _random_order(config: Any) -> bool:
    sequential = getattr(config, "model_class", None) is None or config.model_class.type.name == "SEQUENTIAL"
    order = config["eval_args"].get("order") if isinstance(config["eval_args"], Mapping) else None
    return order == "RO" and not sequential


@dataclass(frozen=True)
class Source:
    """Atomic files, their columns, and RecBole's filters; attributes are named as RecBole's keys."""

    folder: Path  # of the atomic files
    name: str  # of the data set, and of its files
    user_field: str
    item_field: str
    time_field: str
    field_separator: str
    seq_separator: str
    encoding: str | None
    load_col: Mapping[str, Any]  # columns by file; a file that is not named is not read. "*" is all of them
    unload_col: Mapping[str, Any]  # columns by file that are not read
    rm_dup_inter: str | None
    val_interval: Mapping[str, Any]
    user_inter_num_interval: str | None
    item_inter_num_interval: str | None
    given: bool  # there are no files, a frame holds the interactions
    # names of the files NAME.part.inter that hold training, validation and test, or training and test; none where
    # NAME.inter holds all. Of such parts nothing is filtered, as in RecBole
    parts: tuple[str, ...] = ()
    list_suffix: str = "_list"  # of the column of histories that such parts may have
    random_order: bool = False  # whether interactions are split in random order, by a model without sequences
    escaped: tuple[str, ...] = ()  # fields whose ids hold %XX, as ``prepare`` noted beside the files
    columns_of_source: Mapping[str, str] = dataclasses.field(default_factory=dict)  # names by field

    @classmethod
    def of(cls, config: Any) -> Source:
        """Read them from a configuration."""
        _check(config)
        parts = tuple(config["benchmark_filename"] or ())
        card = prepared_card(Path(config["data_path"])) if config["interactions"] != "given" else {}

        def filtering(key: str) -> Any:
            return None if parts else config[key]

        return cls(
            folder=Path(config["data_path"]),
            name=str(config["dataset"]),
            user_field=config["USER_ID_FIELD"],
            item_field=config["ITEM_ID_FIELD"],
            time_field=config["TIME_FIELD"],
            field_separator=config["field_separator"],
            seq_separator=config["seq_separator"],
            encoding=config["encoding"],
            load_col=config["load_col"],
            unload_col=config["unload_col"] or {},
            rm_dup_inter=filtering("rm_dup_inter"),
            val_interval=filtering("val_interval") or {},
            user_inter_num_interval=filtering("user_inter_num_interval"),
            item_inter_num_interval=filtering("item_inter_num_interval"),
            given=config["interactions"] == "given",
            parts=parts,
            list_suffix=config["LIST_SUFFIX"],
            random_order=_random_order(config),
            escaped=tuple(sorted(card.get("escaped") or ())),
            columns_of_source=card.get("columns") or {},
        )

    def path(self, suffix: str) -> Path:
        """Return the atomic file "inter", "user" or "item"; of interactions in parts, the first."""
        return self.inter_paths()[0] if suffix == "inter" else self.folder / f"{self.name}.{suffix}"

    def inter_paths(self) -> list[Path]:
        """Return the file of interactions, or those of its parts."""
        middles = [f".{part}" for part in self.parts] or [""]
        return [self.folder / f"{self.name}{middle}.inter" for middle in middles]

    @property
    def has_features(self) -> bool:
        """Whether anything beside user, item and time of an interaction is loaded."""
        return not self.given and (bool(set(self.load_col) - {"inter"}) or len(self.columns("inter")) > 3)

    def files(self) -> list[Path]:
        """Return the files that are read."""
        if self.given:
            return []
        paths = {"inter": self.inter_paths(), "user": [self.path("user")], "item": [self.path("item")]}
        return [path for suffix, found in paths.items() if suffix in self.load_col for path in found]

    def plain(self) -> dict[str, Any]:
        """Return what decides the interactions beside the content of the files."""
        return {key: value for key, value in asdict(self).items() if key not in ("folder", "name", "given")}

    def columns(self, suffix: str) -> dict[str, str]:
        """Return name and type of the columns that are loaded of a file."""
        wanted, left_out = self.load_col.get(suffix, []), self.unload_col.get(suffix) or []
        return {
            name: kind
            for name, kind in self.header(suffix).items()
            if (wanted == "*" or name in wanted) and name not in left_out
        }

    def header(self, suffix: str) -> dict[str, str]:
        """Return name and type of all columns of a file, loaded or not."""
        return self.header_of(self.path(suffix))

    def header_of(self, path: Path) -> dict[str, str]:
        """Return name and type of all columns of ``path``."""
        return typed_header(path, self.field_separator, self.encoding)

    def read(self, path: Path, columns: Mapping[str, str], ids: Collection[str]) -> pd.DataFrame:
        """Return columns of a file, see :func:`~recbole_hyper.data.atomic.read_atomic`."""
        frame = read_atomic(
            path,
            columns,
            ids=ids,
            separator=self.field_separator,
            seq_separator=self.seq_separator,
            encoding=self.encoding,
        )
        for name in set(ids) & set(frame) & self.escaped_columns:
            frame[name] = original_ids(pa.array(frame[name], pa.string())).to_pandas()
        return frame

    @property
    def escaped_columns(self) -> set[str]:
        """The columns whose ids hold %XX."""
        fields = {"user_id": self.user_field, "item_id": self.item_field}
        return {fields[name] for name in self.escaped}

    def nothing_left(self, where: object) -> DataError:
        """Return the error about filters that no interaction passes."""
        return DataError(
            f"{where}: no interaction is left after filtering (user_inter_num_interval="
            f"{self.user_inter_num_interval!r}, item_inter_num_interval={self.item_inter_num_interval!r}, "
            f"val_interval={dict(self.val_interval) or None!r})"
        )

    def filtering(self, suffix: str) -> dict[str, str]:
        """Return name and type of the columns of a file that ``val_interval`` looks at, loaded or not."""
        return {name: kind for name, kind in self.header(suffix).items() if name in self.val_interval}

    @property
    def timed(self) -> bool:
        """Whether times are read.

        Interactions that come in parts may do without, and keep the order of the files; so may those that a model
        without sequences learns in random order (eval_args: {order: RO}).
        """
        if self.random_order and not self.parts:
            return self.time_field in self.columns("inter")
        return not self.parts or (not self.has_histories and self.time_field in self.columns("inter"))

    @property
    def list_field(self) -> str:
        """The column of histories."""
        return f"{self.item_field}{self.list_suffix}"

    @property
    def has_histories(self) -> bool:
        """Whether a row of interactions that come in parts is a history and its target."""
        return bool(self.parts) and self.header("inter").get(self.list_field) == "token_seq"

    def check_header(self) -> None:
        """Raise DataError unless user, item and time are columns of the right type, and loaded.

        So must be what ``val_interval`` names, which need not be loaded.
        """
        for path in self.inter_paths():
            self._check_columns(path)
        self._check_filters()

    def _check_columns(self, path: Path) -> None:
        types, loaded = self.header_of(path), self.load_col.get("inter", [])
        fields = {"USER_ID_FIELD": self.user_field, "ITEM_ID_FIELD": self.item_field, "TIME_FIELD": self.time_field}
        if not self.timed:
            del fields["TIME_FIELD"]
        if self.has_histories and types.get(self.list_field) != "token_seq":
            raise DataError(f"{path} has no column {self.list_field}:token_seq, which {self.path('inter')} has")
        for key, field in fields.items():
            if field not in types:
                raise DataError(
                    f"{path} has no column {field!r} ({key}). Its columns: {', '.join(types)}."
                    f"{did_you_mean(field, types, f' Did you mean --{key}=', n=1)} "
                    "Columns are tab-separated and named 'name:type' (token, float, token_seq, float_seq)"
                )
            if loaded != "*" and field not in loaded:
                raise DataError(f"column {field!r} ({key}) is not loaded: add it to load_col inter, now {loaded}")
            wanted = "float" if key == "TIME_FIELD" else "token"
            if types[field] != wanted:
                raise DataError(
                    f"{path}: column {field!r} ({key}) is of type {types[field]!r} and must be {wanted!r}; "
                    f"write {field}:{wanted} in the header, whose columns are tab-separated"
                )

    def _check_filters(self) -> None:
        if not self.val_interval:
            return
        headers = {suffix: self.header(suffix) for suffix in self.load_col}
        for columns in headers.values():
            for name in set(columns) & set(self.val_interval):
                require_allowed(name, columns[name], self.val_interval[name])
        known = {name for columns in headers.values() for name in columns}
        for name in sorted(set(self.val_interval) - known):
            others = [self.path(suffix) for suffix in ("user", "item") if suffix not in self.load_col]
            holder = next((path for path in others if path.is_file() and name in self.header_of(path)), None)
            hint = f"; {holder.name} has it: name it in load_col, as {{{holder.suffix[1:]}: [...]}}" if holder else ""
            raise DataError(
                f"val_interval names {name!r}, which is no column of {self.path('inter')}: "
                f"{', '.join(headers['inter'])}{hint}"
            )
