"""``recbole-hyper tune --model=NAME --dataset=NAME --time_budget=1h``: a sweep that needs no space and no choice."""

import argparse

from recbole_hyper.commands import options_of
from recbole_hyper.commands.sweep import add_shared_arguments, duration, parse_resources

HELP = "search the bundled space of a model on validation for a given time, and test the winner once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a configuration key of all trials."""
    parser.add_argument("-m", "--model", help="a model of this package but Pop; others need a space")
    budget = "of the search: 90s, 30m, 1h30m; default 1h. a winner that was stopped is then trained to its end"
    parser.add_argument("--time_budget", type=duration, default=3600.0, help=budget)
    parser.add_argument("--space", default="tune", help="search space; default: tune, of properties/sweep")
    parser.add_argument("--num_samples", type=int, default=50, help="most trials; default 50")
    parser.add_argument("--executor", default="ray", help="ray (default), or local: one after another, none stopped")
    add_shared_arguments(parser)


def main(arguments: argparse.Namespace) -> None:
    """Draw settings at random, let those that fall behind go, and test the best (``recbole_hyper.sweep.sweep``)."""
    from recbole_hyper.sweep import sweep

    options = options_of(sweep, arguments) | {"resources": parse_resources(arguments.resources)}
    if arguments.keys.get("resume"):
        options["space"] = None
    scheduler = "asha" if arguments.executor == "ray" else "none"
    sweep(**options, config_dict=arguments.keys, search="random", scheduler=scheduler)
