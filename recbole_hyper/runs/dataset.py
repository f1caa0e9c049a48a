"""The data of a run: sequences, in the dataset class that its model expects."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper import registry
from recbole_hyper.config.recbole_keys import FEATURE_KEYS
from recbole_hyper.data.item_features import read_item_features
from recbole_hyper.data.reading import filtered_by_recbole, log_reading, part_numbers, read_store, require_items
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.source import Source
from recbole_hyper.data.tables.atomic import nothing_in
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.host import models
from recbole_hyper.host.dataset import StoreDataset, TableDataset
from recbole_hyper.types import Split

logger = logging.getLogger("recbole_hyper")


class SequenceDataset(StoreDataset):
    """Interactions with RecBole's field names, id maps and filters; its tables are built when something uses them.

    ``inter_feat`` is the table of interactions: RecBole's frame or, after :meth:`restrict`, the Interaction of the
    training part. So counts, ``inter_matrix`` and ``history_item_matrix`` show a model training data only. Features of
    users and items are not read, see :class:`FeatureDataset`.

    Args:
        config: configuration of the run.
        store: the sequences; None reads them from the atomic files.
        item_features: values of ``selected_features``; None reads them from the .item file if the model uses any.

    Raises:
        DataError: a column or a time is missing, a time is not finite, filtering leaves nothing or a single item, or
            ``selected_features`` cannot be used.
    """

    def read(self) -> None:
        if self._store is None:
            self._store = stored(self.config)
        names = self.config["selected_features"] if registry.parts_of(self.config.model_class) else None
        if names and self.item_features is None:
            source, standardize = Source.of(self.config), self.config["feature_standardize"]
            self.item_features = read_item_features(source, names, self.store.item_tokens, standardize=standardize)

    def build(self) -> list[SequenceDataset]:
        """Return the [train, valid, test] datasets that RecBole's unmodified loaders and trainer expect.

        A training row is a window, with inputs in ``item_id_list`` and targets in ``target_list`` (0 for none).
        Validation and test rows are RecBole's: history, length, target.
        """
        from recbole_hyper.batches.loader import BatchSettings, case_interaction, window_interaction, windows
        from recbole_hyper.protocols.base import make_split

        split, length = make_split(self.store, self.config), self.max_item_list_len
        settings = BatchSettings.of(self.config)
        fields = self.restrict(split.store, split.train_lengths)
        self._list_field_properties()
        train = window_interaction(windows(split.store, split.train_lengths, length), length, settings)
        parts = [case_interaction(cases, length, settings) for cases in (split.valid, split.test)]
        return [fields.copy(interactions) for interactions in (train, *parts)]


class FeatureDataset(TableDataset, SequenceDataset):
    """A dataset with all columns of interactions, users and items, which RecBole reads with pandas: slow and large."""

    def _from_scratch(self) -> None:
        self.source = Source.of(self.config)
        super()._from_scratch()

    def take_store(self) -> None:
        require_items(self.item_num - 1, self.source.path("inter"))
        self._store = SequenceStore.from_interactions(
            *(self.inter_feat[name].to_numpy() for name in (self.uid_field, self.iid_field, self.time_field)),
            *(self.field2id_token[name] for name in (self.uid_field, self.iid_field)),
            part_numbers(self.file_size_list) if self.source.parts else None,  # type: ignore[call-arg]
        )
        log_reading(self.source, self.n_read, self._store)

    def nothing_in(self, path: Path) -> DataError:
        return nothing_in(path)


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
    """Return the sequences of a configuration.

    RecBole reads the data if fields share ids, values or features filter, or a count has other limits than ``[n,inf)``.
    """
    require_files(config)
    source = Source.of(config)
    # histories share the items' ids anyway
    if source.aliases - ({source.list_field} if source.has_histories else set()) or (
        filtered_by_recbole(source) and not source.has_histories
    ):
        return FeatureDataset(config).store
    return read_store(source)


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
