"""``recbole-hyper evaluate RUN --eval_args="{mode: full}"``: rank the cases of a finished run again."""

import argparse

HELP = "rank the cases of a finished run again, under another mode, other metrics or with intervals"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a setting of the ranking."""
    parser.add_argument("run", help="output_dir of the run")


def main(arguments: argparse.Namespace) -> None:
    """Evaluate; the settings are in ``arguments.keys``."""
    from recbole_hyper.runs.evaluate import evaluate

    evaluate(arguments.run, arguments.keys)
