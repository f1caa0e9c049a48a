"""The commands ``list`` and ``keys``; descriptions of parts and files are read without importing them."""

import argparse
import ast
import inspect
import itertools
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from recbole_hyper import registry
from recbole_hyper.commands import argument, command, words
from recbole_hyper.host import models
from recbole_hyper.host.recbole_files import recbole_models
from recbole_hyper.models import MODULES
from recbole_hyper.yaml_files import packaged_yaml, properties_folder, recbole_folder

PACKAGE = Path(__file__).parents[1]
# the command in an opening comment such as "SCE paper: recbole-hyper run --model=..."
_COMMAND = re.compile(r"\b(recbole-hyper|python) [^-]*--.*")
_SENTENCE = re.compile(r"\.(?: (?=[A-Z])|$)")


class Entry(NamedTuple):
    """A name, its description in one line, and the heading above it; "" for none."""

    name: str
    about: str
    group: str = ""


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a docstring or comment in one line, without markup."""
    paragraph = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    return re.sub(r":math:|`|\*(?=\S)|(?<=\w)\*", "", _SENTENCE.split(paragraph)[0])


def parts(kind: str) -> list[Entry]:
    """Return the parts of one kind: the package's, those of loaded plugins, those of installed packages."""
    entries = list(_in_package(kind))
    plugins = sorted(registry.plugin_parts(kind).items())
    entries += [Entry(name, first_sentence(cls.__doc__), "plugins") for name, cls in plugins]
    points = entry_points(group=f"recbole_hyper.{kind}")
    entries += [Entry(point.name, point.value, "installed packages") for point in points]
    return sorted(entries, key=lambda entry: (entry.group != "", entry.group, entry.name.lower()))


def _in_package(kind: str) -> Iterator[Entry]:
    """Yield the package's parts, by the rules of :mod:`recbole_hyper.registry`."""
    trees = {file.stem: _parsed(file) for file in sorted((PACKAGE / kind).glob("*.py")) if file.stem != "__init__"}
    if kind == "models":
        for name, file in MODULES.items():
            yield from (Entry(name, _about(node)) for node in _classes(trees[file]) if node.name == name)
        return
    known = {node.name for node in _classes(trees["base"])}
    while more := {node.name for tree in trees.values() for node in _classes(tree) if known & _bases(node)} - known:
        known |= more
    for file, tree in trees.items():
        parts = [node for node in _classes(tree) if node.name in known]
        if kind == "protocols":
            named = ((name, node) for node in parts if (name := _name_of_protocol(node)))
            yield from (Entry(name, _about(node)) for name, node in named)
        elif parts and file != "base" and not file.startswith("_"):
            yield Entry(file, _about(parts[-1]))


def _about(node: ast.ClassDef | ast.FunctionDef) -> str:
    return first_sentence(ast.get_docstring(node))


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def _name_of_protocol(node: ast.ClassDef) -> str:
    """Return the value of ``name = "..."`` in a class, "" for none."""
    for line in node.body:
        if (
            isinstance(line, ast.Assign)
            and ast.unparse(line.targets[0]) == "name"
            and isinstance(line.value, ast.Constant)
        ):
            return str(line.value.value)
    return ""


def _parsed(file: Path) -> ast.Module:
    with warnings.catch_warnings():
        # RecBole's docstrings have invalid escape sequences
        warnings.simplefilter("ignore")
        return ast.parse(file.read_text(encoding="utf-8"))


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def stock_models() -> list[Entry]:
    """Return RecBole's general and sequential models, with the first sentence of their docstrings."""
    entries = []
    for name, file in sorted(recbole_models().items()):
        tree = _parsed(file)
        own = next((ast.get_docstring(node) for node in _classes(tree) if node.name == name), None)
        # the line after "Reference:" names the paper
        paper = (ast.get_docstring(tree) or "").partition("Reference:\n")[2].strip().partition("\n")[0]
        entries.append(Entry(name, first_sentence(own) or paper, f"RecBole, {file.parent.name.partition('_')[0]}"))
    return sorted(entries, key=lambda entry: entry.group)


def files(folder: str) -> list[Entry]:
    """Return the YAML files of ``properties/<folder>`` with the first sentence of their opening comment."""
    paths = sorted((properties_folder() / folder).glob("*.yaml"))
    return [Entry(path.stem, opening(path.read_text(encoding="utf-8"))) for path in paths]


def opening(text: str) -> str:
    """Return the first sentence of a YAML file's opening comment, without the command in it."""
    lines = [line.lstrip("# ") for line in itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())]
    return first_sentence(" ".join(filter(None, (_COMMAND.sub("", line) for line in lines))))


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
    """Return the names of one kind by group, in lines of at most 100 characters."""
    printed = []
    for group in dict.fromkeys(entry.group for entry in entries):
        names = [entry.name for entry in entries if entry.group == group]
        title = f"{kind} ({group})" if group else kind
        text = f"{title}, {len(names)}: {', '.join(names)}"
        printed += textwrap.wrap(text, 100, subsequent_indent="    ", break_on_hyphens=False)
    return printed


def _models() -> list[Entry]:
    third_party = []
    for name, cls in models.models().items():
        about = inspect.getdoc(cls) if cls.__doc__ else inspect.getdoc(inspect.getmodule(cls))
        third_party.append(Entry(name, first_sentence(about), "plugins, RecBole models"))
    # if two models have the same name, the first one runs
    by_name: dict[str, Entry] = {}
    for entry in [*third_party, *parts("models"), *stock_models()]:
        by_name.setdefault(entry.name, entry)
    return list(by_name.values())


def _protocols() -> list[Entry]:
    named = [Entry(one.name, one.about, "settings of papers, --config_files=NAME") for one in files("protocol")]
    return [*parts("protocols"), *named]


def _datasets() -> list[Entry]:
    public = packaged_yaml(properties_folder() / "public_datasets.yaml")
    known = {name: entry["about"] for name, entry in public.items()}
    here = sorted(file.stem for file in Path("dataset").glob("*/*.inter") if file.parent.name == file.stem)
    entries = [Entry(name, about) for name, about in known.items()]
    return entries + [Entry(name, known.get(name, ""), "prepared, in dataset/") for name in here]


def _metrics() -> list[Entry]:
    """Return this package's metrics, which are functions with cut-offs, and RecBole's metrics of rankings."""
    functions = [
        node
        for node in _parsed(PACKAGE / "evaluation" / "beyond_accuracy.py").body
        if isinstance(node, ast.FunctionDef) and "topk" in [one.arg for one in node.args.args]
    ]
    own = [Entry(node.name.title().replace("_", ""), _about(node)) for node in functions]
    classes = _classes(_parsed(recbole_folder() / "evaluator" / "metrics.py"))
    ranked = [node for node in classes if "LossMetric" not in _bases(node)]
    return own + [Entry(node.name, _about(node).replace("_", ""), "RecBole") for node in ranked]


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
    "metrics": _metrics,
    "datasets": _datasets,
    "spaces": partial(files, "sweep"),
    "recipes": _recipes,
}


@command(
    "list models, losses, encoders, geometries, protocols, metrics, datasets, spaces or recipes",
    argument("kind", nargs="?", help=f"{', '.join(KINDS)}; default: the names of all"),
    argument("--plugins", type=words, default="", help="Python files with your parts, separated by commas"),
    example="list losses",
)
def list_(arguments: argparse.Namespace) -> None:
    """Print the entries of one kind, or the names of all kinds."""
    from recbole_hyper.errors import ConfigError, did_you_mean

    if arguments.kind is not None and arguments.kind not in KINDS:
        hint = did_you_mean(arguments.kind, KINDS, n=1) or f"; known: {', '.join(KINDS)}"
        raise ConfigError(f"no list is called {arguments.kind!r}{hint}")
    registry.load_plugins(arguments.plugins)
    if arguments.kind is not None:
        print("\n".join(lines(KINDS[arguments.kind]())))
        return
    for kind, entries in KINDS.items():
        print("\n".join(summary(kind, entries())))
    print(f"\nrecbole-hyper list KIND describes each; KIND is one of {', '.join(KINDS)}")


@command(
    "list the configuration keys that a model reads: default, range, source and meaning",
    argument("model", nargs="?", help="default: every key that this package declares"),
    example="keys HSASRecCE",
    keys=(),
)
def keys(arguments: argparse.Namespace) -> None:
    """Print a table with a row per key; with ``--loss_type=sce``, for example, of the model with that loss."""
    from recbole_hyper.config import Config
    from recbole_hyper.config.tables import COLUMNS, declared, of_model
    from recbole_hyper.errors import ConfigError

    if arguments.model is not None:
        # a model reads the same keys whatever the data are, so none are needed
        rows = of_model(Config(arguments.model, config_dict={"interactions": "given", **arguments.keys}))
    elif arguments.keys:
        raise ConfigError(f"--{next(iter(arguments.keys))} needs a model; write keys MODEL --KEY=VALUE")
    else:
        rows = declared()
    # one long value should not push all meanings to the right
    widths = {column: min(40, max(len(row[column]) for row in rows)) for column in COLUMNS[:-1]}
    for row in ({column: column for column in COLUMNS}, *rows):
        cells = [f"{row[column]:<{width}}" for column, width in widths.items()]
        print("  ".join([*cells, row[COLUMNS[-1]]]).rstrip())
