"""Everything of a configuration that decides which interactions are read, as plain values: the key of the cache."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recbole_hyper.data.atomic import DataError, header, typed_header


@dataclass(frozen=True)
class Source:
    """Atomic files, their columns, and RecBole's filters; attributes are named as RecBole's keys.

    Attributes:
        folder: of the atomic files.
        name: of the data set, and of its files.
        load_col: columns by file; a file that is not named is not read. "*" is all of them.
        unload_col: columns by file that are not read.
        given: there are no files, a frame holds the interactions.
    """

    folder: Path
    name: str
    user_field: str
    item_field: str
    time_field: str
    field_separator: str
    seq_separator: str
    encoding: str | None
    load_col: Mapping[str, Any]
    unload_col: Mapping[str, Any]
    rm_dup_inter: str | None
    val_interval: Mapping[str, Any]
    user_inter_num_interval: str | None
    item_inter_num_interval: str | None
    filter_inter_by_user_or_item: bool
    given: bool

    @classmethod
    def of(cls, config: Any) -> Source:
        """Read them from a configuration."""
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
            rm_dup_inter=config["rm_dup_inter"],
            val_interval=config["val_interval"] or {},
            user_inter_num_interval=config["user_inter_num_interval"],
            item_inter_num_interval=config["item_inter_num_interval"],
            filter_inter_by_user_or_item=config["filter_inter_by_user_or_item"] is True,
            given=config["interactions"] == "given",
        )

    def path(self, suffix: str) -> Path:
        """Return the atomic file "inter", "user" or "item"."""
        return self.folder / f"{self.name}.{suffix}"

    @property
    def has_features(self) -> bool:
        """Whether anything beside user, item and time of an interaction is loaded."""
        return not self.given and (bool(set(self.load_col) - {"inter"}) or len(self.columns("inter")) > 3)

    def files(self) -> list[Path]:
        """Return the files that are read."""
        suffixes = () if self.given else ("inter", "user", "item")
        return [self.path(suffix) for suffix in suffixes if suffix in self.load_col]

    def plain(self) -> dict[str, Any]:
        """Return what decides the interactions beside the content of the files."""
        return {key: value for key, value in asdict(self).items() if key not in ("folder", "name", "given")}

    def columns(self, suffix: str) -> dict[str, str]:
        """Return name and type of the columns that are loaded of a file.

        Raises:
            DataError: an entry of the header that is not name:type.
        """
        wanted, left_out = self.load_col.get(suffix, []), self.unload_col.get(suffix) or []
        columns = typed_header(self.path(suffix), self.field_separator, self.encoding)
        return {
            name: kind for name, kind in columns.items() if (wanted == "*" or name in wanted) and name not in left_out
        }

    def check_header(self) -> None:
        """Raise DataError unless user, item and time are columns of the right type, and loaded."""
        if self.time_field is None or self.user_field is None:
            raise DataError("USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD must all name a column")
        path, separator = self.path("inter"), self.field_separator
        entries = header(path, separator, self.encoding)
        types = dict(entry.partition(":")[::2] for entry in entries)
        columns, loaded = list(types), self.load_col.get("inter", [])
        fields = {"USER_ID_FIELD": self.user_field, "ITEM_ID_FIELD": self.item_field, "TIME_FIELD": self.time_field}
        for key, field in fields.items():
            if field not in columns:
                near = difflib.get_close_matches(field, columns, n=1)
                raise DataError(
                    f"{path} has no column {field!r} ({key}). Its header is {separator.join(entries)!r}, "
                    f"columns: {', '.join(columns)}. "
                    + (f"Did you mean --{key}={near[0]}? " if near else "")
                    + "Columns are tab-separated and named 'name:type' (token, float, token_seq, float_seq)"
                )
            if loaded != "*" and field not in loaded:
                raise DataError(f"column {field!r} ({key}) is not loaded: add it to load_col inter, now {loaded}")
            wanted = "float" if key == "TIME_FIELD" else "token"
            if types[field] and types[field] != wanted:
                raise DataError(
                    f"{path}: column {field!r} ({key}) is of type {types[field]!r} and must be {wanted!r}; "
                    f"write {field}:{wanted} in the header, whose columns are tab-separated"
                )
