"""Subcommands of recbole-hyper: functions with their help and options; each imports what it needs when it is called."""

import argparse
import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from recbole_hyper.yaml_files import config_files

# the arguments of argparse's add_argument
Argument = tuple[tuple[str, ...], dict[str, Any]]
Main = Callable[[argparse.Namespace], int | None]


@dataclass(frozen=True)
class Command:
    """A subcommand, with an ``example`` of its words.

    ``keys`` are the configuration keys in its help, None if it does not accept ``--key=value``.
    """

    help: str
    arguments: tuple[Argument, ...]
    main: Main
    example: str
    keys: Sequence[str] | None


# by name
COMMANDS: dict[str, Command] = {}
# the way of a newcomer, which --help begins with
_FIRST = ("prepare", "run", "recommend")


def command(text: str, *arguments: Argument, example: str, keys: Sequence[str] | None = None) -> Callable[[Main], Main]:
    """Register the decorated function as the subcommand of its name, with the help ``text`` and an ``example``."""

    def named(main: Main) -> Main:
        COMMANDS[main.__name__.rstrip("_")] = Command(text, arguments, main, example, keys)
        return main

    return named


def all_commands() -> dict[str, Command]:
    """Return every subcommand by its name, in the order of ``--help``."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return {name: COMMANDS[name] for name in [*_FIRST, *sorted(COMMANDS.keys() - _FIRST)]}


def argument(*names: str, **settings: Any) -> Argument:
    """Return an argument of a subcommand, for argparse's add_argument."""
    return names, settings


def options_of(function: Callable[..., Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command that are parameters of ``function``."""
    parameters = signature(function).parameters
    return {name: value for name, value in vars(arguments).items() if name in parameters}


def words(text: str) -> list[str]:
    """Return the comma-separated words of an option, which may be in brackets."""
    inner = re.fullmatch(r"\s*\[([^\[\]]*)\]\s*", text)
    return [word.strip() for word in (inner[1] if inner else text).split(",") if word.strip()]


def duration(text: str) -> float:
    """Return the seconds of a time such as 90, 90s, 30m, 1.5h or 1h30m."""
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?|([\d.]+)", text.strip())
    try:
        if match is None or not text.strip():
            raise ValueError(text)
        return sum(size * float(part or 0) for size, part in zip((3600, 60, 1, 1), match.groups(), strict=True))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a time such as 90s, 30m or 1h30m is expected") from None


def finished_run(text: str = "output_dir of the run") -> tuple[Argument, ...]:
    """Return the arguments that name the folder of a run, and say which of its code may run."""
    return (
        argument("run", help=text),
        argument("--plugins", type=words, default=[], help="Python files that the run was trained with"),
        argument("--trust_plugins", action="store_true", help="run the Python files that the folder names"),
    )


def dataset(keys: str = "keys", *, required: bool = False) -> tuple[Argument, ...]:
    """Return the options that name a data set and configuration files; ``keys`` describes these files."""
    about = "folder below data_path with NAME.inter; ml-100k is built in"
    return (
        argument("-d", "--dataset", required=required, help=about),
        argument("--config_files", type=config_files, default="", help=f"YAML files with {keys}, separated by spaces"),
    )


MODEL = argument("-m", "--model", help="a model of this package, or a general or sequential model of RecBole")
