"""Which keys take a list as their one value: a plain list in a space is such a value there, and a grid elsewhere."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.config import RECBOLE_PROPERTIES, properties_folder
from recbole_hyper.config_checks import RANGES

# plain scalars, lists and mappings only: the C loader reads the hundred files in a tenth of a second
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def list_keys(model: str | None = None) -> frozenset[str]:
    """Return the keys that have a list as their default in some file, or that RecBole leaves open (unload_col).

    Args:
        model: its own file decides about the keys that stand in it, such as reg_weight, which is a number for most
            models of RecBole and a list for two.
    """
    ours = properties_folder()
    folders = [RECBOLE_PROPERTIES / "model", *(ours / name for name in ("model", "encoder", "geometry", "loss"))]
    files = [ours / "overall.yaml", RECBOLE_PROPERTIES / "overall.yaml", RECBOLE_PROPERTIES / "dataset" / "sample.yaml"]
    files += [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    lists, scalars, empty = set[str](), set[str](), set[str]()
    for path in files:
        for key, value in _read(path).items():
            # what is open in our files is a number that is chosen by itself
            open_key = value is None and RECBOLE_PROPERTIES in path.parents
            (lists if isinstance(value, list) else empty if open_key else scalars).add(key)
    found = lists | (empty - scalars - set(RANGES))
    for folder in (RECBOLE_PROPERTIES / "model", ours / "model"):
        own = _read(folder / f"{model}.yaml") if (folder / f"{model}.yaml").is_file() else {}
        found -= {key for key, value in own.items() if value is not None and not isinstance(value, list)}
        found |= {key for key, value in own.items() if isinstance(value, list)}
    return frozenset(found)


def _read(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER) or {}
