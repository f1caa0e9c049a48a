"""``recbole-hyper keys [MODEL] [--key=value ...]``: the configuration keys that a model reads."""

import argparse

HELP = "list the configuration keys that a model reads: default, range, source and meaning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; a ``--key=value`` such as ``--loss_type=sce`` tells the keys of a model with that part."""
    parser.add_argument("model", nargs="?", help="default: every key that this package declares")


def main(arguments: argparse.Namespace) -> None:
    """Print a table with a row per key."""
    from recbole_hyper.config.tables import COLUMNS, declared, of_model
    from recbole_hyper.errors import ConfigError

    if arguments.model is None:
        if arguments.keys:
            raise ConfigError(f"--{next(iter(arguments.keys))} asks for the keys of a model; name it: keys MODEL")
        rows = declared()
    else:
        from recbole_hyper.config import Config

        # no data are looked for: a model reads the same keys whatever they are
        rows = of_model(Config(arguments.model, config_dict={"interactions": "given", **arguments.keys}))
    # one long value does not push all meanings to the right
    widths = {column: min(40, max(len(row[column]) for row in rows)) for column in COLUMNS[:-1]}
    for row in ({column: column for column in COLUMNS}, *rows):
        cells = [f"{row[column]:<{width}}" for column, width in widths.items()]
        print("  ".join([*cells, row[COLUMNS[-1]]]).rstrip())
