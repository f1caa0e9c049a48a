"""Subcommands of recbole-hyper, one module each, and what several of them share."""

import argparse
from collections.abc import Callable
from inspect import signature
from typing import Any


def options_of(function: Callable[..., Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command that go by the names of parameters of ``function``."""
    parameters = signature(function).parameters
    return {name: value for name, value in vars(arguments).items() if name in parameters}


def words(text: str) -> list[str]:
    """Return the words between the commas of an option."""
    return [word.strip() for word in text.strip("[]").split(",") if word.strip()]


def files(text: str) -> list[str]:
    """Return the paths of ``--config_files``."""
    from recbole_hyper.config.binding import config_files

    return config_files(text)


def add_run(parser: argparse.ArgumentParser, about: str = "output_dir of the run") -> None:
    """Add the folder of a run, and which code of that folder may run."""
    parser.add_argument("run", help=about)
    parser.add_argument("--plugins", type=words, default=[], help="Python files that the run was trained with")
    parser.add_argument("--trust_plugins", action="store_true", help="run the Python files that the folder names")


def add_dataset(parser: argparse.ArgumentParser, keys: str = "keys", *, required: bool = False) -> None:
    """Add the options that name a data set, and files with ``keys``."""
    about, several = "folder below data_path that holds NAME.inter; ml-100k is built in", "separated by spaces"
    parser.add_argument("-d", "--dataset", required=required, help=about)
    parser.add_argument("--config_files", type=files, default="", help=f"YAML files with {keys}, {several}")
