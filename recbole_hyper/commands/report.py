"""``recbole-hyper report DIR...``: leaderboard, costs, hyper-parameters, curves, as one HTML page, csv and figures."""

import argparse
from pathlib import Path

from recbole_hyper.commands import words

HELP = "one HTML page, csv, markdown and figures over runs and sweeps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders of runs or sweeps, or any above them")
    parser.add_argument("--output", help="folder of the report; default: report/ in the first DIR")
    about = "such as history_length,item_popularity,item.COLUMN: the test metric per segment, with a figure"
    parser.add_argument("--segments", type=words, default="", help=about)
    parser.add_argument("--metric", default="ndcg@10", help="validation metric of the cost figures; default ndcg@10")


def main(arguments: argparse.Namespace) -> None:
    """Write the report and print its path."""
    from recbole_hyper.report.build import build_report

    output = arguments.output or Path(arguments.folders[0]) / "report"
    print(build_report(arguments.folders, output, arguments.metric.lower(), arguments.segments))
