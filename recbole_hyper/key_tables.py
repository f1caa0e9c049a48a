"""Configuration keys in tables: what each may be, its default, the file that the default stands in, its meaning."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from recbole_hyper import registry
from recbole_hyper.bridge import models
from recbole_hyper.bridge.old_keys import SET_BY_RECBOLE
from recbole_hyper.config_parts import PARTS
from recbole_hyper.keys import COMMON, KEYS, has_own, in_words
from recbole_hyper.recbole_files import recbole_comments, recbole_folder
from recbole_hyper.yaml_files import properties_folder, read_yaml

COLUMNS = ["key", "default", "may be", "source", "meaning"]
OWN_FOLDERS = ("encoder", "geometry", "loss", "model")
# in the place of a default, where each model or part has its own
BY_MODEL = "..."


def typed(value: Any) -> str:
    """Return a value as it is typed on the command line and written in YAML."""
    if value is None:
        return "~"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {typed(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(typed, value))}]"
    return repr(value) if isinstance(value, str) and (not value or value.isspace()) else str(value)


def general_defaults() -> dict[str, tuple[Any, str]]:
    """Return the default of every key that all models share, and the file that it stands in, by key."""
    stock, ours = recbole_folder() / "properties", properties_folder()
    files = [
        (stock / "overall.yaml", "RecBole"),
        (stock / "dataset" / "sample.yaml", "RecBole"),
        (ours / "overall.yaml", "overall.yaml"),
    ]
    return {key: (value, name) for file, name in files for key, value in read_yaml(file).items()}


def own_defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults that models and parts have by themselves: by key, the value by file."""
    found: dict[str, dict[str, Any]] = {}
    for folder in OWN_FOLDERS:
        for file in sorted((properties_folder() / folder).glob("*.yaml")):
            for key, value in read_yaml(file).items():
                found.setdefault(key, {})[f"{folder}/{file.name}"] = value
    return found


def declared() -> list[dict[str, str]]:
    """Return a row for every key that this package declares; the default is that of models without one of their own."""
    general, own = general_defaults(), own_defaults()
    rows = []
    for key, entry in KEYS.items():
        files = own.get(key, {})
        if key in general:
            value, source = typed(general[key][0]), general[key][1]
        elif files:
            values = {typed(value) for value in files.values()}
            value = values.pop() if len(values) == 1 else BY_MODEL
            first, *others = files
            source = f"{first} and {len(others)} more" if len(others) > 1 else ", ".join(files)
        else:
            value, source = "~", "keys.py"
        rows.append(_row(key, value, in_words(entry.values), source, entry.about))
    return rows


def _row(key: str, default: str, range_: str, source: str, about: str) -> dict[str, str]:
    return dict(zip(COLUMNS, (key, default, range_, source, about), strict=True))


def of_model(config: Any) -> list[dict[str, str]]:
    """Return a row for every key that a run of the bound ``config`` reads: those of the model and its parts first."""
    from recbole_hyper.recbole_keys import REFUSED

    comments = recbole_comments(config["model"])
    defaults: dict[str, tuple[Any, str]] = {
        key: (value, config.sources[key])
        for key, value in config.internal_config_dict.items()
        if key in config.sources and key != "MODEL_TYPE"
    }
    defaults |= {key: found for key, found in _options(config).items() if key not in defaults}
    own = models.keys_in_source(config.model_class) - SET_BY_RECBOLE
    defaults |= {key: (None, "its source") for key in sorted(own) if key not in defaults}
    rows, stock = [], not registry.parts_of(config.model_class)
    for key, (default, source) in defaults.items():
        if key in REFUSED or key in config.foreign_keys or config.ignores(key):
            continue
        kind, about = comments.get(key, ("", ""))
        # the loss of a model of RecBole is none of our parts
        if has_own(key, default) and not (stock and key in PARTS):
            kind = KEYS[key].values
            about = about if source.startswith("RecBole's") else KEYS[key].about
        rows.append(_row(key, typed(default), in_words(kind), source, about))
    shared = ["overall.yaml", "RecBole"]
    return sorted(rows, key=lambda row: shared.index(row["source"]) + 1 if row["source"] in shared else 0)


def _options(config: Any) -> dict[str, tuple[Any, str]]:
    """Return the options of the model's parts that stand in no YAML, with the defaults of the constructors."""
    found: dict[str, tuple[Any, str]] = {}
    if not registry.parts_of(config.model_class):
        return found
    for key, (kind, prefix) in PARTS.items():
        name = config.internal_config_dict[key]
        for option, parameter in registry.resolve(kind, name).option_parameters().items():
            spelled = registry.option_keys(option, name, prefix)
            # the length of histories is MAX_ITEM_LIST_LENGTH
            if option == "max_length" or any(key in config.internal_config_dict for key in spelled):
                continue
            default = None if parameter.default is inspect.Parameter.empty else parameter.default
            chosen = next((one for one in spelled if one in KEYS), spelled[0])
            found[chosen] = (default, f"the {prefix} {name}")
    return found


def common_text(names: Sequence[str] = COMMON, *, more: str = "recbole-hyper keys MODEL") -> str:
    """Return the lines of ``--help`` on the keys ``names``, with general defaults; ``more`` tells all others."""
    general = general_defaults()
    lines = ["common configuration keys and their defaults (...: by model; a model may have its own):"]
    for name in names:
        value = typed(general[name][0]) if name in general else BY_MODEL
        said = f"{KEYS[name].about} ({in_words(KEYS[name].values)})"
        option = f"  --{name}={value}"
        lines.append(f"{option:<34}  {said}" if len(option) <= 34 else f"{option}\n{'':<36}{said}")
    lines.append(f"every other key is set likewise; {more} tells what a model reads, with default, range and source")
    return "\n".join(lines)
