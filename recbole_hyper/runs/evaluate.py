"""Rank the cases of a finished run again: all items or drawn candidates, other metrics, windows on or off."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper.config import ConfigError
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.config.checks import check_metrics, has_cut_off
from recbole_hyper.evaluation.results import cases_frame, metrics_table
from recbole_hyper.evaluation.segments import check_segments, segment_table, segments_text
from recbole_hyper.files import digest, file_digest, plain, write_json
from recbole_hyper.options import RANKING
from recbole_hyper.runs.folder import require_finished
from recbole_hyper.runs.load import load_model, read_finished, read_run
from recbole_hyper.runs.new_data import new_cases
from recbole_hyper.runs.run import evaluations, provenance, report_part
from recbole_hyper.settings import deciding
from recbole_hyper.training.validation import rank
from recbole_hyper.yaml_files import merge

# what may differ from the run: nothing that was learned, and no case
EVALUATION_KEYS = deciding(RANKING) | {"data_path"}


def evaluate(
    output_dir: str | Path,
    config_dict: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    since: str | float | None = None,
    segments: Sequence[str] = (),
) -> dict[str, Any]:
    """Rank the cases of a finished run under other settings of the ranking, or new interactions.

    The data are those in the folder of the run, or the data set below a ``data_path``. The weights are those that the
    run tested. A run that was refit on train + validation is ranked on the test part only.

    Args:
        output_dir: folder of the run.
        config_dict: keys of ``EVALUATION_KEYS``; of ``eval_args`` only ``mode`` may differ from the run.
        data: a csv or parquet file, or a frame, with users, items and times: interactions after ``since`` are the
            test cases, see :func:`recbole_hyper.runs.new_data.new_cases`.
        since: a date, or a time as in the data; None for the newest time of the run's data.
        segments: see :func:`recbole_hyper.evaluation.segments.segment_table`; the rows are in ``<part>_segments``.

    Returns the metrics as ``valid`` and ``test``, with ``confidence`` their intervals, ``changes`` (the given keys),
    and the provenance of result.json. The same is written to the folder of the run as ``evaluation_<mode>.json``, or
    ``evaluation_<mode>-<keys>-<digest>.json`` where more than the mode is given; new data give
    ``evaluation_new_data-<file>-<digest>.json``, of which a report draws a series. ConfigError for no finished run, or
    a key that changes more than the ranking; CheckpointError for weights that do not fit the data.
    """
    changes, before, folder = parse_keys(config_dict or {}), read_run(output_dir), Path(output_dir)
    require_finished(folder)
    check_segments(segments)
    if since is not None and data is None:
        raise ConfigError(f"since={since!r} goes with data, a file of new interactions")
    file = Path(data) if isinstance(data, str | Path) else None
    if file is not None and not file.is_file():
        raise ConfigError(f"--data={str(data)!r} is no file; csv or parquet with users, items and times is needed")
    content = {**_with_changes(before, changes), "save_cases": False, "log_wandb": False}
    config, dataset, split = read_finished(output_dir, content, data_set="data_path" in changes)
    model, refitted = load_model(config, dataset, split)
    # counted over the training part, as the run does, whether it was refit or not
    training = dataset.restrict(split.store, split.train_lengths)
    name = _file_name(config["eval_args"]["mode"], changes)
    if data is not None:
        cases, counts = new_cases(config, split, data, since)
        split = replace(split, test=cases, valid=split.valid[:0], counts=counts)
        came = file_digest(file) if file else int(pd.util.hash_pandas_object(data).sum())
        name = f"evaluation_new_data-{file.stem if file else 'frame'}-{digest([came, since, changes])}.json"
    outcome: dict[str, Any] = {}
    for evaluation in evaluations(split, training)[refitted:]:
        if len(evaluation):
            ranks = rank(model, config, evaluation)
            outcome |= report_part(config, evaluation, ranks, folder)
            if segments:
                frame = cases_frame(evaluation.cases, ranks, evaluation.item_counts, evaluation.user_counts)
                items = Path(config["data_path"]) / f"{config['dataset']}.item"
                names = list(outcome[evaluation.name])
                outcome[f"{evaluation.name}_segments"] = segment_table(frame, segments, names, items=items)
    if not outcome:
        raise ConfigError(f"{output_dir}: the split of this run has no case to rank")
    result = {**provenance(config, split), "changes": changes, **outcome}
    write_json(folder / name, result)
    for count, value in split.counts.items() if data is not None else ():
        if value:
            print(f"{count}: {value}")
    print(metrics_table(outcome))
    for part in ("valid", "test"):
        if rows := outcome.get(f"{part}_segments"):
            print(f"\n{part}\n{segments_text(rows).text()}")
    print(folder / name)
    return result


def _file_name(mode: Any, changes: Mapping[str, Any]) -> str:
    """Return a name that another ranking of the same run does not have."""
    modes = dict.fromkeys(map(str, mode.values() if isinstance(mode, Mapping) else [mode]))
    # files of candidates may share a name, and may change
    names = [f"{Path(one).stem}-{file_digest(Path(one))[:8]}" if Path(one).is_file() else one for one in modes]
    more = {key: plain(value) for key, value in sorted(changes.items()) if key != "eval_args"}
    return "-".join([f"evaluation_{'_'.join(names)}", *more, *([digest(more)] if more else [])]) + ".json"


def _with_changes(content: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(changes) - EVALUATION_KEYS)
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: not a setting of the ranking of a finished run; allowed are "
            f"{', '.join(sorted(EVALUATION_KEYS))}"
        )
    mine = changes.get("eval_args", {})
    if not isinstance(mine, Mapping) or set(mine) - {"mode"}:
        raise ConfigError(f"eval_args={mine!r}: only the mode of a finished run can change, as in {{mode: full}}")
    merged = dict(content)
    merge(merged, changes)
    if "valid_metric" not in changes and {"metrics", "topk"} & set(changes):
        check_metrics(merged["metrics"], merged["topk"])
        # nothing is selected, but the configuration wants a metric to select by
        pair = [one if isinstance(one, list | tuple) else [one] for one in (merged["metrics"], merged["topk"])]
        name, k = pair[0][0], pair[1][0]
        merged["valid_metric"] = f"{name}@{k}" if has_cut_off(name) else name
    return merged
