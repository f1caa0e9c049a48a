"""A finished run read back: its configuration, data, model, and what it recommends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.asked import histories, ids, known, whole
from recbole_hyper.evaluation.top_items import top_items
from recbole_hyper.files import read_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import make_scorer
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
    users: Iterable[str | int] | None = None,
    *,
    sequences: Iterable[Iterable[str | int]] | None = None,
    k: int = 10,
    exclude_seen: bool = True,
) -> pd.DataFrame:
    """Recommend items from a finished run, for known users (with all they did) or for any histories of item ids.

    Args:
        output_dir: folder of the run.
        users: original user ids, any iterable; None with ``sequences``.
        sequences: histories of original item ids, oldest first, any iterable of iterables.
        k: items per user.
        exclude_seen: leave out what the history holds.

    Returns:
        A row per recommendation: user_id (or the index of the sequence), position from 1, item_id, score. No rows for
        no users or no sequences.

    Raises:
        ValueError: neither or both of users and sequences, a text where a list is needed, an unknown user or item, an
            empty history, a k that is no whole number or more than there are items.
    """
    if (users is None) == (sequences is None):
        raise ValueError("give users or sequences, one of the two")
    named = None if users is None else ids("users", users)
    given = None if sequences is None else histories("sequences", sequences)
    k = whole("k", k)
    if not isinstance(exclude_seen, (bool, np.bool_)):
        raise ValueError(f"exclude_seen={exclude_seen!r}: True or False is needed")
    model, config, data = load(output_dir)
    store = data.store
    if k >= store.n_items:
        raise ValueError(f"k={k}: between 1 and {store.n_items - 1} items can be recommended")
    rows, owners = _histories_of(named, store) if named is not None else _rows_of(given or [], store)
    score, budget = make_scorer(model, config), int(config["ranking_memory_budget"])
    lists, scores = top_items(score, store, rows, owners, k=k, exclude_seen=bool(exclude_seen), memory_budget=budget)
    # an empty column of texts has the type that pandas gives one of texts
    names = np.arange(len(rows)) if named is None else np.array(named, dtype=object if named else str)
    found = pd.DataFrame(
        {
            "user_id": np.repeat(names, k),
            "position": np.tile(np.arange(1, k + 1), len(lists)),
            "item_id": store.item_tokens[lists.ravel()],
            "score": scores.ravel(),
        }
    )
    return found[lists.ravel() > 0].reset_index(drop=True)


def _histories_of(
    users: Sequence[Any], store: SequenceStore
) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int64]]:
    """Return all that each user did, and the (n,) ids of the users."""
    row_of = {store.user_tokens[user]: row for row, user in enumerate(store.users)}
    known("users", users, row_of)
    rows = np.array([row_of[str(user)] for user in users], dtype=np.int64)
    return [store.row(row) for row in rows], store.users[rows]


def _rows_of(
    sequences: Sequence[Sequence[str]], store: SequenceStore
) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int64]]:
    """Return histories of original item ids as ids of the store, and a (n,) user id of 0, nobody's, for each."""
    item_id = {token: index for index, token in enumerate(store.item_tokens[1:], 1)}  # entry 0 is padding
    known("items", (item for sequence in sequences for item in sequence), item_id)
    rows = [np.array([item_id[item] for item in sequence], dtype=np.int32) for sequence in sequences]
    return rows, np.zeros(len(rows), dtype=np.int64)
