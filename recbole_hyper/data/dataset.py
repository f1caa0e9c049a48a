"""RecBole's datasets over a :class:`SequenceStore`: views for models, made when they are looked at."""

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
from recbole_hyper.bridge import models
from recbole_hyper.config.recbole_keys import FEATURE_KEYS
from recbole_hyper.data import cache
from recbole_hyper.data.atomic import nothing_in
from recbole_hyper.data.item_features import ItemFeatures, feature_columns, read_item_features
from recbole_hyper.data.reading import filtered_by_recbole, part_numbers, read_store, require_items
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.types import Split

logger = logging.getLogger("recbole_hyper")

TARGET_LIST = "target_list"


class SequenceDataset(SequentialDataset):
    """Interactions with RecBole's field names, id maps and filters, without its tables until something asks for them.

    ``inter_feat`` is the table of interactions: RecBole's frame, or, after :meth:`restrict`, the Interaction of the
    training part, so that counts, ``inter_matrix`` and ``history_item_matrix`` tell a model about training data only.
    Features of users and items are not read: see :class:`FeatureDataset`.

    Args:
        config: configuration of the run.
        store: the sequences where they are known already; None reads the atomic files, or the cache.
        item_features: ``selected_features`` of the items, None for a model that has none; None reads the .item file.

    Raises:
        DataError: a missing column, no time, a time that is not finite, nothing left after filtering, one item only;
            ``selected_features`` that cannot be used.
    """

    # the sequences of a data set class that takes a configuration alone
    _known_store: SequenceStore | None = None

    def __init__(
        self, config: Any, store: SequenceStore | None = None, item_features: ItemFeatures | None = None
    ) -> None:
        self._store, self._given = self._known_store if store is None else store, False
        self.item_features = item_features
        self._inter_feat: Any = None
        self._part: np.ndarray | None = None  # training part of each row; None is everything, before any split
        super().__init__(config)

    def _benchmark_presets(self) -> None:
        """Nothing: of interactions that come in parts, RecBole takes each row for a history and its target."""

    def _from_scratch(self) -> None:
        self._get_preset()
        self._get_field_from_config()
        names = self.config["selected_features"] if registry.parts_of(self.config.model_class) else None
        source = Source.of(self.config)
        missing = names if self.item_features is None else None
        if missing:
            feature_columns(source, missing)  # a wrong name is an error before the interactions are read
        if self._store is None:
            self._store = stored(self.config)
        if missing:
            standardize = self.config["feature_standardize"]
            self.item_features = read_item_features(source, missing, self._store.item_tokens, standardize=standardize)
        self.user_feat = self.item_feat = None
        self.feat_name_list = ["inter_feat"]
        self.set_field_property(self.uid_field, FeatureType.TOKEN, FeatureSource.USER_ID, 1)
        self.set_field_property(self.iid_field, FeatureType.TOKEN, FeatureSource.ITEM_ID, 1)
        self.set_field_property(self.time_field, FeatureType.FLOAT, FeatureSource.INTERACTION, 1)
        self.field2id_token = {self.uid_field: self._store.user_tokens, self.iid_field: self._store.item_tokens}
        self.field2token_id = _Numbers(self.field2id_token)

    @property
    def store(self) -> SequenceStore:
        """The sequences, sorted by float64 time (RecBole sorts the float32 that it trains with)."""
        if self._store is None:
            raise ValueError("the data are not read yet")
        return self._store

    @property
    def inter_feat(self) -> Any:
        """The table of interactions, in the order of the store; made at the first use."""
        if self._inter_feat is None and self._store is not None:
            self._inter_feat = self._frame() if self._part is None else self._interactions(self._part)
        return self._inter_feat

    @inter_feat.setter
    def inter_feat(self, table: Any) -> None:
        self._inter_feat, self._given = table, table is not None

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
            # float32 seconds since the first interaction: Unix seconds would be rounded to 64 s
            self.time_field: (times - times.min(initial=np.inf)).astype(np.float32),
        }
        return Interaction({name: torch.from_numpy(column) for name, column in columns.items()})

    def restrict(self, store: SequenceStore, lengths: np.ndarray) -> SequenceDataset:
        """Return a copy whose interactions are the first ``lengths[row]`` of every row of ``store``."""
        for name in ("user_feat", "item_feat"):
            feature = getattr(self, name)
            if feature is not None and not isinstance(feature, Interaction):
                setattr(self, name, self._dataframe_to_interaction(feature))
        restricted = self.copy(None)
        restricted._store, restricted._part = store, np.asarray(lengths)
        restricted._list_field_properties()
        return restricted

    def trained_items(self) -> npt.NDArray[np.bool_]:
        """Return (n_items,) True where an interaction of this part shows an item."""
        return self.store.counts(self.train_lengths) > 0

    @property
    def train_lengths(self) -> npt.NDArray[np.int64]:
        """(U,) how many interactions of each row of the store, its first ones, belong to this part."""
        return self.store.lengths if self._part is None else self._part

    def inter_matrix(self, form: str = "coo", value_field: str | None = None) -> Any:
        """Return the sparse (n_users, n_items) matrix of the interactions (no prefix rows need undoing)."""
        return Dataset.inter_matrix(self, form, value_field)

    @property
    def inter_num(self) -> int:
        """Number of interactions."""
        return len(self.inter_feat) if self._given else int(self.train_lengths.sum())

    @property
    def item_counter(self) -> Counter:
        """Number of interactions by item id."""
        return Dataset.item_counter.fget(self) if self._given else _counter(self.store.counts(self.train_lengths))

    @property
    def user_counter(self) -> Counter:
        """Number of interactions by user id."""
        if self._given:
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
        """Return RecBole's [train, valid, test] datasets for its own, unmodified loaders and trainer.

        A training row is a window: inputs in ``item_id_list``, targets in ``target_list`` (0 where there is none).
        Validation and test rows are those of RecBole: history, its length, target.
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
    """The same with every column of interactions, users and items, read by RecBole through pandas: slow and larger."""

    refuses_faulty_lines = True

    def _from_scratch(self) -> None:
        self.source = Source.of(self.config)
        # columns that are read for val_interval alone
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
            raise DataError(f"{dataset_path}: the atomic files cannot be read: {error}") from error
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
                f"{lines}); drop these rows or give them a time"
            )

    def _init_alias(self) -> None:
        ids = [name for name, kind in self.field2type.items() if kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ)]
        for key in ("alias_of_user_id", "alias_of_item_id"):
            names = self.config[key] or []
            if not isinstance(names, list):
                raise ConfigError(f"{key}={names!r}: a list of columns is expected")
            for name in names:
                if name not in ids:
                    raise DataError(f"{key} names {name!r}, no loaded column of ids; these are {', '.join(ids)}")
        super()._init_alias()

    def _get_load_and_unload_col(self, source: Any) -> tuple[set[str] | None, set[str] | None]:
        loaded, left_out = super()._get_load_and_unload_col(source)
        # what val_interval looks at is read for it, and dropped when it has done so
        return loaded and loaded | self._only_filters, left_out and left_out - self._only_filters

    def _filter_by_field_value(self) -> None:
        super()._filter_by_field_value()
        for name in self._only_filters:
            for feature in self.field2feats(name):
                self._del_col(feature, name)
        # RecBole has listed the fields to number before
        fields = self._rest_fields  # type: ignore[has-type]
        self._rest_fields = fields[~np.isin(fields, list(self._only_filters))]

    def _remove_duplication(self) -> None:
        if keep := self.config["rm_dup_inter"]:
            # RecBole's sort is not stable, so that ties would not stay in file order
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
    """RecBole's ids by original id for each field, made at the first use of a field."""

    def __init__(self, tokens: dict[str, np.ndarray]) -> None:
        super().__init__()
        self._tokens = tokens

    def __missing__(self, field: str) -> dict[str, int]:
        self[field] = {token: number for number, token in enumerate(self._tokens[field].tolist())}
        return self[field]

    def __contains__(self, field: object) -> bool:
        return field in self._tokens


def read_dataset(config: Any) -> SequenceDataset:
    """Return the data of a run: by columns, or by RecBole where its model may ask for features of what is loaded."""
    require_files(config)
    if models.dataset_of(config.model_class):
        return dataset_of_model(config)
    wants = not issubclass(config.model_class, registry.Model)
    feature_keys = [key for key in FEATURE_KEYS if config[key]]
    source = Source.of(config)
    features = wants and (feature_keys or source.has_features) and not source.has_histories
    return FeatureDataset(config) if features else SequenceDataset(config)


def dataset_of_model(config: Any, store: SequenceStore | None = None) -> SequenceDataset:
    """Return the data of a run over a known ``store``, or from the files, in the data set class of the model.

    A class ``XDataset`` beside others' model ``X`` sees RecBole's tables and filters; the protocol splits, which a
    warning says.
    """
    own = models.dataset_of(config.model_class)
    if own is None:
        return SequenceDataset(config, store)
    if replaced := models.overridden(own):
        logger.warning(
            "%s has its own %s, in whose place the protocol splits the data and makes the histories; RecBole's own "
            "functions after 'import recbole_hyper' run it as it is", own.__name__, " and ".join(replaced),
        )  # fmt: skip
    base = FeatureDataset if store is None else SequenceDataset
    cls = type(own.__name__, (own, base), {"_known_store": store, **{name: getattr(base, name) for name in replaced}})
    return cls(config)


def stored(config: Any) -> SequenceStore:
    """Return the sequences that a configuration names, from the cache where ``use_cache`` allows it.

    Where fields share ids, features filter, or a number of interactions has an upper limit, RecBole reads the data.
    """
    require_files(config)
    source = Source.of(config)
    aliases = {*(config["alias_of_user_id"] or ()), *(config["alias_of_item_id"] or ())}
    if source.has_histories:  # which are numbered as items anyway
        aliases -= {source.list_field}
    if aliases or (filtered_by_recbole(source) and not source.has_histories):
        return FeatureDataset(config).store
    return cache.cached(source, read_store) if config["use_cache"] else read_store(source)


def require_files(config: Any) -> None:
    """Raise ConfigError where the interactions of ``config`` were given as a frame, and so are in no file."""
    if config["interactions"] == "given":
        raise ConfigError(
            "interactions: given, but these interactions were given in Python and are in no file; give them again, "
            "as in run(..., interactions=frame)"
        )


def describe(split: Split) -> dict[str, Any]:
    """Return the counts that every result carries."""
    store = split.store
    return {
        # a protocol may have dropped users and items, which keep their numbers
        "n_users": len(np.unique(store.users[store.lengths > 0])),
        "n_items": int((store.counts() > 0).sum()),
        "n_interactions": len(store.items),
        "n_train_interactions": int(split.train_lengths.sum()),
        "n_valid_cases": len(split.valid),
        "n_test_cases": len(split.test),
        "data_fingerprint": store.fingerprint(),
    }
