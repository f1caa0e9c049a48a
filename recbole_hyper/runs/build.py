"""Build data and split from a configuration, and a model with its training batches from those."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.errors import ConfigError
from recbole_hyper.host.models import one_line, training_loader
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.random_numbers import OwnDraws, seeded
from recbole_hyper.threads import PROCESS_LOCK
from recbole_hyper.types import Split

if TYPE_CHECKING:
    from recbole_hyper.batches.loader import PrefixLoader
    from recbole_hyper.config import Config
    from recbole_hyper.host.dataset import StoreDataset
    from recbole_hyper.runs.dataset import SequenceDataset


def read_data(config: Config) -> tuple[SequenceDataset, Split]:
    """Read the atomic files and split them."""
    from recbole_hyper.protocols.base import make_split
    from recbole_hyper.runs.dataset import read_dataset

    data = read_dataset(config)
    return data, make_split(data.store, config)


def reader_of_store(store: SequenceStore) -> Callable[[Config], tuple[SequenceDataset, Split]]:
    """Return a :func:`read_data` for sequences that are already in memory."""
    from recbole_hyper.protocols.base import make_split
    from recbole_hyper.runs.dataset import dataset_of_model

    return lambda config: (dataset_of_model(config, store), make_split(store, config))


def build(config: Config, data: StoreDataset, split: Split, lengths: Any) -> tuple[Any, Any, StoreDataset]:
    """Return (model, training loader, dataset) on the first ``lengths`` of each row, the training part."""
    training = data.restrict(split.store, lengths)
    if _has_prefixes(config.model_class):
        loader = _prefixes(config, training, split.store, lengths)
        return _of_recbole(config, loader.view()), loader, training
    if issubclass(config.model_class, HyperRecommender):
        config.model_class.require_room(config, split.store.n_items)
    if not issubclass(config.model_class, OwnModel):
        return _of_recbole(config, training), training_loader(config, training), training
    model = config.model_class(config, training).to(config["device"])
    if isinstance(model, HyperRecommender) and config["compile"]:
        model.encoder.compile(dynamic=True)
    return model, model.training_loader(training, split.store, lengths, config), training


def _of_recbole(config: Config, dataset: Any) -> Any:
    """Return a new model of RecBole or of a third party; ConfigError for any error in its code."""
    if config["MODEL_TYPE"].name not in ("SEQUENTIAL", "GENERAL", "TRADITIONAL"):
        raise ConfigError(f"{config['model']}: only sequential and general models of RecBole run under these protocols")
    # a model that turns warnings into errors, or gradients off, does so for itself
    with one_line(config, "while it was built"), warnings.catch_warnings(), torch.enable_grad():
        return config.model_class(config, dataset).to(config["device"])


def build_model(config: Config, data: StoreDataset, store: SequenceStore, lengths: Any) -> Any:
    """Return the model of :func:`build` without loader; its random draws do not affect a run in another thread."""
    training, seed = data.restrict(store, lengths), int(config["seed"])
    if config.model_class.origin == "own":
        with OwnDraws(seed):
            return config.model_class(config, training).to(config["device"])
    # RecBole's models may draw from the generators of numpy and Python, which belong to the process
    with PROCESS_LOCK, seeded(seed):
        view = _prefixes(config, training, store, lengths).view() if _has_prefixes(config.model_class) else training
        return _of_recbole(config, view)


def _has_prefixes(model_class: Any) -> bool:
    return model_class.type.name == "SEQUENTIAL" and model_class.origin != "own"


def _prefixes(config: Any, training: Any, store: SequenceStore, lengths: Any) -> PrefixLoader:
    from recbole_hyper.batches.loader import BatchSettings, LoaderSettings, PrefixLoader

    return PrefixLoader(training, store, lengths, LoaderSettings.of(config), BatchSettings.of(config))
