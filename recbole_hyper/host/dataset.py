"""RecBole's dataset over a store of sequences: its fields, tables and counters, and its reader of all columns."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from recbole.data.dataset import Dataset, SequentialDataset
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType

from recbole_hyper.errors import ConfigError, DataError

# the column of windows with the target of every position
TARGET_LIST = "target_list"


class StoreDataset(SequentialDataset):
    """RecBole's dataset as a lazy view of a store: its tables are built when something uses them.

    A store is a :class:`recbole_hyper.data.sequences.SequenceStore`. ``inter_feat`` is the table of interactions:
    RecBole's frame or, after :meth:`restrict`, the Interaction of the training part. So counts, ``inter_matrix`` and
    ``history_item_matrix`` show a model training data only. A subclass reads the store in :meth:`read`.
    """

    # for subclasses that others wrote, whose constructor takes the configuration only
    _known_store: Any = None

    def __init__(self, config: Any, store: Any = None, item_features: Any = None) -> None:
        self._store = self._known_store if store is None else store
        self.item_features = item_features
        self._inter_feat: Any = None
        self._part: np.ndarray | None = None  # length of the training part of each row; None before the split: all
        super().__init__(config)

    def _benchmark_presets(self) -> None:
        """Do nothing: RecBole would read each row of data that come in parts as a history and its target."""

    @abstractmethod
    def read(self) -> None:
        """Set the store and ``item_features`` that the constructor did not get."""

    def _from_scratch(self) -> None:
        self._get_preset()
        self._get_field_from_config()
        self.read()
        self.user_feat = self.item_feat = None
        self.feat_name_list = ["inter_feat"]
        self.set_field_property(self.uid_field, FeatureType.TOKEN, FeatureSource.USER_ID, 1)
        self.set_field_property(self.iid_field, FeatureType.TOKEN, FeatureSource.ITEM_ID, 1)
        self.set_field_property(self.time_field, FeatureType.FLOAT, FeatureSource.INTERACTION, 1)
        self.field2id_token = {self.uid_field: self.store.user_tokens, self.iid_field: self.store.item_tokens}
        self.field2token_id = _Numbers(self.field2id_token)

    @property
    def store(self) -> Any:
        """The sequences, sorted by float64 time (RecBole sorts by float32)."""
        if self._store is None:
            raise ValueError("the data have not been read yet")
        return self._store

    @property
    def inter_feat(self) -> Any:
        """The table of interactions, in the order of the store; built at the first use."""
        if self._inter_feat is None and self._store is not None:
            self._inter_feat = self._frame() if self._part is None else self._interactions(self._part)
        return self._inter_feat

    @inter_feat.setter
    def inter_feat(self, table: Any) -> None:
        self._inter_feat = table

    def _frame(self) -> pd.DataFrame:
        store = self.store
        columns = (np.repeat(store.users, store.lengths), store.items.astype(np.int64), np.asarray(store.times))
        return pd.DataFrame(dict(zip((self.uid_field, self.iid_field, self.time_field), columns, strict=True)))

    def _interactions(self, lengths: np.ndarray) -> Interaction:
        store, index = self.store, self.store.prefix_index(lengths)
        times = store.times[index]
        columns = {
            self.uid_field: np.repeat(store.users, lengths),
            self.iid_field: store.items[index].astype(np.int64),
            # seconds since the first interaction: float32 would round Unix seconds to 64 s
            self.time_field: (times - times.min(initial=np.inf)).astype(np.float32),
        }
        return Interaction({name: torch.from_numpy(column) for name, column in columns.items()})

    def restrict(self, store: Any, lengths: np.ndarray) -> Self:
        """Return a copy with the first ``lengths[row]`` interactions of every row of ``store``."""
        for name in ("user_feat", "item_feat"):
            feature = getattr(self, name)
            if feature is not None and not isinstance(feature, Interaction):
                setattr(self, name, self._dataframe_to_interaction(feature))
        restricted = self.copy(None)
        restricted._store, restricted._part = store, np.asarray(lengths)
        restricted._list_field_properties()
        return restricted

    def trained_items(self) -> npt.NDArray[np.bool_]:
        """Return (n_items,) True for the items that occur in this part."""
        return self.store.counts(self.train_lengths) > 0

    @property
    def train_lengths(self) -> npt.NDArray[np.int64]:
        """(U,) number of interactions of each row of the store, from its start, that belong to this part."""
        return self.store.lengths if self._part is None else self._part

    def inter_matrix(self, form: str = "coo", value_field: str | None = None) -> Any:
        """Return the sparse (n_users, n_items) matrix of the interactions."""
        return Dataset.inter_matrix(self, form, value_field)  # RecBole's sequential one expects rows of prefixes

    @property
    def inter_num(self) -> int:
        """Number of interactions."""
        return int(self.train_lengths.sum())

    @property
    def item_counter(self) -> Counter:
        """Number of interactions by item id."""
        return _counter(self.store.counts(self.train_lengths))

    @property
    def user_counter(self) -> Counter:
        """Number of interactions by user id."""
        return _counter(np.bincount(self.store.users, weights=self.train_lengths).astype(np.int64))

    def _list_field_properties(self) -> None:
        suffix = self.config["LIST_SUFFIX"]
        for name, kind in ((self.iid_field, FeatureType.TOKEN_SEQ), (self.time_field, FeatureType.FLOAT_SEQ)):
            setattr(self, f"{name}_list_field", name + suffix)
            self.set_field_property(name + suffix, kind, FeatureSource.INTERACTION, self.max_item_list_len)
        self.set_field_property(self.item_list_length_field, FeatureType.TOKEN, FeatureSource.INTERACTION, 1)
        self.set_field_property(TARGET_LIST, FeatureType.TOKEN_SEQ, FeatureSource.INTERACTION, self.max_item_list_len)


class TableDataset(StoreDataset):
    """RecBole's dataset with all columns of interactions, users and items, which RecBole reads: slow and large.

    A subclass sets ``source``, a :class:`recbole_hyper.data.source.Source`, and takes the store from the tables.
    """

    source: Any

    @abstractmethod
    def take_store(self) -> None:
        """Set the store from the tables."""

    @abstractmethod
    def nothing_in(self, path: Any) -> Exception:
        """Return the error for a file without rows."""

    def _from_scratch(self) -> None:
        # columns that val_interval needs are read too
        files = self.source.load_col if self.source.val_interval else ()
        self._filters = {name for suffix in files for name in self.source.filtering(suffix)}
        try:
            Dataset._from_scratch(self)
        except (ConfigError, DataError):
            raise
        except ValueError as error:
            raise DataError(f"{self.source.folder}: {str(error).rstrip('.')}; does load_col name it?") from error
        self.take_store()

    def _load_data(self, token: str, dataset_path: str) -> None:
        path = self.source.path("inter")
        self.source.check_header()
        super()._load_data(token, dataset_path)
        if not self.source.timed:
            self.inter_feat[self.time_field] = np.arange(len(self.inter_feat), dtype=np.float64)
            self.set_field_property(self.time_field, FeatureType.FLOAT, FeatureSource.INTERACTION, 1)
        times = self.inter_feat[self.time_field].to_numpy()
        if not len(times):
            raise self.nothing_in(path)
        self.n_read = len(times)
        if len(bad := np.flatnonzero(~np.isfinite(times))):
            lines = ", ".join(str(line + 2) for line in self.inter_feat.index[bad[:5]])
            raise DataError(
                f"{path}: {len(bad)} of {len(times)} rows have no finite {self.time_field!r} (first at line "
                f"{lines}); drop these rows or add their times"
            )

    def _init_alias(self) -> None:
        ids = [name for name, kind in self.field2type.items() if kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ)]
        for key in ("alias_of_user_id", "alias_of_item_id"):
            for name in self.config[key] or ():
                if name not in ids:
                    raise DataError(f"{key} names {name!r}, not a loaded id column; these are {', '.join(ids)}")
        super()._init_alias()

    def _get_load_and_unload_col(self, source: Any) -> tuple[set[str] | None, set[str] | None]:
        loaded, unloaded = super()._get_load_and_unload_col(source)
        return loaded and loaded | self._filters, unloaded and unloaded - self._filters

    def _remove_duplication(self) -> None:
        if keep := self.config["rm_dup_inter"]:
            # RecBole's sort is not stable: it would change the order of ties
            self.inter_feat.sort_values(self.time_field, kind="stable", inplace=True)
            self.inter_feat.drop_duplicates([self.uid_field, self.iid_field], keep=keep, inplace=True)

    def _normalize(self) -> None:
        times = self.inter_feat[self.time_field].copy()
        super()._normalize()
        self.inter_feat[self.time_field] = times

    def _reset_index(self) -> None:
        if self.inter_feat.empty:
            raise self.source.nothing_left(self.source.path("inter"))
        super()._reset_index()


def _counter(counts: np.ndarray) -> Counter:
    values = np.flatnonzero(counts)
    return Counter(dict(zip(values.tolist(), counts[values].tolist(), strict=True)))


class _Numbers(dict):
    """RecBole's id of each original id, by field; built at the first use of a field."""

    def __init__(self, tokens: dict[str, np.ndarray]) -> None:
        super().__init__()
        self._tokens = tokens

    def __missing__(self, field: str) -> dict[str, int]:
        self[field] = {token: index for index, token in enumerate(self._tokens[field].tolist())}
        return self[field]

    def __contains__(self, field: object) -> bool:
        return field in self._tokens
