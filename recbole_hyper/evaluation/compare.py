"""Compare runs on one split: metrics and costs with mean and deviation over seeds, and tests against the best model."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.devices import in_words
from recbole_hyper.evaluation.pairs import FEW_USERS, SEEDS, USERS, Pair, compare_models, read_cases
from recbole_hyper.evaluation.results import DRAWN, costs, headline, protocol_text, repeats_text
from recbole_hyper.evaluation.statistics import StatisticsError
from recbole_hyper.evaluation.tables import Table, head_of, is_metric
from recbole_hyper.host.metrics import is_smaller_better

LEVEL, MARK = 0.05, "†"
SAME = ("data_fingerprint", "eval_args", "exclude_seen", "n_test_cases")
_FORMS = {"train_seconds": ",.1f", "total_seconds": ",.1f", "peak_memory_mib": ",.0f", "p_value": "p", "note": "s"}
_SHOWN = ("train_seconds", "peak_memory_mib", "parameters", "p_value", "over", "note")


def require_one_split(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise StatisticsError unless all results (content of result.json by name) are on one split of one data set."""
    first, *others = results
    for name in others:
        pair = results[first], results[name]
        values = {key: [result.get(key) for result in pair] for key in SAME}
        values["candidate_seed"] = [_candidate_seed(result) for result in pair]
        for fact, (one, other) in values.items():
            if one != other:
                raise StatisticsError(
                    f"{first} and {name} cannot be compared: {fact} is {one!r} and {other!r}; use another output_dir"
                )


def _candidate_seed(result: Mapping[str, Any]) -> Any:
    """Return the seed that drew the test candidates, None for full ranking."""
    mode = result["eval_args"]["mode"]
    drawn = DRAWN.fullmatch(str(mode["test"] if isinstance(mode, Mapping) else mode))
    return result.get("config", {}).get("candidate_seed") if drawn else None


def comparison(
    results: Mapping[str, Mapping[int | None, Mapping[str, Any]]],
    folders: Mapping[str, Mapping[int | None, Path]],
    metric: str,
    *,
    part: str = "test",
    failed: Mapping[str, str] | None = None,
) -> tuple[list[dict[str, Any]], list[Pair]]:
    """Return a row per model and the tested pairs of models.

    ``results`` (content of result.json) and ``folders`` are by model and seed; the seed is None if each model has one
    run. All models have the same seeds. ``failed`` has the messages of models without a result.

    A row has model, metrics of ``part``, train_seconds, total_seconds, peak_memory_mib, parameters and best_epoch. With
    several seeds these are means, and each metric has a ``<metric> std``. If the cases were saved, all rows except the
    best by ``metric`` also have difference (from the best), low, high, p_value and over (what the p-value covers).
    P-values are adjusted for all pairs of models, so they allow for the choice of the best
    (:func:`recbole_hyper.evaluation.pairs.compare_models`).
    """
    all_runs = {(name, seed): result for name, by_seed in results.items() for seed, result in by_seed.items()}
    require_one_split({name if seed is None else f"{name}, seed {seed}": r for (name, seed), r in all_runs.items()})
    rows: dict[str, dict[str, Any]] = {}
    for name, by_seed in results.items():
        runs: list[dict[str, Any]] = []
        for result in by_seed.values():
            rest = {key: result[key] for key in ("parameters", "best_epoch")}
            # results of earlier releases have no device
            rest["device"] = in_words(result["device"]) if result.get("device") else None
            runs.append({**result[part], "total_seconds": result["seconds"]["total"], **costs(result), **rest})
        rows[name] = {"model": name} | ({} if None in by_seed else {"seeds": len(runs)})
        for column in runs[0]:
            values = [run.get(column) for run in runs]
            rows[name][column] = mean(values)
            if None not in by_seed and column in next(iter(by_seed.values()))[part]:
                rows[name][f"{column} std"] = deviation(values)
    pairs = add_tests(rows, metric, {name: list(by_seed.values()) for name, by_seed in folders.items()}, part)
    notes = [{"model": name, "note": f"failed: {text}"} for name, text in (failed or {}).items()]
    return [*rows.values(), *notes], pairs


def mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, the different texts joined, or the common value; None if a value is missing."""
    if None in values:
        return None
    if len(set(values)) == 1:
        return values[0]
    return "; ".join(sorted(set(values))) if isinstance(values[0], str) else statistics.fmean(values)


def deviation(values: Sequence[Any]) -> float | None:
    """Return the standard deviation (n - 1); None for a single value, or if one is missing."""
    return None if len(values) < 2 or None in values else statistics.stdev(values)


def add_tests(
    rows: Mapping[str, dict[str, Any]], metric: str, folders: Mapping[str, Sequence[Path]], part: str = "test"
) -> list[Pair]:
    """Add difference, low, high, p_value and over to all ``rows`` except the best by ``metric``; return the pairs.

    ``metric`` gets the mark † where p < .05. ``rows`` and ``folders`` (one run per seed) are by model; a model without
    saved cases gets a note and is not tested.
    """
    scored = {name: row[metric] for name, row in rows.items() if row.get(metric) is not None}
    cases = {}
    for name in scored:
        try:
            cases[name] = {folder: read_cases(folder, part) for folder in folders[name]}
        except StatisticsError as error:
            rows[name]["note"] = str(error)
    if len(cases) < 2:
        return []
    best = max(cases, key=lambda name: scored[name] * (-1 if is_smaller_better(metric) else 1))
    try:
        pairs = compare_models(cases, metric)
    except StatisticsError as error:
        for name in cases:
            rows[name]["note"] = str(error)
        return []
    for pair in pairs:
        if best in (pair.first, pair.second):
            other = pair.turned() if pair.first == best else pair
            columns = {name: getattr(other, name) for name in ("difference", "low", "high", "p_value", "over")}
            rows[other.first] |= {**columns, f"{metric} mark": MARK if other.p_value < LEVEL else ""}
    return pairs


def p_value_text(metric: str, *, several: bool, users: int | None = None) -> str:
    """Return the note that explains p-values and marks, for ``several`` seeds or one, and ``users`` test users."""
    text = (
        f"p: {head_of(metric)} against the best model, adjusted for all pairs of models "
        f"({SEEDS if several else USERS}); "
        f"{MARK} where it is below {LEVEL:g}."
    )
    covers = "covers other users of these trained models only: with other seeds the order may change, see --seeds=1,2,3"
    if several:
        return text
    few = (
        f" Only {users} users: the test assumes that differences are symmetric, and finds too much where a few users "
        "gain and many lose a little."
    )
    return f"{text} One seed {covers}." + (few if users is not None and users < FEW_USERS else "")


def comparison_table(
    rows: Sequence[Mapping[str, Any]], topk: Sequence[int], *, caption: str = "", note: str = ""
) -> Table:
    """Return the table of :func:`comparison`: metrics at the largest cut-off of ``topk``, costs, and the test."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    largest = f"@{max(topk)}"
    metrics = [name for name in names if is_metric(name) and ("@" not in name or name.endswith(largest))]
    columns = ["model", *metrics, *(name for name in _SHOWN if name in names)]
    smaller = [name for name in metrics if is_smaller_better(name)]
    forms = {**dict.fromkeys(metrics, ".4f"), "parameters": ",", "over": "s", **_FORMS}
    heads = {name: head_of(name) for name in columns}
    return Table(rows, columns, best=metrics, smaller=smaller, heads=heads, forms=forms, caption=caption, note=note)


def pair_table(pairs: Sequence[Pair], metric: str) -> Table:
    """Return the table of all pairs."""
    rows = [{**vars(pair), "over": pair.over} for pair in pairs]
    columns = ["first", "second", "difference", "low", "high", "p_value", "over"]
    note = f"{head_of(metric)} of the first minus the second. from and to: simultaneous 95 % intervals of all pairs."
    forms = {"p_value": "p"} | dict.fromkeys(("difference", "low", "high"), "+.4f")
    return Table(rows, columns, heads={name: head_of(name) for name in columns}, forms=forms, note=note)


def measured_on(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the device of all rows of :func:`comparison`, or a warning if the devices differ."""
    devices = {str(row["model"]): str(row["device"]) for row in rows if row.get("device")}
    if len(set(devices.values())) <= 1:
        return f" Seconds and memory: {next(iter(devices.values()))}." if devices else ""
    each = ", ".join(f"{model} on {device}" for model, device in devices.items())
    return f" Seconds and memory cannot be compared: {each}."


def comparison_caption(result: Mapping[str, Any], part: str = "test", seeds: Sequence[int] = ()) -> str:
    """Return the caption: data set, protocol, candidates, cases and seeds."""
    split = split_words(result["eval_args"]["split"])
    text = f"{result['dataset']}: {protocol_text(result, part)}{split and f' ({split})'}; "
    text += f"{result[f'n_{part}_cases']:,} {part} cases{repeats_text(result, part)}; "
    if len(seeds) < 2:
        return f"{text}one seed ({seeds[0] if seeds else result['seed']}). Best in bold."
    return f"{text}mean and standard deviation (n - 1) over seeds {', '.join(map(str, seeds))}. Best in bold."


def split_words(split: Any) -> str:
    """Return a split in words: "valid 0.9, test 0.95"; "" for the usual leave-one-out, whose name says all."""
    if isinstance(split, Mapping):
        if split == {"LS": "valid_and_test"}:
            return ""
        words = [split_words(value) if key.isupper() else f"{key} {split_words(value)}" for key, value in split.items()]
        return ", ".join(words)
    return ", ".join(map(str, split)) if isinstance(split, list | tuple) else str(split)


def seeds_table(results: Mapping[int, Mapping[str, Any]]) -> Table:
    """Return a row per metric: mean and deviation on validation and test, and the value of each seed.

    ``results`` are result.json by seed. StatisticsError if data, splits or candidates differ.
    """
    require_one_split({f"seed {seed}": result for seed, result in results.items()})
    first = next(iter(results.values()))
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys([*first["valid"], *first["test"]]):
        values = {part: [result[part].get(name) for result in results.values()] for part in ("valid", "test")}
        rows.append({"metric": name})
        for part, by_seed in values.items():
            rows[-1] |= {part: mean(by_seed), f"{part} std": deviation(by_seed)}
        for part, by_seed in values.items():
            rows[-1] |= {f"{part} seed {seed}": value for seed, value in zip(results, by_seed, strict=True)}
    note = (
        f"{headline(first)}, seeds {', '.join(map(str, results))}. Mean and standard deviation (n - 1) over seeds; all "
        "have the same split and candidates."
    )
    columns = ["metric", "valid", "test"]
    return Table(rows, columns, heads={name: head_of(name) for name in columns}, note=note)
