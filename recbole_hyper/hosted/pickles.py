"""A configuration as plain values, as RecBole's checkpoints contain it."""

from typing import Any

# attributes of a Config that are rebuilt when it is loaded
_NOT_SAVED = ("model_class", "yaml_loader", "resolved")


def plain_config(config: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what pickle writes for a Config: a function of this module, and plain values as its arguments."""
    state = {key: value for key, value in vars(config).items() if key not in _NOT_SAVED}
    return restored_config, (state, bool(getattr(type(config), "hosted", False)))


def restored_config(state: dict[str, Any], hosted: bool) -> Any:
    """Return the Config that :func:`plain_config` wrote; the model's class is found by its name."""
    from recbole.config import Config
    from recbole.utils import get_model

    # the patched class finds the configuration of a model of this package
    config = Config.__new__(Config, state["model"]) if hosted else object.__new__(Config)
    config.__dict__.update(state)
    if hosted:
        config.model_class = get_model(config.model)
    return config


class OldConfig:
    """RecBole's Config in a file that examples/translate_checkpoint.py wrote: building one reads the command line."""

    def __new__(cls) -> Any:
        """Return an empty Config."""
        from recbole.config import Config

        return object.__new__(Config)
