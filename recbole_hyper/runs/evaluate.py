"""Evaluate a finished run again: with other settings of the ranking, or on new interactions."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from recbole_hyper.config import ConfigError
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.config.checks import check_metrics, computed
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.data.tables.ids import Ids, text_array
from recbole_hyper.data.tables.inputs import (
    FIELD_KEYS,
    Histories,
    column_names,
    in_unit,
    read_histories,
    read_history_file,
)
from recbole_hyper.data.tables.times import unit_of_times
from recbole_hyper.evaluation.results import cases_frame, metrics_table, not_new_text
from recbole_hyper.evaluation.scorers import has_users
from recbole_hyper.evaluation.segments import check_segments, segment_table, segments_text
from recbole_hyper.files import digest, file_digest, write_json
from recbole_hyper.models.contract import OwnModel, make_scorer
from recbole_hyper.options import RANKING
from recbole_hyper.protocols.boundaries import date
from recbole_hyper.runs.folder import edited, read_result, require_finished
from recbole_hyper.runs.load import load_model, read_finished, read_run
from recbole_hyper.runs.run import evaluations, provenance, report_part
from recbole_hyper.runs.trained_on import learned_by, not_new
from recbole_hyper.settings import deciding
from recbole_hyper.training.settings import RankSettings
from recbole_hyper.training.validation import rank
from recbole_hyper.types import Cases, Split
from recbole_hyper.yaml_files import merge

logger = logging.getLogger("recbole_hyper")


def evaluation_keys() -> frozenset[str]:
    """Return the keys that an evaluation may change: they change neither what was learned nor the cases."""
    return deciding(RANKING) | {"data_path"}


def evaluate(
    output_dir: str | Path,
    config_dict: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    since: str | float | None = None,
    segments: Sequence[str] = (),
) -> dict[str, Any]:
    """Rank the cases of a finished run with other settings of the ranking, or rank new interactions.

    The data comes from the folder of the run, or from a ``data_path`` in ``config_dict``. The weights are those that
    the run tested. A run that was refit on train + validation is ranked on the test part only.

    Args:
        output_dir: folder of the run.
        config_dict: keys of :func:`evaluation_keys`; of ``eval_args`` only ``mode`` may change.
        data: a csv or parquet file, or a frame, with users, items and times; its interactions after ``since`` are the
            test cases, see :func:`new_cases`.
        since: a date, or a time as in the data; None means the newest time of the run's data.
        segments: see :func:`recbole_hyper.evaluation.segments.segment_table`; the rows are in ``<part>_segments``.

    Returns the metrics as ``valid`` and ``test``, their intervals (``confidence``), ``changes`` (the keys of
    ``config_dict``), and the provenance of result.json. The same content is written to the run's folder as
    ``evaluation_<mode>-<digest>.json``, or ``evaluation_new_data-<digest>.json``, with a digest of all settings.
    ConfigError for no finished run, or a key that changes more than the ranking; CheckpointError for weights that do
    not fit the data.
    """
    changes, before, folder = parse_keys(config_dict or {}), read_run(output_dir), Path(output_dir)
    require_finished(folder)
    for text in edited(folder, read_result(folder)):
        logger.warning("%s", text)
    check_segments(segments)
    if since is not None and data is None:
        raise ConfigError(f"since={since!r} needs data, a file of new interactions")
    file = Path(data) if isinstance(data, str | Path) else None
    if file is not None and not file.is_file():
        raise ConfigError(f"--data={str(data)!r} is not a file; it must be csv or parquet with users, items and times")
    content = {**_with_changes(before, changes), "save_cases": False, "log_wandb": False}
    config, dataset, split = read_finished(output_dir, content, data_set="data_path" in changes)
    model, refitted = load_model(config, dataset, split)
    # the run also counts over the training part, even if it was refit
    training = dataset.restrict(split.store, split.train_lengths)
    mode = config["eval_args"]["mode"]
    modes = dict.fromkeys(map(str, mode.values() if isinstance(mode, Mapping) else [mode]))
    settings: list[Any] = [since, changes, *([[*segments]] if segments else [])]
    name = "_".join(Path(one).stem for one in modes)
    if data is not None:
        by_user = not isinstance(model, OwnModel) and has_users(model)
        cases, counts = new_cases(config, split, data, since, by_user=by_user)
        split = replace(split, test=cases, valid=split.valid[:0], counts=counts)
        settings.append(file_digest(file) if file else cases.store.fingerprint())
        name = "new_data"
    learned = learned_by(folder, split, dataset.store, refitted=refitted)
    timed = bool(split.points) or data is not None
    seen = {part: not_new(getattr(split, part), learned, timed=timed) for part in ("valid", "test")[refitted:]}
    if data is not None:
        split.counts["cases that are not newer than the training data"] = seen["test"]
    outcome, ranking = dict[str, Any](), RankSettings.of(config)
    for evaluation in evaluations(split, training)[refitted:]:
        if len(evaluation):
            ranks = rank(make_scorer(model.eval(), config, part=evaluation.name), ranking, evaluation)
            outcome |= report_part(config, ranking, evaluation, ranks, folder)
            if segments:
                frame = cases_frame(evaluation.cases, ranks, evaluation.item_counts, evaluation.user_counts)
                items = Path(config["data_path"]) / f"{config['dataset']}.item"
                names = list(outcome[evaluation.name])
                outcome[f"{evaluation.name}_segments"] = segment_table(frame, segments, names, items=items)
    if not outcome:
        raise ConfigError(f"{output_dir}: the split of this run has no case to rank")
    result = {**provenance(config, split), "changes": changes, "cases_not_new": seen, **outcome}
    if data is not None:
        result["new_data"] = file.name if file else "a frame"
    if text := not_new_text(result):
        logger.warning("%s", text.strip(" ()"))
    output = folder / f"evaluation_{name}-{digest(settings)}.json"
    write_json(output, result)
    for count, value in split.counts.items() if data is not None else ():
        if value:
            print(f"{count}: {date(float(value)) if count in ('since', 'until') else value}")
    print(metrics_table(outcome))
    for part in ("valid", "test"):
        if rows := outcome.get(f"{part}_segments"):
            print(f"\n{part}\n{segments_text(rows).text()}")
    print(output)
    return result


def _with_changes(content: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(changes) - evaluation_keys())
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: cannot change in the evaluation of a finished run; allowed are "
            f"{', '.join(sorted(evaluation_keys()))}"
        )
    eval_args = changes.get("eval_args", {})
    if not isinstance(eval_args, Mapping) or set(eval_args) - {"mode"}:
        raise ConfigError(f"eval_args={eval_args!r}: only the mode of a finished run can change, as in {{mode: full}}")
    merged = dict(content)
    merge(merged, changes)
    if "repeatable" in changes and "exclude_seen" not in changes:
        merged.pop("exclude_seen", None)  # RecBole's key sets it
    if "valid_metric" not in changes and {"metrics", "topk"} & set(changes):
        check_metrics(merged["metrics"], merged["topk"])
        # nothing is selected, but the configuration needs a valid metric
        merged["valid_metric"] = computed(merged["metrics"], merged["topk"])[0]
    return merged


def new_cases(
    config: Any, split: Split, source: str | Path | pd.DataFrame, since: str | float | None, *, by_user: bool
) -> tuple[Cases, dict[str, Any]]:
    """Return a case for each interaction of ``source`` after ``since``, with its whole history, and counts.

    ``source`` is a file or a frame with users, items and times; ``since`` is a number as in the data, or a date; None
    means the newest time of the run's data. For equal times, the run's interactions come first, then the rows of the
    source. Interactions of the run's data (same user, item and time) are not new. Interactions are skipped and counted
    if the model does not know the item, if nothing came before, or if the user is new and the model is ``by_user``.
    ConfigError if the table has no such columns, or no new interaction.
    """
    store, unit = split.store, unit_of_times(split.store.times)
    names = column_names(store.columns, {field: config[key] for field, key in FIELD_KEYS.items()})
    try:
        reader: Any = read_history_file if isinstance(source, str | Path) else read_histories
        read = reader(Path(source) if isinstance(source, str) else source, names, unit=unit)
        start = float(store.times.max()) if since is None else float(in_unit([since], unit)[0])
        times = read.times
    except ValueError as error:
        raise ConfigError(f"--data: {error}") from error
    if times is None:
        raise ConfigError(f"--data: a column of times ({config['TIME_FIELD']}) is needed to tell what is new")
    is_late = np.greater if since is None else np.greater_equal
    merged, new = _merged(store, read, times)
    unknown = (Ids(store.item_tokens).find(read.tokens)[read.codes] == 0) & is_late(times, start)
    positions = np.flatnonzero(new & is_late(merged.times, start))
    rows = np.searchsorted(merged.offsets, positions, side="right") - 1
    ends = positions - merged.offsets[rows]
    is_new_user = merged.users[rows] >= len(store.user_tokens)
    refused = is_new_user if by_user else np.zeros(len(positions), dtype=bool)
    usable = (ends > 0) & ~refused
    cases = Cases.build(merged, rows[usable], ends[usable])
    twice = pd.DataFrame({"row": cases.rows, "item": cases.targets, "time": cases.times}).duplicated()
    counts: dict[str, Any] = {
        "protocol": "new data",
        "new interactions with unknown items, not ranked": int(unknown.sum()),
        "new interactions without an earlier one, not ranked": int(((ends == 0) & ~refused).sum()),
        "new interactions of users that the model did not learn, not ranked": int(refused.sum()),
        "interactions before the first test time that the run lacks, not ranked": int(new.sum()) - len(positions),
        "test cases": int(usable.sum()),
        "cases twice, as rows twice in the data": int(twice.sum()),
        "cases of new users": int(is_new_user[usable].sum()),
        "since": start,
    }
    if not len(cases):
        reasons = [f"{value} {name}" for name, value in counts.items() if name.startswith("new inter") and value]
        why = "; ".join(reasons) or "the table has nothing newer, --since=DATE sets an earlier time"
        raise ConfigError(f"--data: no interaction after {date(start)} can be ranked: {why}")
    return cases, {**counts, "until": float(cases.times.max())}


def _merged(store: SequenceStore, read: Histories, times: npt.NDArray[np.float64]) -> tuple[SequenceStore, Any]:
    """Return a store with all interactions of the users of ``read``, and which of them are new."""
    users = Ids(store.user_tokens).find(read.names)
    added = users == 0
    tokens = text_array(chain(store.user_tokens.tolist(), map(str, read.names[added].tolist())))
    users[added] = len(store.user_tokens) + np.arange(int(added.sum()))
    items = Ids(store.item_tokens).find(read.tokens)[read.codes]
    old = pd.DataFrame({"user": store.users[store.row_of], "item": store.items, "time": store.times})
    new = pd.DataFrame({"user": np.repeat(users, np.diff(read.offsets)), "item": items, "time": times})
    old, new = old[old["user"].isin(users)], new[items > 0]
    new = new[~pd.MultiIndex.from_frame(new).isin(pd.MultiIndex.from_frame(old))]
    table = pd.concat([old.assign(new=False), new.assign(new=True)]).sort_values(["user", "time"], kind="stable")
    merged = SequenceStore.from_interactions(table["user"], table["item"], table["time"], tokens, store.item_tokens)
    return merged, table["new"].to_numpy()
