"""Data flow one way: no import points from an earlier room to a later one, also inside functions and by name."""

import ast
import functools
import re
import textwrap
from pathlib import Path

import pytest

import recbole_hyper

ROOT = Path(recbole_hyper.__file__).parent

# the rooms, in alphabetical order; their floors follow from what they import
ROOMS = [
    "__init__", "__main__", "batches", "cli", "cluster", "commands", "config", "curvature", "data", "devices",
    "encoders", "errors", "evaluation", "experiment", "files", "functional", "geometry", "host", "hosted",
    "hyperbolic", "kernels", "losses", "matmul", "models", "options", "plugin_files", "processes", "protocols",
    "random_numbers", "registry", "report", "runs", "serving", "settings", "svd", "sweep", "threads", "training",
    "types", "values", "yaml_files",
]  # fmt: skip
MOST_FLOORS = 15
# a module in a string, as for importlib: "recbole_hyper.runs.run" or "recbole_hyper.losses.ce:CrossEntropy"
_NAME = re.compile(r"(recbole_hyper(?:\.\w+)+)(?::\w+)?")


def module_of(file: Path) -> str:
    parts = ("recbole_hyper", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in ROOT.rglob("*.py")}


@functools.cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def packages(file: Path) -> set[str]:
    """Return the packages that a file imports anywhere."""
    nodes = list(ast.walk(tree_of(file)))
    modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in modules}


@functools.cache
def imports(module: str) -> set[str]:
    """Return the modules of the package that ``module`` imports anywhere in its file, or names in a string."""
    return imports_in(tree_of(MODULES[module]), module)


def imports_in(source: ast.Module, module: str) -> set[str]:
    """Return the modules that ``source`` imports, for the file of ``module``."""
    named = set()
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports are written in full"
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (name := _NAME.fullmatch(node.value)):
            named.add(name[1])
    named = {name for name in named if name.split(".")[0] == "recbole_hyper"}
    found = {name if name in MODULES else name.rpartition(".")[0] for name in named}
    return (found & MODULES.keys()) - {module}


def room(module: str) -> str:
    """Return the room of a module: its first folder or file."""
    return (*module.split("."), "__init__")[1]


def floors(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the rooms by floor: each room is above all that it imports. AssertionError for a circle of rooms."""
    found: list[set[str]] = []
    while graph:
        floor = {name for name, others in graph.items() if not others & graph.keys()}
        assert floor, f"no order of these rooms: {circle(graph)}"
        found.append(floor)
        graph = {name: others for name, others in graph.items() if name not in floor}
    return found


def test_imports_inside_functions_and_by_name_are_seen() -> None:
    source = """
        def f():
            from recbole_hyper.runs import run
            import_module("recbole_hyper.runs.estimator")
            TABLE = {"ce": "recbole_hyper.losses.ce:CrossEntropy"}
    """
    named = {"recbole_hyper.runs.run", "recbole_hyper.runs.estimator", "recbole_hyper.losses.ce"}
    assert imports_in(ast.parse(textwrap.dedent(source)), "recbole_hyper.files") == named


def test_rooms_import_one_way() -> None:
    """The root names the functions of runs for users, but imports only the patches."""
    assert sorted({room(module) for module in MODULES}) == ROOMS
    graph: dict[str, set[str]] = {name: set() for name in ROOMS}
    for own in MODULES:
        graph[room(own)] |= {room(other) for other in imports(own)} - {room(own)}
    found = floors(graph)
    assert len(found) <= MOST_FLOORS, found
    assert floors({"a": {"b"}, "b": {"c"}, "c": set()}) == [{"c"}, {"b"}, {"a"}]
    with pytest.raises(AssertionError) as error:
        floors({"a": {"b"}, "b": {"a"}})
    assert "no order" in str(error.value)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one circle in order, [] where there is none."""
    while ends := {module for module, others in graph.items() if not others}:
        graph = {module: others - ends for module, others in graph.items() if module not in ends}
    path = list(graph)[:1]
    while path and (following := min(graph[path[-1]])) not in path:
        path.append(following)
    return path[path.index(following) :] if path else []


def test_no_circle_of_imports() -> None:
    """Importing a module imports its packages too; the root, which imports nothing but the patches, is left out."""
    graph = {}
    for own in MODULES:
        found = imports(own)
        packages = {name for name in MODULES for other in found if other.startswith(f"{name}.")}
        above = {name for name in packages if f"{own}.".startswith(f"{name}.")}
        graph[own] = found | (packages - above)
    assert circle(graph) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]


# what the store, the loaders and runs use of the tables: readers of atomic files, of frames and of what callers pass
READERS = ("atomic", "download", "filters", "ids", "inputs", "interactions", "times")


def test_tables_have_one_door() -> None:
    place = "recbole_hyper.data.tables."
    inside = {module for module in MODULES if module.startswith(place)}
    below = {other for module in inside for other in imports(module)} - inside - {place[:-1]}
    assert {room(other) for other in below} == {"errors", "files", "kernels", "processes", "threads", "yaml_files"}
    outside = {module for module in MODULES if room(module) in ("data", "batches", "runs")} - inside
    assert {other for module in outside for other in imports(module)} & inside <= {place + name for name in READERS}


# the rooms that know RecBole, the base class of models, and the loaders, whose batches are RecBole's
KNOW_RECBOLE = ("batches/", "host/", "hosted/", "models/base.py")


def test_only_host_imports_recbole() -> None:
    """All other files use RecBole through these."""
    importing = []
    for file in ROOT.rglob("*.py"):
        if "recbole" in packages(file):
            importing.append(file.relative_to(ROOT).as_posix())
    assert len(importing) > 8
    assert [file for file in importing if not file.startswith(KNOW_RECBOLE)] == []


# below runs, functions get values; these take the whole configuration, as RecBole's classes do, and read it once
DOORS = (
    "batches/loader.py:BatchSettings.of",
    "data/source.py:Source.of",
    "evaluation/scorers.py:full_sort_scorer",
    "protocols/base.py:make_split",
    "training/progress.py:Training.__init__",
    "training/recbole_training.py:recbole_training",
)
BELOW_RUNS = ("batches", "curvature", "data", "evaluation", "protocols", "training")


def test_below_runs_only_doors_take_the_whole_configuration() -> None:
    found = set()
    for file in (file for room in BELOW_RUNS for file in (ROOT / room).rglob("*.py")):
        pending: list[tuple[str, ast.AST]] = [("", tree_of(file))]
        while pending:
            prefix, node = pending.pop()
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.FunctionDef | ast.ClassDef):
                    continue
                if isinstance(child, ast.FunctionDef):
                    arguments = child.args
                    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
                    if "config" in names:
                        found.add(f"{file.relative_to(ROOT).as_posix()}:{prefix}{child.name}")
                pending.append((f"{prefix}{child.name}.", child))
    assert found == set(DOORS)


def test_only_patches_change_other_packages() -> None:
    """Only hosted/patches assigns to attributes of imported recbole, numpy, pandas, scipy or torch modules."""
    wrong = []
    for file in ROOT.rglob("*.py"):
        if file.parent.name == "patches":
            continue
        tree = tree_of(file)
        hosts = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name.split(".")[0] in ("recbole", "numpy", "pandas", "scipy")
        }
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                base = target
                while isinstance(base, ast.Attribute):
                    base = base.value
                if isinstance(target, ast.Attribute) and isinstance(base, ast.Name) and base.id in hosts:
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    # RecBole's trainers are lent other loggers while they are built, which are then taken back
    assert [entry for entry in wrong if not entry.startswith("host/loggers.py")] == []


def test_what_is_compiled_stands_in_kernels() -> None:
    """numba is imported in kernels/ only, where every file names its plain twin and what it is kept for."""
    for file in ROOT.rglob("*.py"):
        if "numba" in packages(file):
            assert file.parent == ROOT / "kernels", file
            description = ast.get_docstring(tree_of(file)) or ""
            assert "Plain twin: " in description, file
            assert "Kept for: " in description, file


def test_every_folder_of_the_package_has_a_folder_of_tests() -> None:
    folders = {file.parent.name for file in ROOT.glob("*/*.py")}
    assert len(folders) > 12
    tests = Path(__file__).parent
    assert [name for name in sorted(folders) if not list((tests / name).glob("test_*.py"))] == []
