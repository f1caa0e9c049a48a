"""The command line, which alone reads sys.argv; the subcommands are functions in recbole_hyper.commands."""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Sequence
from typing import Any

from recbole_hyper.commands import all_commands
from recbole_hyper.settings import common_text
from recbole_hyper.threads import limit_cached_kernels, limit_spinning

# ~/ at the start of a path; a shell replaces it only at the start of a word
_HOME = re.compile(r"(^|=|,|\[)~(?=/)")


def _home(found: re.Match[str]) -> str:
    return found[1] + os.path.expanduser("~")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status.

    It is 0, 1 for bad input, 2 for a bad command, 130 for Ctrl-C, and 141 if nobody reads the output any more.
    """
    arguments = _parse([_HOME.sub(_home, word) for word in (sys.argv[1:] if argv is None else argv)])
    # before torch is imported
    limit_spinning()
    limit_cached_kernels()
    try:
        with _trusted(arguments):
            return int(arguments.main(arguments) or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has stopped (head, less): discard the rest of the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, FloatingPointError) as error:
        if getattr(arguments, "traceback", False):
            raise
        from recbole_hyper.files import printable

        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 1


def _trusted(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return a context in which the code in a run's folder may run, if the command line trusts it."""
    if not hasattr(arguments, "trust_plugins"):
        return contextlib.nullcontext()
    from recbole_hyper.runs.plugin_files import trusting

    return trusting(arguments.plugins, everything=arguments.trust_plugins)


class _Once(argparse._StoreAction):
    """An option that may have one value only; it may be repeated with the same value."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        earlier = vars(namespace).setdefault("typed", {})
        if option_string and str(earlier.setdefault(self.dest, values)) != str(values):
            parser.error(f"{option_string} is given twice, as {earlier[self.dest]!r} and as {values!r}")
        super().__call__(parser, namespace, values, option_string)


class _Completion(argparse.Action):
    """An option that prints the script of a shell, and ends the command."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            import shtab
        except ImportError:
            parser.error(f"{option_string} needs the package shtab: pip install shtab")
        print(shtab.complete(parser, values))
        parser.exit()


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="recbole-hyper", description="Sequential recommendation for RecBole.")
    parser.add_argument(
        "--version", action="store_true", help="show the versions of this package, RecBole, torch and Ray"
    )
    about = "print a script that completes commands and options in that shell"
    parser.add_argument("--print-completion", choices=("bash", "zsh", "tcsh"), action=_Completion, help=about)
    if argv[:1] == ["--version"]:
        print(_versions())
        raise SystemExit(0)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands = all_commands()
    at = next((index for index, word in enumerate(argv) if not word.startswith("-")), len(argv))
    keys: list[tuple[str, str | None]] = []
    subs: dict[str, argparse.ArgumentParser] = {}
    for name, command in commands.items():
        description = command.help.replace("%%", "%")
        sub = subs[name] = subparsers.add_parser(
            name,
            help=command.help,
            description=description,
            epilog=f"example:\n  {parser.prog} {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.register("action", None, _Once)
        sub.add_argument("--traceback", action="store_true", help="show the traceback of an error")
        for names, settings in command.arguments:
            sub.add_argument(*names, **settings)
        sub.set_defaults(main=command.main)
        if argv[at : at + 1] == [name] and command.keys is not None:
            if command.keys and {"-h", "--help"} & set(argv):
                sub.epilog = f"{sub.epilog}\n\n{common_text(command.keys)}"
            others, keys = _split_keys(argv[at + 1 :], sub)
            argv = [*argv[: at + 1], *others]
    arguments, rest = parser.parse_known_args(argv)
    if rest and commands[arguments.command].keys is None:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if rest:
        parser.error(f"{rest[0]!r} is not of the form --key=value (in a list write commas: --models=Pop,EASER)")
    arguments.keys = _values(keys, subs[arguments.command])
    return arguments


def _versions() -> str:
    """Return the text of ``--version``: this package, RecBole, torch and Ray, without importing them."""
    others = [f"{name} {importlib.metadata.version(name)}" for name in ("recbole", "torch", "ray")]
    own = sys.modules["recbole_hyper"].__version__
    return f"recbole-hyper {own} ({', '.join(others)}, Python {platform.python_version()})"


def _split_keys(words: list[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Return the words for argparse, and the keys of ``--key=value`` and ``--key value``, with None for no value.

    argparse would take ``--eval_args={mode: full}``, which has a space, for a positional argument.
    """
    others, keys, words = list[str](), list[tuple[str, str | None]](), list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") or name in parser._option_string_actions:
            others.append(word)
        elif equals:
            keys.append((name, value))
        else:
            keys.append((name, words.pop(0) if words and words[0] and not words[0].startswith("--") else None))
    return others, keys


def _values(keys: list[tuple[str, str | None]], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the keys of a command line with their values; a flag without a value is True."""
    values: dict[str, Any] = {}
    for name, value in keys:
        key = name[2:]
        if value is None:
            from recbole_hyper.config.binding import is_switch

            # compare has --MODEL.key
            if not is_switch(key.rpartition(".")[2]):
                parser.error(f"{name} needs a value: {name}=VALUE")
            value = "True"
        if key.rpartition(".")[2] in ("metrics", "topk") and "," in value and not value.startswith("["):
            value = f"[{value}]"
        if values.setdefault(key, value) != value:
            parser.error(f"{name} is given twice, as {values[key]!r} and as {value!r}")
    return values
