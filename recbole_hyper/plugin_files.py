"""Runs Python files that a user names, once each, with the modules that they import.

The folder of a file becomes a package, so that two folders may each have a ``layers.py``. An absolute import in such a
file, at any time, looks beside the file first, then among installed packages, then in the current folder; a name of the
standard library is never looked up beside the file. An
``__init__.py`` in it does not run.
"""

import builtins
import functools
import hashlib
import importlib
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

# prefix of the names of these packages
PACKAGE = "recbole_hyper_plugin_"
# by package: its folder, and the current folder when its first file was run
_folders: dict[str, tuple[Path, Path]] = {}


def load(file: Path) -> ModuleType:
    """Run ``file``, unless it has been run, and return its module; its errors are not caught."""
    name = f"{_package(file.parent)}.{file.stem.replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    before = set(sys.modules)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        # a file that turns warnings into errors does so for itself
        with warnings.catch_warnings():
            spec.loader.exec_module(module)
    except BaseException:
        for other in set(sys.modules) - before:
            if other.startswith(PACKAGE):
                del sys.modules[other]
        raise
    return module


def at_line(error: BaseException) -> str:
    """Return the last line of a plugin in the traceback of ``error``, as " at my_encoder.py:14"; "" without one."""
    frames = traceback.walk_tb(error.__traceback__)
    places = [(Path(one.f_code.co_filename).name, line) for one, line in frames if _is_plugin(one.f_globals)]
    return " at {}:{}".format(*places[-1]) if places else ""


def _is_plugin(module: Mapping[str, Any]) -> bool:
    return str(module.get("__name__")).startswith(PACKAGE)


def is_loaded(file: Path) -> bool:
    """Return whether ``file`` has been run in this process."""
    return f"{_name(file.parent)}.{file.stem.replace('.', '_')}" in sys.modules


def modules_of(module: ModuleType) -> list[ModuleType]:
    """Return ``module`` and the users' modules that it imported, directly or not."""
    by_name, pending = {module.__name__: module}, [module]
    folder = Path(getattr(module, "__file__", None) or "/nowhere/").resolve().parent
    while pending:
        for value in list(vars(pending.pop()).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            other = sys.modules.get(name) if isinstance(name, str) else None
            if other is None or other.__name__ in by_name or not getattr(other, "__file__", None):
                continue
            if other.__name__.startswith(PACKAGE) or folder in Path(str(other.__file__)).resolve().parents:
                by_name[other.__name__] = other
                pending.append(other)
    return list(by_name.values())


def _package(folder: Path) -> str:
    """Return the name of the package of ``folder``, which is created if needed."""
    name = _name(folder)
    if name not in sys.modules:
        package = ModuleType(name, f"The Python files of {folder}.")
        package.__path__, package.__package__ = [str(folder)], name
        sys.modules[name] = package
        _folders[name] = folder, Path.cwd()
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    return name


def _name(folder: Path) -> str:
    return PACKAGE + hashlib.sha256(str(folder).encode()).hexdigest()[:8]


class _Finder(MetaPathFinder):
    """Finds the modules of plugin folders, each by its name in the package of its folder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module of a plugin folder, None for any other."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname.startswith(PACKAGE) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Runs a file whose import statements see its folder."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file in ``module``."""
        imports = functools.partial(_import, module.__name__.partition(".")[0])
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": imports}
        super().exec_module(module)


def _import(
    package: str,
    name: str,
    namespace: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
    wanted: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import ``name`` for a file of ``package``: Python's ``__import__``, which sees the folder of the file first."""
    top = name.partition(".")[0]
    home = "" if level else _home(package, top)
    if not home:
        return builtins.__import__(name, namespace, local, wanted or (), level)
    module = importlib.import_module(f"{home}.{name}")
    if not wanted:
        return sys.modules[f"{home}.{top}"]
    return builtins.__import__(module.__name__, namespace, local, wanted, 0)


def _home(package: str, top: str) -> str:
    """Return the package in which a file of ``package`` finds the module ``top``, "" for an installed one."""
    if top.startswith(PACKAGE) or top in sys.stdlib_module_names or package not in _folders:
        return ""
    folder, current = _folders[package]
    if _has(folder, top):
        return package
    return _package(current) if not _is_installed(top) and _has(current, top) else ""


def _has(folder: Path, name: str) -> bool:
    if (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file():
        return True
    # a folder without __init__.py, unless an installed package has its name
    return any(any((folder / name).glob(files)) for files in ("*.py", "*/*.py")) and not _is_installed(name)


def _is_installed(name: str) -> bool:
    return PathFinder.find_spec(name) is not None
