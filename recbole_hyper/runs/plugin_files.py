"""The plugin files of a run: which they were, byte for byte, and whether code that a folder names may run here.

A folder is data. Opening one runs the files and imports the modules that its ``config.yaml`` names only where the user
trusts them: all of them (``--trust_plugins``, ``trust_plugins=True``), or a file that the user names himself
(``--plugins=my_parts.py``) and that has the digest of the run's. What has run in this process already is trusted.
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
    """Trust ``files``, or ``everything``, of folders opened in a block, beside what is trusted."""
    all_before, before = _trusted.get()
    paths = [Path(file).absolute() for file in files]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"plugins: {path} does not exist")
    token = _trusted.set((all_before or everything, {**before, **{file_digest(path): path for path in paths}}))
    try:
        yield
    finally:
        _trusted.reset(token)


def with_trusted_plugins(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with the plugin files that may run in place of those that it names; none is run here.

    ConfigError for a file or a module that is not trusted; the message names it.
    """
    everything, files = _trusted.get()
    if everything:
        return dict(content)
    split = (content.get("eval_args") or {}).get("split") or {}
    for name in (*(content.get(key) for key in _NAMES), *split):
        module = str(name).partition(":")[0]
        if ":" in str(name) and module not in sys.modules and not module.startswith("recbole_hyper."):
            raise ConfigError(f"{folder} names the module {module!r}: {_ADVICE.format('--trust_plugins')}")
    named, recorded, chosen = content.get("plugins") or [], _digests_of(folder), []
    for file in named.split(",") if isinstance(named, str) else named:
        path = Path(file)
        given = files.get(recorded.get(str(file)) or (file_digest(path) if path.is_file() else ""))
        if given is None and not plugin_files.is_loaded(path):
            raise ConfigError(
                f"{folder} names the plugin {file}: {_ADVICE.format('--trust_plugins, or --plugins=FILE')}"
            )
        chosen.append(str(given or file))
    return {**content, **({"plugins": chosen} if chosen else {})}


_ADVICE = "opening a run runs no code that you did not name. If you trust it, give {} (in Python trust_plugins=True)"


def keep_digests(folder: Path, files: Iterable[str] | None) -> None:
    """Write into the folder of a run the sha256 of its plugin ``files``, all run before, and of modules beside them."""
    modules = [one for file in files or () for one in plugin_files.modules_of(plugin_files.load(Path(file)))]
    if digests := {str(module.__file__): file_digest(Path(str(module.__file__))) for module in modules}:
        write_json(folder / PLUGINS, digests)


def require_same_plugins(folder: Path) -> None:
    """Raise ConfigError where a plugin file is not what the run in ``folder`` was trained with; none is run here."""
    for file, digest in _digests_of(folder).items():
        if Path(file).is_file() and file_digest(Path(file)) != digest:
            raise ConfigError(
                f"{file} has changed since {folder} was trained with it: restore the file, or train again in another "
                "output_dir"
            )


def _digests_of(folder: Path) -> dict[str, str]:
    return read_json(folder / PLUGINS) if (folder / PLUGINS).is_file() else {}
