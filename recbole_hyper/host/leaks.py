"""Checks that the scores of a RecBole model do not depend on the target, which RecBole passes to the model."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.utils import ModelType
from torch import Tensor

from recbole_hyper.errors import ConfigError
from recbole_hyper.random_numbers import seeded

logger = logging.getLogger("recbole_hyper")

ROWS = 32  # cases that the check ranks
_ROUNDING = 1e-4  # rounding may differ between batches
HONEST = "scores depend neither on the target nor on other rows"


class LeakError(ConfigError):
    """The scores of a model depend on the target or on other rows; the message names the columns."""


def check(model: Any, config: Any, cases: Any, batch_of: Callable[[Any], Interaction]) -> str:
    """Rank some ``cases`` with other targets and in other batches; return the finding, or "" before a one-step fit.

    ``batch_of`` makes a batch of cases. If the scores change, a third-party model raises LeakError. RecBole's own gets
    a warning: the ranking here hides the target anyway. ConfigError if a third-party model cannot rank all items, or
    reads a column that batches do not have.
    """
    try:
        return _check_target(model, config, cases, batch_of)
    except LeakError as leak:
        if type(model).origin == "third":
            raise
        logger.warning("%s", leak)
        return str(leak)


def _check_target(model: Any, config: Any, cases: Any, batch_of: Callable[[Any], Interaction]) -> str:
    if not len(cases):
        return ""
    chosen = cases[np.unique(np.linspace(0, len(cases) - 1, ROWS).astype(np.int64))]
    batch = batch_of(chosen)
    columns = {name: batch[name].to(config["device"]) for name in batch.columns}
    name, hidden = type(model).__name__, [config["ITEM_ID_FIELD"], config["TIME_FIELD"]]
    with _restored(model):
        try:
            scores = _scores(model, columns)
        except NotImplementedError as error:
            raise ConfigError(f"{name} needs a full_sort_predict, which scores all items") from error
        except KeyError as error:
            if type(model).origin != "third":
                raise
            raise ConfigError(f"{name} reads the column {error}; batches have {', '.join(columns)}") from error
        except Exception:
            if type(model).type == ModelType.SEQUENTIAL:
                raise
            # a model such as Pop cannot rank before its fit
            return ""
        noise = _difference(scores, _scores(model, columns))

        def changes(column: str) -> bool:
            altered = {**columns, column: _altered(columns[column], model.n_items)}
            return _difference(scores, _scores(model, altered)) > 10 * noise

        if read := [column for column in hidden if column in columns and changes(column)]:
            raise LeakError(
                f"{name} reads {' and '.join(read)} of the case while it ranks: its scores change with the item to be "
                "found, so its metrics would mean nothing; do not read it in full_sort_predict"
            )
        _check_rows(model, columns, scores, noise)
    return HONEST


def _check_rows(model: Any, columns: dict[str, Tensor], scores: Tensor, noise: float) -> None:
    """Raise LeakError if the scores of the first rows depend on the other rows."""
    half, limit = len(scores) // 2, max(10 * noise, _ROUNDING)

    def change(names: list[str]) -> float:
        """Return how much the first scores change when the first rows overwrite the others in these columns."""
        mixed = {n: torch.cat([c[:half], c[: len(c) - half]]) if n in names else c for n, c in columns.items()}
        return _difference(scores[:half], _scores(model, mixed)[:half])

    if not half or change(list(columns)) <= limit:
        return
    read = [column for column in columns if change([column]) > limit] or list(columns)
    raise LeakError(
        f"{type(model).__name__} reads {' and '.join(read)} of other rows while it ranks: the scores of a case change "
        "with the other cases of its batch"
    )


def _scores(model: Any, columns: dict[str, Tensor]) -> Tensor:
    """Return the (n, n_items) scores of a batch, always with the same random numbers."""
    batch = Interaction({name: column.clone() for name, column in columns.items()})
    with seeded(0), torch.no_grad():
        return model.full_sort_predict(batch).view(-1, model.n_items).to(torch.float64)


def _difference(scores: Tensor, others: Tensor) -> float:
    """Return the largest difference, relative to the largest score; scores that are infinite in both are equal."""
    finite = torch.isfinite(scores)
    if not torch.equal(finite, torch.isfinite(others)):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    difference = (scores[finite] - others[finite]).abs().max()
    return float(difference / scores[finite].abs().max().clamp(min=1e-12))


def _altered(column: Tensor, n_items: int) -> Tensor:
    """Return a column of other items, or other times."""
    if column.dtype.is_floating_point:
        return column * 0.5 + 12345.0
    return column % (n_items - 1) + 1


@contextmanager
def _restored(model: Any) -> Iterator[None]:
    """Put ``model`` into evaluation mode for a block; afterwards restore its attributes."""
    training, attributes = model.training, dict(vars(model))
    model.eval()
    try:
        yield
    finally:
        vars(model).clear()
        vars(model).update(attributes)
        model.train(training)
