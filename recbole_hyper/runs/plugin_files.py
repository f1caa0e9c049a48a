"""The plugin files of a run: which they were, byte for byte, so that a finished run is not read by other code."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest, read_json, write_json

PLUGINS = "plugins.json"


def keep_digests(folder: Path, files: Iterable[str] | None) -> None:
    """Write into the folder of a run the sha256 of each of its plugin ``files``; nothing where there are none."""
    digests = {str(file): file_digest(Path(file)) for file in files or ()}
    if digests:
        write_json(folder / PLUGINS, digests)


def digests_of(folder: Path) -> dict[str, str]:
    """Return what :func:`keep_digests` wrote, by the path of each file; {} for a run without plugins."""
    return read_json(folder / PLUGINS) if (folder / PLUGINS).is_file() else {}


def require_same_plugins(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError where a file among the ``plugins`` of ``settings`` is not what the run was trained with.

    No file is run here. A file that is missing is named by what loads it.
    """
    named, before = settings.get("plugins") or [], digests_of(folder)
    for file in [named] if isinstance(named, str) else named:
        path = Path(file)
        if file in before and path.is_file() and file_digest(path) != before[file]:
            raise ConfigError(
                f"{path} has changed since {folder} was trained with it: restore the file, or train again in another "
                "output_dir"
            )
