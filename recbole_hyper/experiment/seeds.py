"""Run a configuration with several seeds, one folder each, and report mean and standard deviation."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact, parse_keys, parse_value
from recbole_hyper.data.reading import given_store
from recbole_hyper.data.source import Source
from recbole_hyper.data.tables.download import with_data
from recbole_hyper.evaluation.compare import seeds_table
from recbole_hyper.experiment.experiment import Experiment, Run, require_own_table
from recbole_hyper.runs.build import reader_of_store
from recbole_hyper.runs.claim import folder_of, plan_runs, seed_folder
from recbole_hyper.runs.run import run
from recbole_hyper.settings import SETTINGS


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

    The run with seed N is in ``output_dir/seed-N``; finished runs are not repeated, and stopped runs resume.
    ``output_dir`` gets seeds.csv, seeds.md and seeds.tex. ``seeds`` are different whole numbers, or "1,2,3"; the other
    arguments are those of :func:`recbole_hyper.run`, without a key ``seed``.

    Returns:
        model, dataset, seeds, output_dir; ``valid`` and ``test``, each {"mean": ..., "std": ...} by metric, with n - 1
        for the deviation and None for one seed; ``results``, the content of result.json by seed.

    Raises ConfigError before the first training: invalid seeds, a configuration that cannot run, or folders with other
    runs.
    """
    seeds = read_seeds(seeds, config_dict or {})
    if (config_dict or {}).get("init_from"):
        raise ConfigError("init_from: one run starts from one run; leave out --seeds, or set --seed")
    # stopped runs resume by themselves
    settings = parse_keys(config_dict or {}).copy()
    settings.pop("resume", None)
    if interactions is not None:
        settings["interactions"] = "given"
    files = list(config_files or [])
    config = with_data(lambda: Config(model, dataset, files, settings))
    folder = folder_of(config)
    require_own_table(folder, "seeds")
    store = functools.cache(lambda: given_store(Source.of(config), interactions))  # read if a run is finished
    given = None if interactions is None else lambda one: reader_of_store(store())(one)
    plans = plan_runs(model, dataset, seeds, folder, settings, files, given)
    runs = [Run(model, dataset, seed, keys, seed_folder(folder, seed)) for seed, keys in plans.items()]

    def start(one: Run) -> None:
        run(model, dataset, interactions=interactions, config_files=files, config_dict=Exact(one.keys or {}))

    by_seed = Experiment(runs).execute(start)[0][""]
    results = {seed: by_seed[seed] for seed in seeds}
    table = seeds_table(results)
    print(f"\n{table.text()}\n\n{table.note}", *table.save(folder, "seeds"), sep="\n")
    first = results[seeds[0]]
    summary = {key: first[key] for key in ("model", "dataset")} | {"seeds": seeds, "output_dir": str(folder)}
    for part in ("valid", "test"):
        rows = table.rows if first[part] else []
        summary[part] = {row["metric"]: {"mean": row[part], "std": row[f"{part} std"]} for row in rows}
    return {**summary, "results": results}


def read_seeds(seeds: str | Sequence[int], keys: Mapping[str, Any]) -> list[int]:
    """Return the seeds from a list or "1,2,3"; ConfigError for no seed, a repeated one, or a ``seed`` in ``keys``."""
    numbers = parse_value(seeds)
    numbers = list(numbers) if isinstance(numbers, list | tuple | range) else [numbers]
    if not numbers or not all(SETTINGS["seed"].allows(seed) for seed in numbers):
        raise ConfigError(f"seeds={seeds!r}: must be whole numbers from 0 to 2**32 - 1, such as --seeds=1,2,3")
    if repeated := [seed for seed in numbers if numbers.count(seed) > 1]:
        raise ConfigError(f"seeds={seeds!r}: {repeated[0]} is there twice; each seed is one run")
    for key in keys:
        if key.rpartition(".")[2] == "seed":
            raise ConfigError(f"--{key}={keys[key]} and --seeds are both set; leave out --{key}")
    return numbers
