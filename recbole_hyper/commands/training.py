"""Commands that train: ``run``, ``sweep`` and ``reproduce``."""

import argparse

from recbole_hyper.commands import MODEL, argument, command, dataset, duration, options_of, words
from recbole_hyper.settings import COMMON


@command(
    "train a model, select on validation, test once, write result.json",
    MODEL,
    *dataset(),
    argument("--seeds", help="such as 1,2,3: one run per seed in output_dir/seed-N, then mean and deviation"),
    example="run --model=FMLPRecMemory --dataset=ml-100k --output_dir=saved/first",
    keys=COMMON,
)
def run(arguments: argparse.Namespace) -> None:
    """Train and test a model, with one seed or several."""
    from recbole_hyper.experiment.seeds import run_seeds
    from recbole_hyper.runs.run import run

    start = run if arguments.seeds is None else run_seeds
    start(**options_of(start, arguments), config_dict=arguments.keys)


@command(
    "try the settings of a space, select on validation, test the winner once",
    MODEL,
    argument("--space", help="name in properties/sweep, YAML or RecBole hyper file; default: tune, for any model"),
    argument("--budget", default="full", help="full (default), or small for the small space in the file"),
    argument("--search", help="grid (default), random or optuna"),
    argument("--num_samples", type=int, help="settings of a random (10) or optuna (20) search; repeats of a grid"),
    argument("--scheduler", help="none (default), or asha to stop trials that fall behind"),
    argument("--max_concurrent", type=int, help="most trials at a time; default: as many as fit"),
    argument("--time_budget", type=duration, help="time of the search: 90s, 30m, 1h30m; a resume continues it"),
    argument("--ray_address", help="a running Ray cluster, host:port; default: one is started here"),
    argument("--resources", default="cpu=1", help="resources of each trial, such as cpu=2,gpu=0.5; default cpu=1"),
    *dataset("keys of all trials"),
    example="sweep --model=HSASRecCE --dataset=ml-100k --search=optuna --num_samples=20",
    keys=COMMON,
)
def sweep(arguments: argparse.Namespace) -> None:
    """Sweep; ``output_dir`` and ``resume`` are configuration keys."""
    from recbole_hyper.config import ConfigError
    from recbole_hyper.sweep import sweep

    text = arguments.resources
    try:
        resources = {name.strip(): float(value) for name, value in (entry.split("=") for entry in text.split(","))}
    except ValueError:
        resources = {"": 0.0}
    if not resources.keys() <= {"cpu", "gpu"}:
        raise ConfigError(f"resources={text!r}: cpu=NUMBER and gpu=NUMBER are expected, separated by a comma")
    sweep(**options_of(sweep, arguments) | {"resources": resources}, config_dict=arguments.keys)


@command(
    "reproduce a published table: our numbers, the published ones, difference, verdict",
    argument("recipe", nargs="?", help="such as dualrec-table2-beauty, or a recipe file"),
    argument("--list", action="store_true", help="list the recipes, then stop"),
    argument("--budget", default="full", help="full (default), short (quicker settings) or small (a few epochs only)"),
    argument("--rows", type=words, default="", help="rows to run, separated by commas; default: all"),
    argument("--output_dir", help="default: saved/reproduce-RECIPE-BUDGET; finished runs there are not repeated"),
    argument("--data_path", help="folder with the data set's folder; default: dataset/"),
    argument("--seeds", help="such as 1,2,3: train every row with each; shows means"),
    argument("--max_concurrent", type=int, help="most models that train at a time; default: one per core"),
    example="reproduce dualrec-table2-beauty --budget=small",
)
def reproduce(arguments: argparse.Namespace) -> None:
    """Run a recipe, or list them."""
    from recbole_hyper.config import ConfigError
    from recbole_hyper.evaluation.tables import table
    from recbole_hyper.report.recipes import read_recipe, recipes
    from recbole_hyper.report.reproduce import reproduce

    if arguments.list:
        read = [read_recipe(name) for name in recipes()]
        print(table([{"recipe": r.name, "dataset": r.dataset, "rows": len(r.rows), "about": r.about} for r in read]))
    elif not arguments.recipe:
        raise ConfigError("name a recipe; recbole-hyper reproduce --list lists them")
    else:
        reproduce(arguments.recipe, **options_of(reproduce, arguments))
