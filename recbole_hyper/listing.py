"""Names of parts and files with a line on each, read from docstrings and comments without importing anything."""

import ast
import inspect
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from recbole_hyper import registry
from recbole_hyper.bridge import models
from recbole_hyper.recbole_files import recbole_models
from recbole_hyper.yaml_files import properties_folder

# "SCE paper: recbole-hyper run --model=..." is about what follows
_COMMAND = re.compile(r"\b(recbole-hyper|python) [^-]*--.*")
_SENTENCE = re.compile(r"\.(?: (?=[A-Z])|$)")


@dataclass(frozen=True)
class Entry:
    """A name and its description in one line ("" if there is none); ``group`` is the heading above it, if any."""

    name: str
    about: str
    group: str = ""


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a docstring or comment in one line, without marks of its markup."""
    paragraph = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    return re.sub(r":math:|`|\*(?=\S)|(?<=\w)\*", "", _SENTENCE.split(paragraph)[0])


def parts(kind: str) -> list[Entry]:
    """Return the parts of one kind: of the package, of plugins that were loaded, of entry points."""
    folder = Path(__file__).parent / kind
    entries = [
        entry
        for file in sorted(folder.glob("*.py"))
        if not file.name.startswith("_")
        for entry in _registered(file, kind)
    ]
    entries += [
        Entry(name, first_sentence(cls.__doc__), "plugins") for name, cls in sorted(registry.plugin_parts(kind).items())
    ]
    entries += [
        Entry(point.name, point.value, "installed packages") for point in entry_points(group=f"recbole_hyper.{kind}")
    ]
    return sorted(entries, key=lambda entry: (entry.group != "", entry.group, entry.name.lower()))


def third_party_models() -> list[Entry]:
    """Return the RecBole models of the plugin files that were loaded, with the first sentence of their docstrings."""
    entries = []
    for name, cls in models.models().items():
        about = inspect.getdoc(cls) if cls.__doc__ else inspect.getdoc(inspect.getmodule(cls))
        entries.append(Entry(name, first_sentence(about), "plugins, RecBole models"))
    return entries


def _registered(file: Path, kind: str) -> Iterator[Entry]:
    """Yield the classes of a file that it registers in ``kind``."""
    for node in _classes(_parsed(file)):
        for call in node.decorator_list:
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "register"):
                continue
            given = [value.value for value in call.args if isinstance(value, ast.Constant)]
            if given and given[0] == kind:
                yield Entry(str([*given, node.name][1]), first_sentence(ast.get_docstring(node)))


def _parsed(file: Path) -> ast.Module:
    with warnings.catch_warnings():
        # docstrings of RecBole have backslashes that mean nothing
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
        # "Reference:", then the paper in a separate line
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
