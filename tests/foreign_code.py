"""A run's folder that names code of somebody else."""

from pathlib import Path

import yaml

from recbole_hyper.files import file_digest, write_json


def name_a_plugin(folder: Path) -> tuple[Path, Path, Path]:
    """Make the run in ``folder`` name a plugin; return it, the plugin, and the file that is there once that has run."""
    marker, plugin = folder.parent / "it ran", folder.parent / "parts.py"
    plugin.write_text(f"open({str(marker)!r}, 'a').close()\n")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "plugins": [str(plugin)]}))
    write_json(folder / "plugins.json", {str(plugin): file_digest(plugin)})
    return folder, plugin, marker
