"""``recbole-hyper inspect RUN``: what was trained on what, its metrics and curves, and where its items lie."""

import argparse

from recbole_hyper.commands import add_run

HELP = "describe a finished run: data, metrics, curves, item vectors against popularity, nearest items"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--output", help="folder of the figures and of items.csv; default: inspect/ in RUN")


def main(arguments: argparse.Namespace) -> None:
    """Print the tables; write the figures."""
    from recbole_hyper.report.inspection import inspect_run

    print(inspect_run(arguments.run, arguments.output))
