"""``recbole-hyper inspect RUN``: what was trained on what, its metrics and curves, and where its items lie."""

import argparse

from recbole_hyper.commands import add_run

HELP = "describe a finished run: data, metrics, curves, item vectors against popularity, nearest items"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--output", help="folder of the figures and of items.csv; default: inspect/ in RUN")
    parser.add_argument("--port", type=int, help="show the page of the model on this port, until interrupted")
    parser.add_argument("--catalogue", help="table of items for the page, text or parquet")


def main(arguments: argparse.Namespace) -> None:
    """Print the tables; write the figures; show the page where a port is given."""
    from recbole_hyper.report.inspection import inspect_run

    print(inspect_run(arguments.run, arguments.output))
    if arguments.port is not None:
        from recbole_hyper.commands import serve

        serve.main(argparse.Namespace(host="127.0.0.1", workers=1, **vars(arguments)))
