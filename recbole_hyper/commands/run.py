"""``recbole-hyper run --model=NAME --dataset=NAME [--key=value ...]``: train, select, test, report."""

import argparse

from recbole_hyper.commands import add_dataset, options_of

HELP = "train a model, select on validation, test once, write result.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a configuration key."""
    parser.add_argument("-m", "--model", help="a model of this package, or a general or sequential model of RecBole")
    add_dataset(parser)
    parser.add_argument("--seeds", help="such as 1,2,3: a run with each in output_dir/seed-N, then mean and deviation")


def main(arguments: argparse.Namespace) -> None:
    """Run; configuration keys are in ``arguments.keys``."""
    from recbole_hyper.runs.run import run
    from recbole_hyper.runs.seeds import run_seeds

    start = run if arguments.seeds is None else run_seeds
    start(**options_of(start, arguments), config_dict=arguments.keys)
