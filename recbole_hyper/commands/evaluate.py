"""``recbole-hyper evaluate RUN``: rank a finished run again, on its own cases or on new interactions."""

import argparse

from recbole_hyper.commands import add_run, words

HELP = "rank a finished run again: other candidates, metrics, segments, or new interactions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a setting of the ranking."""
    add_run(parser)
    parser.add_argument("--data", help="csv or parquet of newer interactions, which become the test cases")
    parser.add_argument("--since", help="date or time from which on they are; default: the newest of the run's data")
    about = "such as history_length,item_popularity,user.new,item.COLUMN: each metric per segment"
    parser.add_argument("--segments", type=words, default="", help=about)


def main(arguments: argparse.Namespace) -> None:
    """Evaluate; the settings are in ``arguments.keys``."""
    from recbole_hyper.runs.evaluate import evaluate

    options = {"data": arguments.data, "since": arguments.since, "segments": arguments.segments}
    evaluate(arguments.run, arguments.keys, **options)
