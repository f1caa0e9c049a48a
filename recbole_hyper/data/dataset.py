"""RecBole's datasets as lazy views of a :class:`SequenceStore`."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from recbole.data.dataset import Dataset, SequentialDataset
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType

from recbole_hyper import registry
from recbole_hyper.config.recbole_keys import FEATURE_KEYS
from recbole_hyper.data import cache
from recbole_hyper.data.atomic import nothing_in
from recbole_hyper.data.item_features import ItemFeatures, feature_columns, read_item_features
from recbole_hyper.data.reading import filtered_by_recbole, part_numbers, read_store, require_items
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.host import models
from recbole_hyper.types import Split

logger = logging.getLogger("recbole_hyper")

TARGET_LIST = "target_list"


class SequenceDataset(SequentialDataset):
    """Interactions with RecBole's field names, id maps and filters; its tables are built when something uses them.

    ``inter_feat`` is the table of interactions: RecBole's frame or, after :meth:`restrict`, the Interaction of the
    training part. So counts, ``inter_matrix`` and ``history_item_matrix`` show a model training data only. Features of
    users and items are not read, see :class:`FeatureDataset`.

    Args:
        config: configuration of the run.
        store: the sequences; None reads them from the cache or the atomic files.
        item_features: values of ``selected_features``; None reads them from the .item file if the model uses any.

    Raises:
        DataError: a column or a time is missing, a time is not finite, filtering leaves nothing or a single item, or
            ``selected_features`` cannot be used.
    """

    # for subclasses that others wrote, whose constructor takes the configuration only
    _known_store: SequenceStore | None = None

    def __init__(
        self, config: Any, store: SequenceStore | None = None, item_features: ItemFeatures | None = None
    ) -> None:
        self._store, self._table_was_set = self._known_store if store is None else store, False
        self.item_features = item_features
        self._inter_feat: Any = None
        self._part: np.ndarray | None = None  # length of the training part of each row; None before the split: all
        super().__init__(config)

    def _benchmark_presets(self) -> None:
        """Do nothing: RecBole would read each row of data that come in parts as a history and its target."""

    def _from_scratch(self) -> None:
        self._get_preset()
        self._get_field_from_config()
        names = self.config["selected_features"] if registry.parts_of(self.config.model_class) else None
        source = Source.of(self.config)
        unread = names if self.item_features is None else None
        if unread:
            feature_columns(source, unread)  # report a wrong name before the interactions are read
        if self._store is None:
            self._store = stored(self.config)
        if unread:
            standardize = self.config["feature_standardize"]
            self.item_features = read_item_features(source, unread, self._store.item_tokens, standardize=standardize)
        self.user_feat = self.item_feat = None
        self.feat_name_list = ["inter_feat"]
        self.set_field_property(self.uid_field, FeatureType.TOKEN, FeatureSource.USER_ID, 1)
        self.set_field_property(self.iid_field, FeatureType.TOKEN, FeatureSource.ITEM_ID, 1)
        self.set_field_property(self.time_field, FeatureType.FLOAT, FeatureSource.INTERACTION, 1)
        self.field2id_token = {self.uid_field: self._store.user_tokens, self.iid_field: self._store.item_tokens}
        self.field2token_id = _Numbers(self.field2id_token)

    @property
    def store(self) -> SequenceStore:
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
        self._inter_feat, self._table_was_set = table, table is not None

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

    def restrict(self, store: SequenceStore, lengths: np.ndarray) -> SequenceDataset:
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
        return len(self.inter_feat) if self._table_was_set else int(self.train_lengths.sum())

    @property
    def item_counter(self) -> Counter:
        """Number of interactions by item id."""
        if self._table_was_set:
            return Dataset.item_counter.fget(self)
        return _counter(self.store.counts(self.train_lengths))

    @property
    def user_counter(self) -> Counter:
        """Number of interactions by user id."""
        if self._table_was_set:
            return Dataset.user_counter.fget(self)
        return _counter(np.bincount(self.store.users, weights=self.train_lengths).astype(np.int64))

    def _list_field_properties(self) -> None:
        suffix = self.config["LIST_SUFFIX"]
        for name, kind in ((self.iid_field, FeatureType.TOKEN_SEQ), (self.time_field, FeatureType.FLOAT_SEQ)):
            setattr(self, f"{name}_list_field", name + suffix)
            self.set_field_property(name + suffix, kind, FeatureSource.INTERACTION, self.max_item_list_len)
        self.set_field_property(self.item_list_length_field, FeatureType.TOKEN, FeatureSource.INTERACTION, 1)
        self.set_field_property(TARGET_LIST, FeatureType.TOKEN_SEQ, FeatureSource.INTERACTION, self.max_item_list_len)

    def build(self) -> list[SequenceDataset]:
        """Return the [train, valid, test] datasets that RecBole's unmodified loaders and trainer expect.

        A training row is a window, with inputs in ``item_id_list`` and targets in ``target_list`` (0 for none).
        Validation and test rows are RecBole's: history, length, target.
        """
        from recbole_hyper.data.loader import case_interaction, window_interaction, windows
        from recbole_hyper.protocols.base import make_split

        split, length = make_split(self.store, self.config), self.max_item_list_len
        fields = self.restrict(split.store, split.train_lengths)
        self._list_field_properties()
        train = window_interaction(windows(split.store, split.train_lengths, length), length, self.config)
        parts = [case_interaction(cases, length, self.config) for cases in (split.valid, split.test)]
        return [fields.copy(interactions) for interactions in (train, *parts)]


class FeatureDataset(SequenceDataset):
    """A dataset with all columns of interactions, users and items, which RecBole reads with pandas: slow and large."""

    refuses_faulty_lines = True

    def _from_scratch(self) -> None:
        self.source = Source.of(self.config)
        # columns that only val_interval needs
        files = self.source.load_col if self.source.val_interval else ()
        filtering = {name for suffix in files for name in self.source.filtering(suffix)}
        self._only_filters = filtering - {name for suffix in files for name in self.source.columns(suffix)}
        Dataset._from_scratch(self)
        require_items(self.item_num - 1, self.source.path("inter"))
        self._store = SequenceStore.from_interactions(
            *(self.inter_feat[name].to_numpy() for name in (self.uid_field, self.iid_field, self.time_field)),
            *(self.field2id_token[name] for name in (self.uid_field, self.iid_field)),
            part_numbers(self.file_size_list) if self.source.parts else None,  # type: ignore[call-arg]
        )

    def _load_data(self, token: str, dataset_path: str) -> None:
        path = self.source.path("inter")
        self.source.check_header()
        try:
            super()._load_data(token, dataset_path)
        except DataError:
            raise
        except ValueError as error:
            raise DataError(f"{dataset_path}: cannot read the atomic files: {error}") from error
        for feature in (self.inter_feat, self.user_feat, self.item_feat):
            for name in self.source.escaped_columns & {*(() if feature is None else feature)}:
                self.source.restore(feature, name)  # type: ignore[arg-type]
        if not self.source.timed:
            self.inter_feat[self.time_field] = np.arange(len(self.inter_feat), dtype=np.float64)
            self.set_field_property(self.time_field, FeatureType.FLOAT, FeatureSource.INTERACTION, 1)
        times = self.inter_feat[self.time_field].to_numpy()
        if not len(times):
            raise nothing_in(path)
        if len(bad := np.flatnonzero(~np.isfinite(times))):
            lines = ", ".join(str(line + 2) for line in self.inter_feat.index[bad[:5]])
            raise DataError(
                f"{path}: {len(bad)} of {len(times)} rows have no finite {self.time_field!r} (first at line "
                f"{lines}); drop these rows or add their times"
            )

    def _init_alias(self) -> None:
        ids = [name for name, kind in self.field2type.items() if kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ)]
        for key in ("alias_of_user_id", "alias_of_item_id"):
            names = self.config[key] or []
            if not isinstance(names, list):
                raise ConfigError(f"{key}={names!r} must be a list of columns")
            for name in names:
                if name not in ids:
                    raise DataError(f"{key} names {name!r}, not a loaded id column; these are {', '.join(ids)}")
        super()._init_alias()

    def _get_load_and_unload_col(self, source: Any) -> tuple[set[str] | None, set[str] | None]:
        loaded, unloaded = super()._get_load_and_unload_col(source)
        # columns for val_interval are read, and dropped after filtering
        return loaded and loaded | self._only_filters, unloaded and unloaded - self._only_filters

    def _filter_by_field_value(self) -> None:
        super()._filter_by_field_value()
        for name in self._only_filters:
            for feature in self.field2feats(name):
                self._del_col(feature, name)
        # RecBole listed the fields with ids earlier
        fields = self._rest_fields  # type: ignore[has-type]
        self._rest_fields = fields[~np.isin(fields, list(self._only_filters))]

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


def read_dataset(config: Any) -> SequenceDataset:
    """Return the data of a run; RecBole reads them if they have features that a model of RecBole may use."""
    require_files(config)
    if models.dataset_of(config.model_class):
        return dataset_of_model(config)
    source = Source.of(config)
    may_use_features = config.model_class.origin != "own" and not source.has_histories
    has_features = any(config[key] for key in FEATURE_KEYS) or source.has_features
    return FeatureDataset(config) if may_use_features and has_features else SequenceDataset(config)


def dataset_of_model(config: Any, store: SequenceStore | None = None) -> SequenceDataset:
    """Return the data of a run in the dataset class of its model, from ``store`` or, if None, from the files.

    A class ``XDataset`` beside a third-party model ``X`` sees RecBole's tables and filters. If it has its own split, a
    warning says that the protocol replaces that.
    """
    model_dataset = models.dataset_of(config.model_class)
    if model_dataset is None:
        return SequenceDataset(config, store)
    if replaced := models.overridden(model_dataset):
        logger.warning(
            "%s has its own %s, which the protocol replaces: it splits the data and builds the histories. To use them, "
            "import recbole_hyper and call RecBole's functions", model_dataset.__name__, " and ".join(replaced),
        )  # fmt: skip
    base = FeatureDataset if store is None else SequenceDataset
    members = {"_known_store": store, **{name: getattr(base, name) for name in replaced}}
    return type(model_dataset.__name__, (model_dataset, base), members)(config)


def stored(config: Any) -> SequenceStore:
    """Return the sequences of a configuration, from the cache if ``use_cache`` is set.

    RecBole reads the data if fields share ids, features filter, or the number of interactions has an upper limit.
    """
    require_files(config)
    source = Source.of(config)
    aliases = {*(config["alias_of_user_id"] or ()), *(config["alias_of_item_id"] or ())}
    if source.has_histories:  # histories share the items' ids anyway
        aliases -= {source.list_field}
    if aliases or (filtered_by_recbole(source) and not source.has_histories):
        return FeatureDataset(config).store
    return cache.cached(source, read_store) if config["use_cache"] else read_store(source)


def require_files(config: Any) -> None:
    """Raise ConfigError if the interactions came from a frame: no file has them."""
    if config["interactions"] == "given":
        raise ConfigError(
            "interactions: given means that the interactions came from a Python frame, not from files; pass the frame "
            "again, as in run(..., interactions=frame)"
        )


def describe(split: Split) -> dict[str, Any]:
    """Return the counts that every result carries."""
    store = split.store
    return {
        # a protocol may have dropped users and items without renumbering the others
        "n_users": len(np.unique(store.users[store.lengths > 0])),
        "n_items": int((store.counts() > 0).sum()),
        "n_interactions": len(store.items),
        "n_train_interactions": int(split.train_lengths.sum()),
        "n_valid_cases": len(split.valid),
        "n_test_cases": len(split.test),
        "data_fingerprint": store.fingerprint(),
    }
