"""The plugin files of a run: which they were, byte for byte, so that a finished run is not read by other code."""

from collections.abc import Iterable
from pathlib import Path

from recbole_hyper import plugin_files
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest, read_json, write_json

PLUGINS = "plugins.json"


def keep_digests(folder: Path, files: Iterable[str] | None) -> None:
    """Write into the folder of a run the sha256 of its plugin ``files`` and of the modules beside them that they use.

    Nothing is written where there are no plugins. All have been run before.
    """
    modules = [one for file in files or () for one in plugin_files.modules_of(plugin_files.load(Path(file)))]
    digests = {str(module.__file__): file_digest(Path(str(module.__file__))) for module in modules}
    if digests:
        write_json(folder / PLUGINS, digests)


def digests_of(folder: Path) -> dict[str, str]:
    """Return what :func:`keep_digests` wrote, by the path of each file; {} for a run without plugins."""
    return read_json(folder / PLUGINS) if (folder / PLUGINS).is_file() else {}


def require_same_plugins(folder: Path) -> None:
    """Raise ConfigError where a plugin file is not what the run in ``folder`` was trained with.

    No file is run here. One that is missing is named by what loads it.
    """
    for file, digest in digests_of(folder).items():
        if Path(file).is_file() and file_digest(Path(file)) != digest:
            raise ConfigError(
                f"{file} has changed since {folder} was trained with it: restore the file, or train again in another "
                "output_dir"
            )
