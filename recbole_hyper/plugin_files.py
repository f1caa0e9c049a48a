"""Runs Python files that a user names, once each, with the modules beside them that they import.

The folder of a file becomes a package, so that two folders may each have a ``layers.py``. ``from layers import X`` and
``from .layers import X`` both find the module beside the file; a module that is already imported (torch) stays.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# prefix of the names of these packages
PACKAGE = "recbole_hyper_plugin_"


def load(file: Path) -> ModuleType:
    """Run ``file``, unless it has been run, and return its module; its errors are not caught."""
    package = _package(file.parent)
    name = f"{package}.{file.stem.replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    before, beside = set(sys.modules), _Beside(package, file.parent)
    _forget_short_names()
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    sys.meta_path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for other in set(sys.modules) - before:
            if other.startswith(PACKAGE):
                del sys.modules[other]
        raise
    finally:
        sys.meta_path.remove(beside)
        _forget_short_names()
        # stays last in the path, for imports inside functions
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder != beside] + [beside]
    return module


def is_loaded(file: Path) -> bool:
    """Return whether ``file`` has been run in this process."""
    return f"{_name(file.parent)}.{file.stem.replace('.', '_')}" in sys.modules


def modules_of(module: ModuleType) -> list[ModuleType]:
    """Return ``module`` and the modules of its folder that it imported, directly or not."""
    by_name, pending = {module.__name__: module}, [module]
    folder = Path(getattr(module, "__file__", None) or "/nowhere/").resolve().parent
    while pending:
        for value in list(vars(pending.pop()).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            other = sys.modules.get(name) if isinstance(name, str) else None
            if other is None or other.__name__ in by_name or not getattr(other, "__file__", None):
                continue
            if folder in Path(str(other.__file__)).resolve().parents:
                by_name[other.__name__] = other
                pending.append(other)
    return list(by_name.values())


def _package(folder: Path) -> str:
    """Return the name of the package of ``folder``, which is created if needed."""
    name = _name(folder)
    if name not in sys.modules:
        package = ModuleType(name, f"The Python files of {folder}.")
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


def _name(folder: Path) -> str:
    return PACKAGE + hashlib.sha256(str(folder).encode()).hexdigest()[:8]


def _forget_short_names() -> None:
    """Remove the short names of modules beside a file, as another folder may have modules of these names."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(PACKAGE) and getattr(module, "__name__", "").startswith(PACKAGE):
            del sys.modules[name]


class _Beside(MetaPathFinder, Loader):
    """Finds modules of one folder by their short names, as modules of the folder's package."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package, self.folder = package, folder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Beside) and other.package == self.package

    def __hash__(self) -> int:
        return hash(self.package)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module of the folder, None for other modules."""
        top = fullname.partition(".")[0]
        if top.startswith(PACKAGE) or top in sys.stdlib_module_names or not self._is_here(top):
            return None
        return ModuleSpec(fullname, self)

    def _is_here(self, name: str) -> bool:
        if (self.folder / f"{name}.py").is_file() or (self.folder / name / "__init__.py").is_file():
            return True
        # a folder without __init__.py, unless an installed package has its name
        return any((self.folder / name).glob("*.py")) and PathFinder.find_spec(name) is None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under the name in its package; runs it if needed."""
        module = importlib.import_module(f"{self.package}.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing, as create_module did; restore the module's own spec."""
        if module.__spec__ is not None and module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state
