"""RecBole's dataset, read once into a :class:`SequenceStore`: the only reader of its fields."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.data.dataset import Dataset, SequentialDataset
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType

from recbole_hyper.data.atomic import DataError, header
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Split

TARGET_LIST = "target_list"


class SequenceDataset(SequentialDataset):
    """Atomic files with RecBole's field names, id maps and filters, without its row per prefix.

    ``inter_feat`` stays the table of interactions; :meth:`restrict` cuts it to the training part, so that counts,
    ``inter_matrix`` and ``history_item_matrix`` tell a model about training data only.

    Raises:
        DataError: a missing column, no time, a time that is not finite, nothing left after filtering, one item only.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._store: SequenceStore | None = None
        if self.item_num < 3:
            raise DataError(f"{self._file}: {self.item_num - 1} item is left after filtering; ranking needs at least 2")

    @property
    def _file(self) -> Path:
        return Path(self.dataset_path) / f"{self.dataset_name}.inter"

    def _load_data(self, token: str, dataset_path: str) -> None:
        self._check_header()
        try:
            super()._load_data(token, dataset_path)
        except DataError:
            raise
        except ValueError as error:
            raise DataError(f"{dataset_path}: the atomic files cannot be read: {error}") from error
        times = self.inter_feat[self.time_field].to_numpy()
        if not len(times):
            raise DataError(f"{self._file} holds no interactions, only a header; prepare the data set again")
        bad = np.flatnonzero(~np.isfinite(times))
        if len(bad):
            lines = ", ".join(str(line + 2) for line in self.inter_feat.index[bad[:5]])
            raise DataError(
                f"{self._file}: {len(bad)} of {len(times)} rows have no finite {self.time_field!r} "
                f"(first at line {lines}); drop these rows or give them a time"
            )

    def _check_header(self) -> None:
        if self.time_field is None or self.uid_field is None:
            raise DataError("USER_ID_FIELD, ITEM_ID_FIELD and TIME_FIELD must all name a column")
        separator = self.config["field_separator"]
        entries = header(self._file, separator, self.config["encoding"])
        types = dict(entry.partition(":")[::2] for entry in entries)
        columns = list(types)
        loaded = self.config["load_col"].get("inter", [])
        for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD"):
            field = self.config[key]
            if field not in columns:
                near = difflib.get_close_matches(field, columns, n=1)
                raise DataError(
                    f"{self._file} has no column {field!r} ({key}). Its header is {separator.join(entries)!r}, "
                    f"columns: {', '.join(columns)}. "
                    + (f"Did you mean --{key}={near[0]}? " if near else "")
                    + "Columns are tab-separated and named 'name:type' (token, float, token_seq, float_seq)"
                )
            if loaded != "*" and field not in loaded:
                raise DataError(f"column {field!r} ({key}) is not loaded: add it to load_col inter, now {loaded}")
            wanted = "float" if key == "TIME_FIELD" else "token"
            if types[field] and types[field] != wanted:
                raise DataError(
                    f"{self._file}: column {field!r} ({key}) is of type {types[field]!r} and must be {wanted!r}; "
                    f"write {field}:{wanted} in the header, whose columns are tab-separated"
                )

    def _remove_duplication(self) -> None:
        keep = self.config["rm_dup_inter"]
        if keep is None:
            return
        # RecBole's sort is not stable, so that ties would not stay in file order
        self.inter_feat.sort_values(self.time_field, kind="stable", inplace=True)
        self.inter_feat.drop_duplicates([self.uid_field, self.iid_field], keep=keep, inplace=True)

    def _normalize(self) -> None:
        times = self.inter_feat[self.time_field].copy()
        super()._normalize()
        self.inter_feat[self.time_field] = times

    def _reset_index(self) -> None:
        if self.inter_feat.empty:
            raise DataError(
                f"{self._file}: no interaction is left after filtering (user_inter_num_interval="
                f"{self.config['user_inter_num_interval']!r}, item_inter_num_interval="
                f"{self.config['item_inter_num_interval']!r}, val_interval={self.config['val_interval']!r})"
            )
        super()._reset_index()

    @property
    def store(self) -> SequenceStore:
        """The sequences, sorted by float64 time (RecBole sorts the float32 that it trains with)."""
        if self._store is None:
            frame = self.inter_feat
            self._store = SequenceStore.from_interactions(
                frame[self.uid_field].to_numpy(),
                frame[self.iid_field].to_numpy(),
                frame[self.time_field].to_numpy(),
                self.field2id_token[self.uid_field],
                self.field2id_token[self.iid_field],
            )
        return self._store

    def restrict(self, store: SequenceStore, lengths: np.ndarray) -> SequenceDataset:
        """Return a copy whose interactions are the first ``lengths[row]`` of every row of ``store``."""
        index = store.prefix_index(lengths)
        times = store.times[index]
        interactions = Interaction(
            {
                self.uid_field: torch.from_numpy(np.repeat(store.users, lengths)),
                self.iid_field: torch.from_numpy(store.items[index].astype(np.int64)),
                # float32 seconds since the first interaction: Unix seconds would be rounded to 64 s
                self.time_field: torch.from_numpy((times - times.min(initial=np.inf)).astype(np.float32)),
            }
        )
        for name in ("user_feat", "item_feat"):
            feature = getattr(self, name)
            if feature is not None and not isinstance(feature, Interaction):
                setattr(self, name, self._dataframe_to_interaction(feature))
        restricted = self.copy(interactions)
        restricted._store = store
        restricted._list_field_properties()
        return restricted

    def inter_matrix(self, form: str = "coo", value_field: str | None = None) -> Any:
        """Return the sparse (n_users, n_items) matrix of the interactions (no prefix rows need undoing)."""
        return Dataset.inter_matrix(self, form, value_field)

    def _list_field_properties(self) -> None:
        self._aug_presets()
        self.set_field_property(TARGET_LIST, FeatureType.TOKEN_SEQ, FeatureSource.INTERACTION, self.max_item_list_len)

    def build(self) -> list[SequenceDataset]:
        """Return RecBole's [train, valid, test] datasets for its own, unmodified loaders and trainer.

        A training row is a window of at most MAX_ITEM_LIST_LENGTH targets: inputs in ``item_id_list``, targets in
        ``target_list`` (0 where there is none). Validation and test rows are those of RecBole: the history in
        ``item_id_list``, its length in ``item_length``, the target in ``item_id``.
        """
        from recbole_hyper.data.loader import case_interaction, window_interaction, windows
        from recbole_hyper.protocols.base import make_split

        split = make_split(self.store, self.config)
        fields = self.restrict(split.store, split.train_lengths)
        self._list_field_properties()
        length = self.max_item_list_len
        train = window_interaction(split.store, windows(split.train_lengths, length, "all"), length, self.config)
        parts = [case_interaction(cases, length, self.config) for cases in (split.valid, split.test)]
        return [fields.copy(interactions) for interactions in (train, *parts)]


def describe(split: Split) -> dict[str, Any]:
    """Return the counts that every result carries."""
    store = split.store
    return {
        # a protocol may have dropped users and items, which keep their numbers
        "n_users": int((store.lengths > 0).sum()),
        "n_items": int((np.bincount(store.items, minlength=store.n_items) > 0).sum()),
        "n_interactions": len(store.items),
        "n_train_interactions": int(split.train_lengths.sum()),
        "n_valid_cases": len(split.valid),
        "n_test_cases": len(split.test),
        "data_fingerprint": store.fingerprint(),
    }
