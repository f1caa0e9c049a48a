"""The command line: the only place that reads sys.argv. A subcommand is a module of recbole_hyper.commands."""

import argparse
import contextlib
import importlib
import importlib.metadata
import os
import pkgutil
import platform
import sys
from collections.abc import Sequence
from typing import Any

from recbole_hyper import commands
from recbole_hyper.settings import COMMON, COMMON_OF_RANKING
from recbole_hyper.threads import limit_cached_kernels, limit_spinning

# subcommands that take configuration keys as --key=value beside their own options
TAKE_KEYS = {"run", "compare", "evaluate", "keys", "sweep"}
# commands whose help ends with the most common keys, and these keys
COMMON_KEYS = {"run": COMMON, "compare": COMMON, "sweep": COMMON, "evaluate": COMMON_OF_RANKING}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0, 1 for bad input, 2 for a bad command, 130 for Ctrl-C.

    141 is that of programs whose output is no longer read.
    """
    arguments = _parse(list(sys.argv[1:] if argv is None else argv))
    # before torch is imported
    limit_spinning()
    limit_cached_kernels()
    try:
        with _trusted(arguments):
            return int(arguments.main(arguments) or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has stopped (head, less): discard what is left in the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, FloatingPointError) as error:
        if getattr(arguments, "traceback", False):
            raise
        from recbole_hyper.outputs import printable

        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 1


def _trusted(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return a context in which the code of a run's folder may run, as far as the command line trusts it."""
    if not hasattr(arguments, "trust_plugins"):
        return contextlib.nullcontext()
    from recbole_hyper.runs.plugin_files import trusting

    return trusting(arguments.plugins, everything=arguments.trust_plugins)


class _Once(argparse._StoreAction):
    """An option with a value, which may be given once; twice the same value is one."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        given = vars(namespace).setdefault("given", {})
        if option_string and given.setdefault(self.dest, values) != values:
            parser.error(f"{option_string} is given twice, as {given[self.dest]!r} and as {values!r}")
        super().__call__(parser, namespace, values, option_string)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="recbole-hyper", description="Sequential recommendation for RecBole.")
    parser.add_argument("--version", action="store_true", help="show the versions of this package and of its host")
    if argv[:1] == ["--version"]:
        print(_versions())
        raise SystemExit(0)
    subs: dict[str, argparse.ArgumentParser] = {}
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in sorted(module.name for module in pkgutil.iter_modules(commands.__path__)):
        module = importlib.import_module(f"recbole_hyper.commands.{name}")
        sub = subparsers.add_parser(
            name.replace("_", "-"), help=module.HELP, description=module.HELP.replace("%%", "%"), allow_abbrev=False
        )
        subs[name.replace("_", "-")] = sub
        sub.register("action", None, _Once)
        sub.add_argument("--traceback", action="store_true", help="show where an error came from")
        module.add_arguments(sub)
        sub.set_defaults(main=module.main)
    _add_help_of_keys(argv, subs)
    argv, keys = _without_keys(argv, subs)
    arguments, rest = parser.parse_known_args(argv)
    if rest and arguments.command not in TAKE_KEYS:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    arguments.keys = _keys([*rest, *keys], parser)
    return arguments


def _versions() -> str:
    """Return the text of ``--version``: this package, RecBole, torch and Ray, without importing them."""
    others = [f"{name} {importlib.metadata.version(name)}" for name in ("recbole", "torch", "ray")]
    own = sys.modules["recbole_hyper"].__version__
    return f"recbole-hyper {own} ({', '.join(others)}, Python {platform.python_version()})"


def _add_help_of_keys(argv: list[str], subs: dict[str, argparse.ArgumentParser]) -> None:
    """End the requested help with the most common keys."""
    command = next((word for word in argv if not word.startswith("-")), "")
    if command in COMMON_KEYS and {"-h", "--help"} & set(argv):
        from recbole_hyper.settings import common_text

        subs[command].formatter_class = argparse.RawDescriptionHelpFormatter
        subs[command].epilog = common_text(COMMON_KEYS[command])


def _without_keys(argv: list[str], subs: dict[str, argparse.ArgumentParser]) -> tuple[list[str], list[str]]:
    """Return ``argv`` without its configuration keys, and the words of these.

    argparse would take ``--eval_args={mode: full}``, which has a space, for the argument that a command expects.
    """
    at = next((index for index, word in enumerate(argv) if not word.startswith("-")), len(argv))
    if at == len(argv) or argv[at] not in TAKE_KEYS or "--" in argv:
        return argv, []
    options = subs[argv[at]]._option_string_actions
    others, keys, words = argv[: at + 1], [], argv[at + 1 :]
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if not word.startswith("--") or name in options:
            others.append(word)
            continue
        keys.append(word)
        if not equals and words and not words[0].startswith("--"):
            keys.append(words.pop(0))
    return others, keys


def _keys(rest: list[str], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Turn ``--key=value`` and ``--key value`` into a dictionary; a flag without a value is True."""
    keys: dict[str, Any] = {}
    words = list(rest)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            parser.error(f"{word!r} is not of the form --key=value")
        key, equals, value = word[2:].partition("=")
        if not equals:
            value = _value_of(key, words, parser)
        if key in keys and keys[key] != value:
            parser.error(f"--{key} is given twice, as {keys[key]!r} and as {value!r}")
        keys[key] = value
    return keys


def _value_of(key: str, words: list[str], parser: argparse.ArgumentParser) -> str:
    """Take the value of ``--key`` from the words that follow it."""
    if words and words[0] and not words[0].startswith("--"):
        return words.pop(0)
    from recbole_hyper.config.binding import is_switch

    # compare's --MODEL.key
    if not is_switch(key.rpartition(".")[2]):
        parser.error(f"--{key} needs a value: --{key}=VALUE")
    return "True"
