"""``recbole-hyper reproduce RECIPE``: make a published table again, ours beside the published values."""

import argparse

from recbole_hyper.commands import options_of, words

HELP = "make a published table again: ours, published, difference, verdict"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", help="such as dualrec-table2-beauty, or your own recipe file")
    parser.add_argument("--list", action="store_true", help="list the recipes, then stop")
    parser.add_argument(
        "--budget", default="full", help="full (default); short: quicker settings; small: a few epochs, no verdict"
    )
    parser.add_argument("--rows", type=words, default="", help="rows to run, separated by commas; default: all")
    parser.add_argument("--output_dir", help="default: saved/reproduce-RECIPE-BUDGET; what is there is not run again")
    parser.add_argument("--data_path", help="folder that holds the data set's folder; default: dataset/")
    parser.add_argument("--n_seeds", type=int, default=1, help="seeds of every row")


def main(arguments: argparse.Namespace) -> None:
    """Run a recipe, or list them."""
    from recbole_hyper.config import ConfigError
    from recbole_hyper.evaluation.tables import table
    from recbole_hyper.report.recipes import read_recipe, recipes
    from recbole_hyper.report.reproduce import reproduce

    if arguments.list:
        read = [read_recipe(name) for name in recipes()]
        print(table([{"recipe": r.name, "dataset": r.dataset, "rows": len(r.rows), "about": r.about} for r in read]))
        return
    if not arguments.recipe:
        raise ConfigError("name a recipe, or see recbole-hyper reproduce --list")
    reproduce(arguments.recipe, **options_of(reproduce, arguments))
