"""A finished run read back: its configuration, data, model, and what it recommends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.evaluation.top_items import top_items
from recbole_hyper.files import read_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.training.build import build, read_data
from recbole_hyper.training.checkpoint import WEIGHTS, CheckpointError, load_weights
from recbole_hyper.training.run_folder import REFIT, RESULT, read_begun
from recbole_hyper.types import Split


def load(output_dir: str | Path) -> tuple[HyperRecommender, Config, SequenceDataset]:
    """Load a finished run: (model with its tested weights in evaluation mode, configuration, dataset).

    Raises:
        ConfigError: no finished run there, or a model of RecBole that keeps more than tensors.
        CheckpointError: the weights do not fit the data that are there now.
    """
    config = Config(config_dict=read_run(output_dir))
    data, split = read_finished(config)
    model, _ = load_model(config, data, split)
    return model, config, data


def read_run(output_dir: str | Path) -> dict[str, Any]:
    """Return the configuration that a run wrote into its folder, to be read and not to be continued.

    Raises:
        ConfigError: no run there, or a config.yaml that is none of a run.
    """
    folder = Path(output_dir)
    return {**read_begun(folder), "output_dir": str(folder), "resume": False}


def read_finished(config: Config) -> tuple[SequenceDataset, Split]:
    """Read data and split of a finished run; ConfigError for a model of RecBole, which keeps more than tensors."""
    if not issubclass(config.model_class, HyperRecommender):
        raise ConfigError(f"{config['model']}: only models of this package can be loaded again")
    return read_data(config)


def load_model(config: Config, data: SequenceDataset, split: Split) -> tuple[HyperRecommender, bool]:
    """Load the tested weights of the run in ``output_dir``.

    Returns:
        the model in evaluation mode, and whether it was refit on train + validation.

    Raises:
        CheckpointError: weights that are missing, damaged, of other data, or that a resume has replaced since the
            result was written.
    """
    folder = Path(config["output_dir"])
    refit = folder / REFIT / WEIGHTS
    refitted = split.refit_lengths is not None and refit.is_file()
    model, _, _ = build(config, data, split, split.refit_lengths if refitted else split.train_lengths)
    path = refit if refitted else folder / WEIGHTS
    epoch = load_weights(path, model, split.store.fingerprint()).get("epoch")
    result = read_json(folder / RESULT) if (folder / RESULT).is_file() else {}
    tested = result.get("refit_epochs", 0) - 1 if refitted else result.get("best_epoch")
    if result and epoch != tested:
        raise CheckpointError(
            f"{path} is of epoch {epoch}, but {folder / RESULT} tested epoch {tested}: a resume was stopped here; end "
            f"it with 'recbole-hyper run --resume=True --output_dir={folder}'"
        )
    return model.eval(), refitted


def recommend(
    output_dir: str | Path,
    users: Sequence[str] | None = None,
    *,
    sequences: Sequence[Sequence[str]] | None = None,
    k: int = 10,
    exclude_seen: bool = True,
) -> pd.DataFrame:
    """Recommend items from a finished run, for known users (with all they did) or for any histories of item ids.

    Args:
        output_dir: folder of the run.
        users: original user ids; None with ``sequences``.
        sequences: histories of original item ids, oldest first.
        k: items per user.
        exclude_seen: leave out what the history holds.

    Returns:
        A row per recommendation: user_id (or the index of the sequence), position from 1, item_id, score.

    Raises:
        ValueError: neither or both of users and sequences, an unknown user or item, an empty history.
    """
    if isinstance(users, str):
        raise ValueError(f"users={users!r} is one text; give a list of user ids")
    if (users is None) == (sequences is None):
        raise ValueError("give users or sequences, one of the two")
    model, config, data = load(output_dir)
    store = data.store
    item_id = {token: index for index, token in enumerate(store.item_tokens)}
    if users is not None:
        row_of = {store.user_tokens[user]: row for row, user in enumerate(store.users)}
        unknown = [user for user in users if str(user) not in row_of]
        if unknown:
            raise ValueError(f"{len(unknown)} users are not in the data (first: {unknown[0]!r})")
        known = np.array([row_of[str(user)] for user in users])
        histories, ids = [store.row(row) for row in known], store.users[known]
        names: Sequence[Any] = list(users)
    else:
        assert sequences is not None
        missing = [item for sequence in sequences for item in sequence if str(item) not in item_id]
        if missing:
            raise ValueError(f"{len(missing)} items are not in the data (first: {missing[0]!r})")
        histories = [np.array([item_id[str(item)] for item in sequence]) for sequence in sequences]
        names, ids = range(len(histories)), np.zeros(len(histories), dtype=np.int64)
    if any(not len(history) for history in histories):
        raise ValueError("every history needs at least one item")
    if not 1 <= k < store.n_items:
        raise ValueError(f"k={k}: between 1 and {store.n_items - 1} items can be recommended")
    if not histories:
        return pd.DataFrame(columns=["user_id", "position", "item_id", "score"])
    lists, scores = top_items(model, config, store, histories, ids, k=k, exclude_seen=exclude_seen)
    found = pd.DataFrame(
        {
            "user_id": np.repeat(np.array(names, dtype=object if users is not None else int), k),
            "position": np.tile(np.arange(1, k + 1), len(lists)),
            "item_id": store.item_tokens[lists.ravel()],
            "score": scores.ravel(),
        }
    )
    return found[lists.ravel() > 0].reset_index(drop=True)
