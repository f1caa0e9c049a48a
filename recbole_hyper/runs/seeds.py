"""Runs of one configuration with several seeds: a folder each, then mean and standard deviation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError, parse_value
from recbole_hyper.evaluation.compare import SEED_COLUMNS, metric_caption, metric_rows, save_tables, text_rows
from recbole_hyper.evaluation.results import table
from recbole_hyper.files import read_json
from recbole_hyper.keys import KEYS, matches
from recbole_hyper.runs.folder import RESULT, folder_of, require_no_single_run, seed_folder
from recbole_hyper.runs.reuse import keys_to_run
from recbole_hyper.runs.run import run


def run_seeds(
    model: str | type | None = None,
    dataset: str | None = None,
    *,
    seeds: str | Sequence[int],
    interactions: Any = None,
    config_files: Sequence[str | Path] | None = None,
    config_dict: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a configuration once with every seed, and write the mean and standard deviation of each metric.

    The run with seed N is in ``output_dir/seed-N``. One that is finished there is not run again, one that was stopped
    goes on. ``output_dir`` gets seeds.csv and seeds.md, over the seeds that are asked for.

    Args:
        model, dataset, interactions, config_files, config_dict: of :func:`recbole_hyper.run`, but no key ``seed``.
        seeds: whole numbers, each once, or "1,2,3".

    Returns:
        model, dataset, seeds, output_dir; ``valid`` and ``test``, which give {"mean": ..., "std": ...} by metric, the
        deviation with n - 1 and None for one seed; ``results``, the content of result.json by seed.

    Raises:
        ConfigError: seeds that are none, a configuration that cannot run, or folders that hold other runs; before the
            first is trained.
    """
    seeds = read_seeds(seeds, config_dict or {})
    # what is there goes on without being asked
    settings = {key: value for key, value in (config_dict or {}).items() if key != "resume"}
    given = {} if interactions is None else {"interactions": "given"}
    configs = {
        seed: Config(model, dataset, list(config_files or []), {**settings, **given, "seed": seed}) for seed in seeds
    }
    folder = folder_of(configs[seeds[0]])
    # all of them before the first is trained
    require_no_single_run(folder)
    plans = {seed: keys_to_run(config, seed_folder(folder, seed)) for seed, config in configs.items()}
    results: dict[int, dict[str, Any]] = {}
    for number, seed in enumerate(seeds, 1):
        target = seed_folder(folder, seed)
        keys = plans[seed]
        if keys is None:
            print(f"[{number}/{len(seeds)}] seed {seed}: finished before, {target / RESULT}", flush=True)
        else:
            print(f"[{number}/{len(seeds)}] seed {seed}", flush=True)
            own = {**settings, "seed": seed, **keys}
            run(model, dataset, interactions=interactions, config_files=config_files, config_dict=own)
        results[seed] = read_json(target / RESULT)
    rows, note = metric_rows(results), metric_caption(results)
    paths = save_tables(folder, rows, SEED_COLUMNS, note, "seeds")
    print(f"\n{table(text_rows(rows, SEED_COLUMNS), SEED_COLUMNS)}\n\n{note}", *paths, sep="\n")
    first = results[seeds[0]]
    return {
        "model": first["model"],
        "dataset": first["dataset"],
        "seeds": seeds,
        "output_dir": str(folder),
        **{
            part: {row["metric"]: {"mean": row[part], "std": row[f"{part} std"]} for row in rows if first[part]}
            for part in ("valid", "test")
        },
        "results": results,
    }


def read_seeds(seeds: str | Sequence[int], keys: Mapping[str, Any]) -> list[int]:
    """Return the seeds of a list, or of a text such as "1,2,3".

    ConfigError for no seeds, a seed twice, or a ``seed`` among ``keys``, which are given beside them, also as compare's
    MODEL.key.
    """
    found = parse_value(seeds)
    found = list(found) if isinstance(found, list | tuple | range) else [found]
    if not found or not all(matches(KEYS["seed"].values, seed) for seed in found):
        raise ConfigError(f"seeds={seeds!r}: whole numbers of at least 0 are expected, such as --seeds=1,2,3")
    twice = [seed for seed in found if found.count(seed) > 1]
    if twice:
        raise ConfigError(f"seeds={seeds!r}: {twice[0]} is there twice; each seed is one run")
    for key in keys:
        if key.rpartition(".")[2] == "seed":
            raise ConfigError(f"{key} and seeds are both given; leave out --{key}={keys[key]}, seeds say all of them")
    return found
