"""Tables of configuration keys: allowed values, default, source of the default, and meaning."""

from typing import Any

from recbole_hyper import registry, settings
from recbole_hyper.config.binding import Config
from recbole_hyper.config.checks import is_ours
from recbole_hyper.config.parts import PARTS
from recbole_hyper.config.recbole_keys import REFUSED
from recbole_hyper.host import models
from recbole_hyper.host.old_keys import SET_BY_RECBOLE
from recbole_hyper.host.recbole_files import recbole_comments
from recbole_hyper.settings import BY_MODEL, general_defaults, typed
from recbole_hyper.values import in_words

COLUMNS = ["key", "default", "may be", "source", "meaning"]


def declared() -> list[dict[str, str]]:
    """Return a row for every key that this package declares, with the default if all models share it."""
    general, rows = general_defaults(), []
    for key, option in settings.declared().items():
        value, source = general.get(key, (None, "models and parts"))
        shown = typed(value) if key in general else BY_MODEL
        rows.append(dict(zip(COLUMNS, (key, shown, in_words(option.kind), source, option.about), strict=True)))
    return rows


def of_model(config: Config) -> list[dict[str, str]]:
    """Return a row for every key that a run with ``config`` reads, those of the model and its parts first."""
    comments = recbole_comments(config["model"])
    defaults: dict[str, tuple[Any, str]] = {
        key: (value, config.resolved.sources[key])
        for key, value in config.internal_config_dict.items()
        if key in config.resolved.sources and key != "MODEL_TYPE"
    }
    own = models.keys_in_source(config.model_class) - SET_BY_RECBOLE
    defaults |= {key: (None, "its source") for key in sorted(own) if key not in defaults}
    options = config.resolved.options
    rows, stock = [], not registry.parts_of(config.model_class)
    for key, (default, source) in defaults.items():
        if key in REFUSED or key in config.resolved.foreign or config.ignores(key):
            continue
        values, about = "" if default is None else in_words(type(default)), comments.get(key, "")
        # the loss of a RecBole model is not one of our parts
        if is_ours(key, default, options) and not (stock and key in PARTS):
            values = in_words(options[key].kind)
            about = about if source.startswith("RecBole's") else options[key].about
        rows.append(dict(zip(COLUMNS, (key, typed(default), values, source, about), strict=True)))
    shared = ["settings", "RecBole"]
    return sorted(rows, key=lambda row: shared.index(row["source"]) + 1 if row["source"] in shared else 0)
