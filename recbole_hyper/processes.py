"""Commands of other Python processes, and the folder that all processes of a user share."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CODE = """
import runpy, sys
sys.path += [folder for folder in {folders!r} if folder not in sys.path]
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def python_command(module: str) -> list[str]:
    """Return the command that runs ``module`` in another process, which imports from the same folders.

    ``python -m`` looks in the current folder first, where a ``queue.py`` would hide Python's; this one does not.
    """
    folders = [str(Path(folder).absolute()) for folder in sys.path]
    return [sys.executable, "-P", "-c", _CODE.format(folders=folders, module=module)]


def cache_folder() -> Path:
    """Return the user's cache folder: ``recbole_hyper`` in ``$XDG_CACHE_HOME`` or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return Path(root if root else Path.home() / ".cache") / "recbole_hyper"


def package_version(name: str = "recbole-hyper") -> str:
    """Return the version of an installed package, by default of this one."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
