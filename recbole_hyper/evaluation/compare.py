"""One table of several runs on one split: metrics, cost, their mean and deviation over seeds, and whether a difference
to the best is more than chance."""

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole.evaluator.register import smaller_metrics

from recbole_hyper.evaluation.pairs import SEEDS, USERS, Pair, compare_models, read_cases
from recbole_hyper.evaluation.results import candidates_text, headline, markdown_table, markdown_text
from recbole_hyper.evaluation.statistics import StatisticsError
from recbole_hyper.files import write_csv, write_text

# the columns of the short table of one model's seeds; a mean is followed by its deviation
SEED_COLUMNS = ["metric", "valid", "test"]
_FORMS = {"train_seconds": ",.1f", "total_seconds": ",.1f", "peak_memory_mib": ",.0f"}
SAME = ("data_fingerprint", "eval_args", "exclude_seen", "n_test_cases")


def require_one_split(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise StatisticsError unless all results (content of result.json by name) are of one split of one dataset."""
    first, *others = results
    for name in others:
        pair = results[first], results[name]
        found = {f"{key} is": [one.get(key) for one in pair] for key in SAME}
        found["their candidates were drawn with candidate_seed"] = [_candidate_seed(one) for one in pair]
        for what, (one, other) in found.items():
            if one != other:
                raise StatisticsError(
                    f"{first} and {name} cannot be compared: {what} {one!r} and {other!r}; use another output_dir"
                )


def _candidate_seed(result: Mapping[str, Any]) -> Any:
    """Return the seed that drew the candidates of the test, None where none were drawn."""
    mode = result["eval_args"]["mode"]
    if not re.fullmatch(r"(uni|pop)\d+", str(mode["test"] if isinstance(mode, Mapping) else mode)):
        return None
    # runs from before the key drew with their own seed
    return result.get("config", {}).get("candidate_seed", result.get("seed"))


def comparison(
    results: Mapping[str, Mapping[int | None, Mapping[str, Any]]],
    folders: Mapping[str, Mapping[int | None, Path]],
    metric: str,
    *,
    part: str = "test",
    failed: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return a row per model, in the order given.

    ``results`` (content of result.json) and ``folders`` are by model and seed, None for the one run of a model;
    all models have the same seeds. ``failed`` are the messages of models that gave no result.

    A row has model, every metric of ``part`` ("test" or "valid"), train_seconds, total_seconds, peak_memory_mib,
    parameters, best_epoch, and, where the cases were saved, difference (to the best), low, high, p_value and over (what
    the p-value covers: other users, other seeds). The best is the model with the best ``metric``, such as "ndcg@10";
    it has no p-value. The p-values are adjusted for all pairs of models, so that the choice of the best is covered
    (:func:`recbole_hyper.evaluation.pairs.compare_models`). Over several seeds every number is a mean, and each metric
    has a column ``<metric> std`` beside it.
    """
    labelled = {(name, seed): result for name, found in results.items() for seed, result in found.items()}
    require_one_split({name if seed is None else f"{name}, seed {seed}": r for (name, seed), r in labelled.items()})
    rows: dict[str, dict[str, Any]] = {}
    for name, found in results.items():
        runs = [_row(result, part) for result in found.values()]
        rows[name] = {"model": name} | ({} if None in found else {"seeds": len(runs)})
        for column in runs[0]:
            values = [run.get(column) for run in runs]
            rows[name][column] = mean(values)
            if None not in found and column in next(iter(found.values()))[part]:
                rows[name][f"{column} std"] = deviation(values)
    _add_tests(rows, metric, folders, part)
    return [*rows.values(), *({"model": name, "note": f"failed: {text}"} for name, text in (failed or {}).items())]


def mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers; what all share as it is; None where a value is missing."""
    if any(value is None for value in values):
        return None
    return values[0] if len(set(values)) == 1 else statistics.fmean(values)


def deviation(values: Sequence[Any]) -> float | None:
    """Return the standard deviation with n - 1; None for one value, and where one is missing."""
    return None if len(values) < 2 or any(value is None for value in values) else statistics.stdev(values)


def _row(result: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return metrics and cost of one run."""
    seconds = result["seconds"]
    return {
        **result[part],
        "train_seconds": seconds.get("train", 0.0) + seconds.get("refit", 0.0),
        "total_seconds": seconds["total"],
        "peak_memory_mib": result["peak_memory_bytes"] / 2**20,
        "parameters": result["parameters"],
        "best_epoch": result["best_epoch"],
    }


def _add_tests(
    rows: Mapping[str, dict[str, Any]], metric: str, folders: Mapping[str, Mapping[int | None, Path]], part: str
) -> None:
    """Add difference, low, high, p_value and over to the ``rows`` by model, for all but the best by ``metric``.

    A model whose cases were not saved gets a note, and is no part of the family that is tested.
    """
    scored = {name: row[metric] for name, row in rows.items() if row.get(metric) is not None}
    cases = {}
    for name in scored:
        try:
            cases[name] = {seed: read_cases(folder, part) for seed, folder in folders[name].items()}
        except StatisticsError as error:
            rows[name]["note"] = str(error)
    if len(cases) < 2:
        return
    best = max(cases, key=lambda name: scored[name] * (-1 if is_smaller_better(metric) else 1))
    try:
        pairs = compare_models(cases, metric)
    except StatisticsError as error:
        for name in cases:
            rows[name]["note"] = str(error)
        return
    for name, pair in against(best, pairs).items():
        rows[name].update(
            difference=pair.difference, low=pair.low, high=pair.high, p_value=pair.p_value, over=pair.over
        )


def against(best: str, pairs: Sequence[Pair]) -> dict[str, Pair]:
    """Return the pairs of ``best`` and each other model, by the name of the other, as other less best."""
    turned = [pair.turned() if pair.first == best else pair for pair in pairs]
    return {pair.first: pair for pair in turned if pair.second == best}


def is_smaller_better(metric: str) -> bool:
    """Return whether a metric such as "averagepopularity@10" is better when it is smaller."""
    return metric.partition("@")[0] in smaller_metrics


def is_metric(column: str) -> bool:
    """Return whether a column of a table is a metric: "ndcg@10", or "gauc", the one without a cut-off."""
    return "@" in column or column == "gauc"


def metric_rows(results: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per metric: metric, mean and deviation (``valid``, ``valid std``, ...), and the value of each seed.

    ``results`` are result.json by seed; StatisticsError for runs on other data, splits or candidates.
    """
    require_one_split({f"seed {seed}": result for seed, result in results.items()})
    first = next(iter(results.values()))
    rows = []
    for name in dict.fromkeys([*first["valid"], *first["test"]]):
        row: dict[str, Any] = {"metric": name}
        for part in ("valid", "test"):
            values = [result[part].get(name) for result in results.values()]
            row |= {part: mean(values), f"{part} std": deviation(values)}
        for part in ("valid", "test"):
            row |= {f"{part} seed {seed}": result[part].get(name) for seed, result in results.items()}
        rows.append(row)
    return rows


def metric_caption(results: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what a reader must know to read the table of one model's seeds."""
    return (
        f"{headline(next(iter(results.values())))}, seeds {', '.join(map(str, results))}. Mean and standard deviation "
        "(n - 1) over the seeds; split and candidates are the same in all of them."
    )


def shown_columns(rows: Sequence[Mapping[str, Any]], topk: Sequence[int]) -> list[str]:
    """Return the columns of the short table: metrics at the largest cut-off or without one, costs, and the test."""
    largest = f"@{max(topk)}"
    metrics = [name for name in _union(rows) if is_metric(name) and ("@" not in name or name.endswith(largest))]
    rest = ["train_seconds", "peak_memory_mib", "parameters", "p_value", "over", "note"]
    return ["model", *metrics, *(name for name in rest if name in _union(rows))]


def cell_text(column: str, value: Any) -> str:
    """Return a value as the tables show it."""
    if value is None:
        return ""
    if column == "p_value" and value < 1e-4:
        return "< 0.0001"
    usual = "," if isinstance(value, int) else ".4f" if isinstance(value, float) else ""
    return format(value, _FORMS.get(column, usual))


def text_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], bold: str = "**") -> list[dict[str, str]]:
    """Return the cells as text; the best value of each metric stands between two ``bold``.

    A value with a deviation over seeds, in the column ``<name> std``, is followed by it.
    """
    best: dict[str, float] = {}
    for column in columns:
        values = [row[column] for row in rows if is_metric(column) and row.get(column) is not None]
        if values:
            best[column] = min(values) if is_smaller_better(column) else max(values)
    result = []
    for row in rows:
        cells = {}
        for column in columns:
            text = cell_text(column, row.get(column))
            marked = column in best and row.get(column) == best[column]
            deviation = row.get(f"{column} std")
            spread = "" if deviation is None else f" ± {cell_text(column, deviation)}"
            cells[column] = (f"{bold}{text}{bold}" if marked else text) + spread
        result.append(cells)
    return result


def markdown(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a markdown table with the best value of each metric in bold."""
    plain = [
        {name: markdown_text(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows
    ]
    lines = ([cells[column] for column in columns] for cells in text_rows(plain, columns))
    return markdown_table(columns, lines, {*columns} - {"model", "metric", "note"})


def caption(result: Mapping[str, Any], metric: str, part: str = "test", seeds: Sequence[int] = ()) -> str:
    """Return what a reader must know to read the table: data, protocol, candidates, the test, and the seeds if many."""
    seen = "items of the history are excluded" if result["exclude_seen"] else "items of the history are candidates"
    mode = result["eval_args"]["mode"]
    ranked = candidates_text(mode.get(part, "full") if isinstance(mode, Mapping) else mode)
    what = f"{result['dataset']}, {result['protocol']}, split {result['eval_args']['split']}, {ranked}, {seen}, "
    what += f"{result[f'n_{part}_cases']:,} {part} cases, "
    method = SEEDS if len(seeds) > 1 else USERS
    tested = f"p_value: {metric} against the best model, adjusted for all pairs of models ({method})"
    if not seeds:
        return (
            f"{what}one seed ({result['seed']}). Best in bold. {tested}. One seed: this covers other users of these "
            "trained models; with other seeds the order may change, see --seeds=1,2,3."
        )
    return (
        f"{what}seeds {', '.join(map(str, seeds))}: a value is the mean over the seeds, with the standard deviation "
        f"(n - 1) behind ±. Best in bold. {tested}."
    )


def save_tables(
    folder: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], note: str, name: str = "compare"
) -> list[Path]:
    """Write <name>.csv with every column and <name>.md with ``columns``; return their paths."""
    paths = [folder / f"{name}.csv", folder / f"{name}.md"]
    write_csv(paths[0], rows, _union(rows))
    write_text(paths[1], f"{markdown(rows, columns)}\n\n{note}\n")
    return paths


def _union(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [*(name for name in names if name != "note"), *(["note"] if "note" in names else [])]
