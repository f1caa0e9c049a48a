"""Everything of a configuration that decides which interactions are read, as plain values: the key of the cache."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from recbole_hyper.data.atomic import read_atomic, typed_header
from recbole_hyper.data.filters import require_allowed
from recbole_hyper.data.ids import original_ids
from recbole_hyper.errors import ConfigError, DataError, did_you_mean
from recbole_hyper.files import read_json

CARD = "SOURCE.json"  # what ``prepare`` notes beside the files


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
        """Read them from a configuration; ConfigError for keys that cannot be those of any files."""
        named = ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")
        for key in ("field_separator", "seq_separator", "LIST_SUFFIX", *named):
            if not isinstance(config[key], str) or not config[key]:
                raise ConfigError(f"{key}={config[key]!r}: a text that is not empty is needed")
        if len(set(fields := [config[key] for key in named])) < 3:
            raise ConfigError(
                f"USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD are {', '.join(fields)}: three different columns are "
                "needed"
            )
        for key, example in (("unload_col", "{inter: [rating]}"), ("val_interval", "{rating: '[3,inf)'}")):
            if config[key] and not isinstance(config[key], Mapping):
                raise ConfigError(f"{key}={config[key]!r}: a mapping is needed, such as {example}")
        parts, given = tuple(config["benchmark_filename"] or ()), config["interactions"] == "given"
        filters = ("rm_dup_inter", "val_interval", "user_inter_num_interval", "item_inter_num_interval")
        sequential = getattr(config, "model_class", None) is None or config.model_class.type.name == "SEQUENTIAL"
        order = config["eval_args"].get("order") if isinstance(config["eval_args"], Mapping) else None
        card: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # prepare did not write these files
            card = {} if given else read_json(Path(config["data_path"]) / CARD)
        return cls(
            folder=Path(config["data_path"]),
            name=str(config["dataset"]),
            **{key: config[key] for key in ("field_separator", "seq_separator", "encoding", "load_col")},
            **dict(zip(("user_field", "item_field", "time_field"), fields, strict=True)),
            **({key: None if parts else config[key] for key in filters}
               | {"val_interval": (not parts and config["val_interval"]) or {}}),
            unload_col=config["unload_col"] or {},
            given=given,
            parts=parts,
            list_suffix=config["LIST_SUFFIX"],
            random_order=order == "RO" and not sequential,
            escaped=tuple(sorted(card.get("escaped") or ())),
            columns_of_source=card.get("columns") or {},
        )  # fmt: skip

    def path(self, suffix: str) -> Path:
        """Return the atomic file "inter", "user" or "item"; of interactions in parts, the first."""
        return self.inter_paths()[0] if suffix == "inter" else self.folder / f"{self.name}.{suffix}"

    def inter_paths(self) -> list[Path]:
        """Return the file of interactions, or those of its parts."""
        middles = [f".{part}" for part in self.parts] or [""]
        return [self.folder / f"{self.name}{middle}.inter" for middle in middles]

    def files(self) -> list[Path]:
        """Return the files that are read."""
        paths = {"inter": self.inter_paths(), "user": [self.path("user")], "item": [self.path("item")]}
        return [
            path
            for suffix, of_suffix in paths.items()
            if suffix in self.load_col and not self.given
            for path in of_suffix
        ]

    def plain(self) -> dict[str, Any]:
        """Return what decides the interactions beside the content of the files."""
        return {key: value for key, value in asdict(self).items() if key not in ("folder", "name", "given")}

    @property
    def has_features(self) -> bool:
        """Whether anything beside user, item and time of an interaction is loaded."""
        return not self.given and (bool(set(self.load_col) - {"inter"}) or len(self.columns("inter")) > 3)

    def header(self, file: str | Path) -> dict[str, str]:
        """Return name and type of all columns of a file, or of "inter", "user" or "item", loaded or not."""
        path = self.path(file) if isinstance(file, str) else file
        return typed_header(path, self.field_separator, self.encoding)

    def columns(self, suffix: str) -> dict[str, str]:
        """Return name and type of the columns that are loaded of a file."""
        wanted, left_out = self.load_col.get(suffix, []), self.unload_col.get(suffix) or []
        kinds = self.header(suffix).items()
        return {name: kind for name, kind in kinds if (wanted == "*" or name in wanted) and name not in left_out}

    def filtering(self, suffix: str) -> dict[str, str]:
        """Return name and type of the columns of a file that ``val_interval`` looks at, loaded or not."""
        return {name: kind for name, kind in self.header(suffix).items() if name in self.val_interval}

    def read(self, path: Path, columns: Mapping[str, str], ids: Collection[str]) -> pd.DataFrame:
        """Return columns of a file, see :func:`~recbole_hyper.data.atomic.read_atomic`."""
        form = {"separator": self.field_separator, "seq_separator": self.seq_separator, "encoding": self.encoding}
        frame = read_atomic(path, columns, ids=ids, **form)  # type: ignore[arg-type]
        for name in set(ids) & set(frame):
            self.restore(frame, name)
        return frame

    def restore(self, frame: pd.DataFrame, name: str) -> None:
        """Give the ids in a column of ``frame`` back the form that they had before ``prepare`` wrote %XX."""
        if name in self.escaped_columns:
            plain = original_ids(pa.array(frame[name], pa.string())).to_pandas()
            frame[name] = plain.set_axis(frame.index)

    @property
    def escaped_columns(self) -> set[str]:
        """The columns whose ids hold %XX."""
        return {self.user_field if name == "user_id" else self.item_field for name in self.escaped}

    def nothing_left(self, where: object) -> DataError:
        """Return the error about filters that no interaction passes."""
        return DataError(
            f"{where}: no interaction is left after filtering (user_inter_num_interval="
            f"{self.user_inter_num_interval!r}, item_inter_num_interval={self.item_inter_num_interval!r}, "
            f"val_interval={dict(self.val_interval) or None!r})"
        )

    @property
    def timed(self) -> bool:
        """Whether times are read: interactions in parts, or split in random order, may do without."""
        if self.parts or self.random_order:
            return not self.has_histories and self.time_field in self.columns("inter")
        return True

    @property
    def list_field(self) -> str:
        """The column of histories."""
        return f"{self.item_field}{self.list_suffix}"

    @property
    def has_histories(self) -> bool:
        """Whether a row of interactions that come in parts is a history and its target."""
        return bool(self.parts) and self.header("inter").get(self.list_field) == "token_seq"

    def check_header(self) -> None:
        """Raise DataError unless user, item, time and what ``val_interval`` names are columns of the right type."""
        fields = {"USER_ID_FIELD": self.user_field, "ITEM_ID_FIELD": self.item_field, "TIME_FIELD": self.time_field}
        if not self.timed:
            del fields["TIME_FIELD"]
        loaded = self.load_col.get("inter", [])
        for path in self.inter_paths():
            types = self.header(path)
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
        known = {name: kind for suffix in self.load_col for name, kind in self.header(suffix).items()}
        for name, allowed in sorted(self.val_interval.items()):
            if name in known:
                require_allowed(name, known[name], allowed)
                continue
            others = [self.path(suffix) for suffix in ("user", "item") if suffix not in self.load_col]
            holder = next((path for path in others if path.is_file() and name in self.header(path)), None)
            hint = f"; {holder.name} has it: name it in load_col, as {{{holder.suffix[1:]}: [...]}}" if holder else ""
            columns = ", ".join(self.header("inter"))
            raise DataError(f"val_interval names {name!r}, which is no column of {self.path('inter')}: {columns}{hint}")
