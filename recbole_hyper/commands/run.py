"""``recbole-hyper run --model=NAME --dataset=NAME [--key=value ...]``: train, select, test, report."""

from __future__ import annotations

import argparse

HELP = "train a model, select on validation, test once, write result.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a configuration key."""
    parser.add_argument("--model", help="a model of this package, or a general or sequential model of RecBole")
    parser.add_argument("--dataset", help="folder below data_path that holds NAME.inter; ml-100k is built in")
    parser.add_argument("--config_files", default="", help="YAML files, separated by spaces; later ones win")
    parser.add_argument("--seeds", help="such as 1,2,3: a run with each in output_dir/seed-N, then mean and deviation")


def main(arguments: argparse.Namespace) -> int:
    """Run; configuration keys are in ``arguments.keys``."""
    from recbole_hyper.config import config_files
    from recbole_hyper.runs.run import run
    from recbole_hyper.runs.seeds import run_seeds

    files = config_files(arguments.config_files)
    if arguments.seeds is not None:
        keys = arguments.keys
        run_seeds(arguments.model, arguments.dataset, seeds=arguments.seeds, config_files=files, config_dict=keys)
        return 0
    run(arguments.model, arguments.dataset, config_files=files, config_dict=arguments.keys)
    return 0
