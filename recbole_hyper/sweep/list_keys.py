"""Which keys take a list as their one value: a plain list in a space is such a value there, and a grid elsewhere."""

from __future__ import annotations

import functools

from recbole_hyper.config import RECBOLE_PROPERTIES, read_yaml, stated_values
from recbole_hyper.keys import KEYS, takes_list


@functools.cache
def list_keys(model: str | None = None) -> frozenset[str]:
    """Return the keys that may be a list: as they are declared, or by the defaults of RecBole.

    The file of ``model`` decides about the keys in it: reg_weight is a number for most models and a list for two.
    """
    found = {key for key in KEYS if takes_list(key)}
    # what RecBole leaves open everywhere, such as unload_col, is a list
    for key, values in stated_values().items():
        if key not in KEYS and (any(isinstance(value, list) for value in values) or set(map(repr, values)) == {"None"}):
            found.add(key)
    file = RECBOLE_PROPERTIES / "model" / f"{model}.yaml"
    for key, value in read_yaml(file).items() if file.is_file() else ():
        if isinstance(value, list):
            found.add(key)
        elif value is not None:
            found.discard(key)
    return frozenset(found)
