"""The plugin files of a run: their digests, and whether code that a folder names may run here.

A folder is data. Opening it runs the files and imports the modules in its ``config.yaml`` only if the user trusts them:
all of them (``--trust_plugins``, ``trust_plugins=True``), or a file that the user names (``--plugins=my_parts.py``) and
whose digest is that of the run. Code that has already run in this process is trusted.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from recbole_hyper import plugin_files
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest, read_json, write_json

PLUGINS = "plugins.json"
# keys whose value may be the path of a class, module:Class
_NAMES = ("model", "encoder", "geometry", "loss_type")
# whether all plugins are trusted, and the trusted files by their digests
_trusted: ContextVar[tuple[bool, Mapping[str, Path]]] = ContextVar("trusted", default=(False, {}))


@contextlib.contextmanager
def trusting(files: Iterable[str | Path] = (), *, everything: bool = False) -> Iterator[None]:
    """Also trust ``files``, or ``everything``, for folders opened inside a block."""
    all_before, before = _trusted.get()
    paths = [Path(file).expanduser().absolute() for file in files]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"plugins: {path} does not exist")
    token = _trusted.set((all_before or everything, {**before, **{file_digest(path): path for path in paths}}))
    try:
        yield
    finally:
        _trusted.reset(token)


def with_trusted_plugins(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with the paths of trusted plugin files; none of them runs here.

    ConfigError, with the name, for a file or a module that is not trusted.
    """
    everything, files = _trusted.get()
    if everything:
        return dict(content)
    split = (content.get("eval_args") or {}).get("split") or {}
    for name in (*(content.get(key) for key in _NAMES), *split):
        module = str(name).partition(":")[0]
        if ":" in str(name) and module not in sys.modules and not module.startswith("recbole_hyper."):
            raise ConfigError(f"{folder} names the module {module!r}: {_ADVICE.format('--trust_plugins')}")
    plugins, digests, trusted = content.get("plugins") or [], _digests_of(folder), []
    for file in plugins if isinstance(plugins, list) else str(plugins).split(","):
        path = Path(file)
        own = files.get(digests.get(str(file)) or (file_digest(path) if path.is_file() else ""))
        if own is None and not plugin_files.is_loaded(path):
            raise ConfigError(
                f"{folder} names the plugin {file}: {_ADVICE.format('--trust_plugins, or --plugins=FILE')}"
            )
        trusted.append(str(own or file))
    return {**content, **({"plugins": trusted} if trusted else {})}


_ADVICE = "opening a run runs no code that you did not name. If you trust it, use {} (in Python trust_plugins=True)"


def keep_digests(folder: Path, files: Iterable[str] | None) -> None:
    """Write the sha256 of the loaded plugin ``files``, and of modules beside them, into the folder of a run."""
    modules = [module for file in files or () for module in plugin_files.modules_of(plugin_files.load(Path(file)))]
    if digests := {str(module.__file__): file_digest(Path(str(module.__file__))) for module in modules}:
        write_json(folder / PLUGINS, digests)


def require_same_plugins(folder: Path) -> None:
    """Raise ConfigError if a plugin file has changed since the run in ``folder``; none of them runs here."""
    for file, digest in _digests_of(folder).items():
        if Path(file).is_file() and file_digest(Path(file)) != digest:
            raise ConfigError(
                f"{file} has changed since {folder} was trained with it: restore the file, or train again in another "
                "output_dir"
            )


def _digests_of(folder: Path) -> dict[str, str]:
    return read_json(folder / PLUGINS) if (folder / PLUGINS).is_file() else {}
