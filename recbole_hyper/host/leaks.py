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
_SINGLE = 8  # of them one by one
_ENTRIES = 1 << 23  # scores in memory, at most, for more than 4 cases
_ROUNDING = 1e-4  # rounding may differ between batches
HONEST = "scores depend neither on the target nor on other rows"
RANDOM = "scores are random (dropout while it ranks?): the same cases get other scores, so metrics change if repeated"


class LeakError(ConfigError):
    """The scores of a model depend on the target or on other rows; the message names the columns."""


def check(model: Any, config: Any, cases: Any, batch_of: Callable[[Any], Interaction]) -> str:
    """Rank some ``cases`` again and in other batches; return the finding, or "" before a one-step fit.

    ``batch_of`` makes a batch of cases. They are ranked twice, with other targets, beside other cases, in another
    order, one by one and after more cases. If the scores change, a third-party model raises LeakError. RecBole's own
    gets a warning: the ranking here hides the target anyway. Random scores are a warning. ConfigError if a third-party
    model cannot rank all items, or reads a column that batches do not have.
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
    n_items = cases.store.n_items  # a model's own may count a token for masks
    chosen = cases[np.unique(np.linspace(0, len(cases) - 1, _n_rows(n_items)).astype(np.int64))]
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
        if noise > _ROUNDING:
            raise LeakError(
                f"{name} ranks the same cases differently when it is called again: it counts its calls, or draws "
                "numbers that no seed sets, so nothing can be checked and its metrics would mean nothing"
            )
        altered = {one: {**columns, one: _altered(columns[one], n_items)} for one in hidden if one in columns}
        # the random numbers are the same, so any difference comes from the column
        if read := [one for one, other in altered.items() if _difference(scores, _scores(model, other)) > 10 * noise]:
            raise LeakError(
                f"{name} reads {' and '.join(read)} of the case while it ranks: its scores change with the item to be "
                "found, so its metrics would mean nothing; do not read it in full_sort_predict"
            )
        _check_rows(model, columns, scores)
        if _differ(scores, _scores(model, columns, seed=1)):
            logger.warning("%s: %s", name, RANDOM)
            return RANDOM
        return _check_batches(model, columns, scores)


def _n_rows(n_items: int) -> int:
    """Return the number of cases to rank: fewer with many items, as their scores are compared in memory."""
    return int(np.clip(_ENTRIES // n_items, 4, ROWS))


def _check_rows(model: Any, columns: dict[str, Tensor], scores: Tensor) -> None:
    """Raise LeakError if the scores of some rows change with the content of the others."""
    n, half = len(scores), len(scores) // 2
    # the first rows overwrite the others, then the last rows the first
    for kept, taken in (
        (slice(half), [*range(half), *range(n - half)]),
        (slice(half, n), [*range(n - half, n), *range(half, n)]),
    ):

        def changes(names: list[str], kept: slice = kept, taken: list[int] = taken) -> bool:
            mixed = {**columns, **_rows_of({name: columns[name] for name in names}, taken)}
            return _differ(scores[kept], _scores(model, mixed)[kept])

        if half and changes(list(columns)):
            read = [column for column in columns if changes([column])] or list(columns)
            raise LeakError(
                f"{type(model).__name__} reads {' and '.join(read)} of other rows while it ranks: the scores of a case "
                "change with the other cases of its batch"
            )


def _check_batches(model: Any, columns: dict[str, Tensor], scores: Tensor) -> str:
    """Raise LeakError if scores change with the size or the order of a batch; return the finding."""
    n = len(scores)
    batches = {"after more cases": [*range(n)] * 2, "in another order": [*range(n)][::-1]}
    single = {"one by one": [[row] for row in range(0, n, max(1, n // _SINGLE))]}
    finding = HONEST
    for how, groups in {**{how: [rows] for how, rows in batches.items()}, **single}.items():
        for rows in groups:
            try:
                other = _scores(model, _rows_of(columns, rows))
            except Exception as error:
                finding = f"{HONEST}; it cannot rank a batch of {len(rows)} cases ({type(error).__name__})"
                logger.warning("%s: %s", type(model).__name__, finding)
                break
            if _differ(scores[torch.tensor(rows, device=scores.device)], other):
                raise LeakError(
                    f"{type(model).__name__} ranks a case differently {how}: its scores change with the batch, so its "
                    "metrics would change with eval_batch_size"
                )
    return finding


def _rows_of(columns: dict[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
    """Return rows of a batch; the index is made on the device of each column."""
    return {name: column[torch.tensor(rows, device=column.device)] for name, column in columns.items()}


def _scores(model: Any, columns: dict[str, Tensor], seed: int = 0) -> Tensor:
    """Return the (n, n_items) scores of a batch with the random numbers of ``seed``."""
    batch = Interaction({name: column.clone() for name, column in columns.items()})
    with seeded(seed), torch.no_grad():
        return model.full_sort_predict(batch).view(len(batch), -1).to(torch.float64, copy=True)


def _differ(scores: Tensor, others: Tensor) -> bool:
    """Return whether scores differ by more than rounding."""
    return _difference(scores, others) > _ROUNDING


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
