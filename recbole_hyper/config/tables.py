"""Configuration keys in tables: what each may be, its default, where the default comes from, its meaning."""

from collections.abc import Mapping, Sequence
from typing import Any

from recbole_hyper import registry, settings
from recbole_hyper.bridge import models
from recbole_hyper.bridge.old_keys import SET_BY_RECBOLE
from recbole_hyper.config.binding import Config
from recbole_hyper.config.parts import PARTS
from recbole_hyper.config.recbole_keys import REFUSED
from recbole_hyper.options import OPEN, in_words
from recbole_hyper.recbole_files import recbole_comments, recbole_folder
from recbole_hyper.settings import COMMON, SETTINGS
from recbole_hyper.yaml_files import read_yaml

COLUMNS = ["key", "default", "may be", "source", "meaning"]
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
    """Return the default of every key that all models share, and where it comes from, by key."""
    stock = recbole_folder() / "properties"
    files = (stock / "overall.yaml", stock / "dataset" / "sample.yaml")
    found = {key: (value, "RecBole") for file in files for key, value in read_yaml(file).items()}
    return found | {key: (one.default, "settings") for key, one in SETTINGS.items() if one.default is not OPEN}


def part_values() -> dict[str, dict[str, Any]]:
    """Return the defaults that parts and models have by themselves: by key, the value by part."""
    found: dict[str, dict[str, Any]] = {}
    for word, kind in (*((word, kind) for kind, word in PARTS.values()), ("model", "models")):
        for name in registry.names(kind):
            part = registry.resolve(kind, name)
            for key, value in registry.defaults(part).items():
                found.setdefault(key, {})[f"{word} {name}"] = value
    return found


def declared() -> list[dict[str, str]]:
    """Return a row for every key that this package declares; the default is that of models without one of their own."""
    general, own = general_defaults(), part_values()
    rows = []
    for key, option in settings.declared().items():
        by_part = own.get(key, {})
        if key in general:
            value, source = typed(general[key][0]), general[key][1]
        elif by_part:
            values = {typed(value) for value in by_part.values()}
            value = values.pop() if len(values) == 1 else BY_MODEL
            first, *others = by_part
            source = f"{first} and {len(others)} more" if len(others) > 1 else ", ".join(by_part)
        else:
            value, source = "~", "settings"
        rows.append(_row(key, value, in_words(option.values), source, option.about))
    return rows


def _row(key: str, default: str, range_: str, source: str, about: str) -> dict[str, str]:
    return dict(zip(COLUMNS, (key, default, range_, source, about), strict=True))


def of_model(config: Config) -> list[dict[str, str]]:
    """Return a row for every key that a run of the bound ``config`` reads: those of the model and its parts first."""
    comments = recbole_comments(config["model"])
    defaults: dict[str, tuple[Any, str]] = {
        key: (value, config.sources[key])
        for key, value in config.internal_config_dict.items()
        if key in config.sources and key != "MODEL_TYPE"
    }
    own = models.keys_in_source(config.model_class) - SET_BY_RECBOLE
    defaults |= {key: (None, "its source") for key in sorted(own) if key not in defaults}
    rows, stock = [], not registry.parts_of(config.model_class)
    for key, (default, source) in defaults.items():
        if key in REFUSED or key in config.foreign_keys or config.ignores(key):
            continue
        values, about = comments.get(key, ("", ""))
        # the loss of a model of RecBole is none of our parts
        if settings.has_own(key, default, config.options) and not (stock and key in PARTS):
            values = config.options[key].values
            about = about if source.startswith("RecBole's") else config.options[key].about
        rows.append(_row(key, typed(default), in_words(values), source, about))
    shared = ["settings", "RecBole"]
    return sorted(rows, key=lambda row: shared.index(row["source"]) + 1 if row["source"] in shared else 0)


def common_text(names: Sequence[str] = COMMON, *, more: str = "recbole-hyper keys MODEL") -> str:
    """Return the lines of ``--help`` on the keys ``names``, with general defaults; ``more`` tells all others."""
    general, options = general_defaults(), settings.declared()
    lines = ["common configuration keys and their defaults (...: by model; a model may have its own):"]
    for name in names:
        value = typed(general[name][0]) if name in general else BY_MODEL
        said = f"{options[name].about} ({in_words(options[name].values)})"
        option = f"  --{name}={value}"
        lines.append(f"{option:<34}  {said}" if len(option) <= 34 else f"{option}\n{'':<36}{said}")
    lines.append(f"every other key is set likewise; {more} tells what a model reads, with default, range and source")
    return "\n".join(lines)
