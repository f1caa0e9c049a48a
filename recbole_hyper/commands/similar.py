"""``recbole-hyper similar RUN ITEM...``: the items most like some, by the geometry of a finished run."""

import argparse

from recbole_hyper.commands import add_run

HELP = "list the items that a finished run holds most like the given ones"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("items", nargs="+", metavar="ITEM", help="original item id")
    parser.add_argument("--k", type=int, default=10, help="neighbours of each (default 10)")


def main(arguments: argparse.Namespace) -> None:
    """Print a row per neighbour, and what was measured."""
    from recbole_hyper.evaluation.tables import frame_table
    from recbole_hyper.runs.load import load

    similar = load(arguments.run).similar_items(arguments.items, arguments.k)
    print(frame_table(similar))
    print(f"score: {similar.attrs['measure']}")
