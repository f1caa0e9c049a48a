"""What RecBole's ``create_dataset`` and ``data_preparation`` return for a model of this package."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from recbole_hyper.batches.loader import BatchSettings, LoaderSettings, WindowLoader
from recbole_hyper.config import ConfigError
from recbole_hyper.models._linear import OneStep
from recbole_hyper.protocols.base import make_split
from recbole_hyper.registry import parts_of
from recbole_hyper.runs.dataset import SequenceDataset, read_dataset
from recbole_hyper.runs.ready import log_split, require_times, resolve_auto
from recbole_hyper.runs.run import evaluations
from recbole_hyper.threads import use_threads
from recbole_hyper.training.validation import Evaluation
from recbole_hyper.types import Split


def create_dataset(config: Any) -> SequenceDataset:
    """Return the filtered data set, as ``recbole_hyper.run`` reads it."""
    use_threads(config["n_threads"])
    return read_dataset(config)


def data_preparation(config: Any, dataset: Any) -> tuple[TrainingData, Evaluation, Evaluation]:
    """Split ``dataset`` by ``eval_args``, and resolve the ``auto`` settings in ``config``.

    ConfigError if :func:`create_dataset` did not make ``dataset``, or if the model is too large for the
    memory. ProtocolError for a split that cannot be made.
    """
    if not isinstance(dataset, SequenceDataset):
        raise ConfigError(
            f"{config['model']} needs the dataset that create_dataset(config) returns, not a {type(dataset).__name__}"
        )
    split = make_split(dataset.store, config)
    require_times(config)
    log_split(split)
    resolve_auto(config, dataset, split)
    training = dataset.restrict(split.store, split.train_lengths)
    return TrainingData(config, training, split), *evaluations(split, training)


class TrainingData:
    """The training part, as a training loader for RecBole's scripts; a model is built from its ``dataset``."""

    def __init__(self, config: Any, training: SequenceDataset, split: Split) -> None:
        self.config, self.split = config, split
        self.dataset = self._dataset = training

    def batches(self, model: Any) -> Any:
        """Return the batches of an epoch in the form that ``model`` trains on."""
        return model.training_loader(self.dataset, self.split.store, self.split.train_lengths, self.config)

    @cached_property
    def _loader(self) -> Any:
        if not parts_of(self.config.model_class):
            return OneStep(self.dataset)
        settings = LoaderSettings.of(self.config), BatchSettings.of(self.config)
        return WindowLoader(self.dataset, self.split.store, self.split.train_lengths, *settings)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)
