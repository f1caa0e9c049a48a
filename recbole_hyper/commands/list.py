"""``recbole-hyper list [KIND]``: everything that has a name, one line each."""

import argparse
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

from recbole_hyper.commands import words
from recbole_hyper.listing import Entry, files, parts, stock_models, third_party_models

HELP = "list models, losses, encoders, geometries, protocols, datasets, spaces or recipes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", nargs="?", help=f"{', '.join(KINDS)}; default: the names of all")
    parser.add_argument("--plugins", type=words, default="", help="Python files with your parts, separated by commas")


def main(arguments: argparse.Namespace) -> None:
    """Print the entries of one kind, or the names of all kinds."""
    from recbole_hyper.errors import ConfigError, did_you_mean
    from recbole_hyper.registry import load_plugins

    if arguments.kind is not None and arguments.kind not in KINDS:
        hint = did_you_mean(arguments.kind, KINDS, n=1) or f"; known: {', '.join(KINDS)}"
        raise ConfigError(f"no list is called {arguments.kind!r}{hint}")
    load_plugins(arguments.plugins)
    if arguments.kind is not None:
        print("\n".join(lines(KINDS[arguments.kind]())))
        return
    for kind, entries in KINDS.items():
        print("\n".join(summary(kind, entries())))
    print(f"\nrecbole-hyper list KIND says what each is; KIND is one of {', '.join(KINDS)}")


def lines(entries: list[Entry]) -> list[str]:
    """Return a line per entry, under a heading for each group."""
    width = max((len(entry.name) for entry in entries), default=0)
    printed, group = [], ""
    for entry in entries:
        if entry.group != group:
            group = entry.group
            printed += ["", f"{group}:"]
        printed.append(f"{entry.name:<{width}}  {entry.about}".rstrip())
    return printed


def summary(kind: str, entries: list[Entry]) -> list[str]:
    """Return the names of a kind, by group, in lines of at most 100 characters."""
    printed = []
    for group in dict.fromkeys(entry.group for entry in entries):
        names = [entry.name for entry in entries if entry.group == group]
        title = f"{kind} ({group})" if group else kind
        text = f"{title}, {len(names)}: {', '.join(names)}"
        printed += textwrap.wrap(text, 100, subsequent_indent="    ", break_on_hyphens=False)
    return printed


def _models() -> list[Entry]:
    # of two models with one name the first one runs
    by_name: dict[str, Entry] = {}
    for entry in [*third_party_models(), *parts("models"), *stock_models()]:
        by_name.setdefault(entry.name, entry)
    return list(by_name.values())


def _protocols() -> list[Entry]:
    named = [Entry(one.name, one.about, "settings of papers, --config_files=NAME") for one in files("protocol")]
    return [*parts("protocols"), *named]


def _datasets() -> list[Entry]:
    from recbole_hyper.yaml_files import properties_folder, read_yaml

    known = {name: entry["about"] for name, entry in read_yaml(properties_folder() / "public_datasets.yaml").items()}
    here = sorted(file.stem for file in Path("dataset").glob("*/*.inter") if file.parent.name == file.stem)
    entries = [Entry(name, about) for name, about in known.items()]
    return entries + [Entry(name, known.get(name, ""), "prepared, in dataset/") for name in here]


def _recipes() -> list[Entry]:
    from recbole_hyper.report.recipes import read_recipe, recipes

    read = [read_recipe(name) for name in recipes()]
    return [Entry(recipe.name, f"{recipe.about}; data set {recipe.dataset}") for recipe in read]


KINDS: dict[str, Callable[[], list[Entry]]] = {
    "models": _models,
    "losses": partial(parts, "losses"),
    "encoders": partial(parts, "encoders"),
    "geometries": partial(parts, "geometry"),
    "protocols": _protocols,
    "datasets": _datasets,
    "spaces": partial(files, "sweep"),
    "recipes": _recipes,
}
