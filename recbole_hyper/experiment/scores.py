"""Scores or recommendation lists of other libraries, ranked on the cases of a comparison under the same rules."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.data.tables.ids import Ids, as_text, single
from recbole_hyper.data.tables.inputs import read_table
from recbole_hyper.data.tables.table import whole_numbers
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.files import file_digest, write_json
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.folder import RESULT
from recbole_hyper.runs.run import evaluations, provenance, report_part
from recbole_hyper.training.settings import RankSettings
from recbole_hyper.types import Cases, Prefixes, Ranks

_COLUMNS = ("user_id", "item_id", "score")


def read_scores(file: Path) -> pd.DataFrame:
    """Return the columns user_id and item_id as text, and score, of a csv or parquet file.

    Without a column score, a column rank counts: 1 is the best. DataError for missing columns, or a score that is not a
    finite number.
    """
    frame = (table := read_table(file)).to_pandas(types_mapper=pd.ArrowDtype)
    if "score" not in frame and "rank" in frame:
        frame["score"] = -pd.to_numeric(frame["rank"], errors="coerce")
    if missing := [name for name in _COLUMNS if name not in frame]:
        raise DataError(f"{file} has no column {missing[0]!r}: user_id, item_id and score (or rank) are needed")
    scores = pd.to_numeric(frame["score"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not (finite := np.isfinite(scores)).all():
        raise DataError(f"{file}: the score in row {int(np.argmin(finite)) + 1} is not a finite number")
    ids = {name: whole_numbers(as_text(single(table[name]))).to_pylist() for name in _COLUMNS[:2]}
    return pd.DataFrame(ids).assign(score=scores)


class Lists:
    """Each user's listed items, with their places as scores: the worst item of a list has 0, equal scores are equal.

    Places instead of scores, because the ranking compares float32 numbers. An item that is not listed has -1. Of an
    item that a user has twice, the better score counts.
    """

    def __init__(self, frame: pd.DataFrame, store: SequenceStore) -> None:
        users = Ids(store.user_tokens).find(frame["user_id"].tolist())
        items = Ids(store.item_tokens).find(frame["item_id"].tolist())
        known = (users > 0) & (items > 0)
        table = pd.DataFrame({"user": users, "item": items, "score": frame["score"]})[known]
        table = table.sort_values(["user", "score"], kind="stable").drop_duplicates(["user", "item"], keep="last")
        self.items = table["item"].to_numpy(dtype=np.int64)
        self.places = table.groupby("user")["score"].rank(method="dense").to_numpy(dtype=np.float32) - 1
        self.lengths = np.bincount(table["user"], minlength=len(store.user_tokens))
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self.n_items = store.n_items
        self.pairs = pd.MultiIndex.from_frame(table[["user", "item"]])

    def score(self, cases: Prefixes) -> Tensor:
        """Return (n, n_items) scores."""
        users = cases.store.users[cases.rows]
        lengths = self.lengths[users]
        rows, index = np.repeat(np.arange(len(cases)), lengths), ranges(self.offsets[users], lengths)
        scores = torch.full((len(cases), self.n_items), -1.0)
        scores[torch.from_numpy(rows), torch.from_numpy(self.items[index])] = torch.from_numpy(self.places[index])
        return scores

    def rank(self, cases: Cases, k: int, **rules: Any) -> tuple[Ranks, npt.NDArray[np.bool_]]:
        """Return the ranks of the targets, and which targets are listed.

        A target that is not listed is a miss at every cut-off up to ``k`` and ranks last; lists end with their last
        item. ``rules`` are those of :func:`recbole_hyper.evaluation.ranking.rank_cases`.
        """
        ranks = rank_cases(self.score, cases, n_items=self.n_items, k=k, **rules)
        listed = pd.MultiIndex.from_arrays([cases.store.users[cases.rows], cases.targets]).isin(self.pairs)
        assert ranks.top_scores is not None
        ended = ranks.top_scores < 0
        last = np.maximum(ranks.n_candidates, k + 1)
        top, scores = np.where(ended, 0, ranks.top_items), np.where(ended, np.float32(-np.inf), ranks.top_scores)
        return replace(ranks, ranks=np.where(listed, ranks.ranks, last), top_items=top, top_scores=scores), listed


def rank_scores(name: str, file: Path, config: Any, folder: Path) -> dict[str, Any]:
    """Rank the scores in ``file`` on the test cases of ``config``, and return the content of a result.json.

    Writes result.json and cases_test.parquet to ``folder``. ``missing`` in the result counts what the file lacks.
    ConfigError if users have several test cases, because a list belongs to one.
    """
    data, split = read_data(config)
    _, test = evaluations(split, data.restrict(split.store, split.train_lengths))
    cases = test.cases
    if len(np.unique(cases.rows)) < len(cases):
        raise ConfigError(
            f"--scores={name}={file}: users have several test cases, but one list each; choose a split with one test "
            "case per user"
        )
    lists = Lists(read_scores(file), split.store)
    if not lists.lengths.any():
        raise DataError(f"{file}: no row has both a user and an item of {config['dataset']}; write its original ids")
    rules = {"exclude_seen": config["exclude_seen"], "catalogue": split.candidates("test")}
    ranks, listed = lists.rank(cases, max(config["topk"]), memory_budget=config["ranking_memory_budget"], **rules)
    missing = {
        "test users without a list": int((lists.lengths[cases.store.users[cases.rows]] == 0).sum()),
        "test targets that are not in the list": int((~listed).sum()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    result = provenance(config, split) | report_part(config, RankSettings.of(config), test, ranks, folder)
    result |= {"model": name, "seed": None, "valid": {}, "parameters": None, "best_epoch": None}
    origin = {"file": str(file), "sha256": file_digest(file)}
    result |= {"seconds": {"total": None}, "missing": missing, "scores": origin}
    write_json(folder / RESULT, result)
    return result


def missing_text(result: Mapping[str, Any]) -> str:
    """Return in words what the scores of a result lack: "scores of FILE; 12 test users without a list"."""
    counts = [f"{count:,} {name}" for name, count in result["missing"].items() if count]
    return "; ".join([f"scores of {Path(result['scores']['file']).name}", *counts])
