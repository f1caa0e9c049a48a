"""RecBole's own functions accept this package's models by name. Names that both have (Pop, ItemKNN) are RecBole's.

The patches import :mod:`recbole_hyper.host` only when a model of this package is used.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# where RecBole searches for a model, the last one first
FOLDERS = tuple(f"{k}_recommender" for k in ("exlib", "knowledge_aware", "sequential", "context_aware", "general"))


def replace(module: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace a function by ``function(original, ...)``, also in modules that already imported it by name."""
    original = getattr(module, name)

    @functools.wraps(original)
    def new(*arguments: Any, **keywords: Any) -> Any:
        return function(original, *arguments, **keywords)

    for other in list(sys.modules.values()):
        if getattr(other, "__dict__", {}).get(name) is original:
            setattr(other, name, new)


def _is_hosted(config: Any) -> bool:
    """Return whether a configuration is that of a model of this package."""
    return bool(getattr(type(config), "hosted", False))


def _get_model(name: str) -> type:
    """Return RecBole's model class of this name, else this package's."""
    # RecBole's own function fails for an unknown name while it imports lightgbm and xgboost
    from recbole_hyper.config.resolve import model_class
    from recbole_hyper.errors import ConfigError

    try:
        return model_class(name, FOLDERS, recbole_first=True)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):  # as from RecBole
            raise ModuleNotFoundError(str(error), name=error.__cause__.name) from error
        raise


def patch_utils(utils: Any) -> None:
    """``get_model`` finds this package's models; ``get_flops`` does not count their operations."""

    def get_flops(original: Callable[..., Any], model: Any, dataset: Any, *arguments: Any, **keywords: Any) -> Any:
        # RecBole returns 1 for a model whose operations it cannot count
        hosted = _is_hosted(getattr(dataset, "config", None))
        return 1 if hosted else original(model, dataset, *arguments, **keywords)

    replace(utils, "get_model", lambda original, name: _get_model(name))
    replace(utils, "get_flops", get_flops)


def patch_config(configurator: Any) -> None:
    """``Config(...)`` of a model of this package returns a :class:`recbole_hyper.hosted.config.HostedConfig`."""

    def new(
        cls: type,
        model: Any = None,
        dataset: str | None = None,
        config_file_list: Sequence[Any] | None = None,
        config_dict: Mapping[str, Any] | None = None,
        **_of_subclass: Any,
    ) -> Any:
        if cls is configurator.Config and _names_ours(model, config_file_list or (), config_dict or {}):
            from recbole_hyper.hosted.config import HostedConfig

            cls = HostedConfig
        return object.__new__(cls)

    configurator.Config.__new__ = new


def _names_ours(model: Any, files: Sequence[Any], settings: Mapping[str, Any]) -> bool:
    """Load ``plugins``, and return whether the model that RecBole's Config would take is of this package."""
    from recbole_hyper import registry

    keys = _keys(files, settings)
    if plugins := keys.get("plugins"):
        registry.load_plugins(plugins)
    if model is None:
        model = keys.get("model")
    cls = _get_model(model) if isinstance(model, str) else model
    return isinstance(cls, type) and issubclass(cls, registry.Model)


def _keys(files: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return RecBole's keys: those of the command line win over the dictionary, which wins over the files."""
    from recbole_hyper.yaml_files import read_yaml

    keys: dict[str, Any] = {}
    for file in files:
        with contextlib.suppress(OSError, ValueError):  # RecBole's Config reports a broken file
            keys |= read_yaml(Path(file))
    words = (word.removeprefix("--").partition("=") for word in sys.argv[1:] if word.startswith("--"))
    return {**keys, **settings, **{key: value for key, equals, value in words if equals}}


def patch_data(data: Any) -> None:
    """``create_dataset`` and ``data_preparation`` use this package's reader and protocols for its models."""

    def chosen(original: Callable[..., Any], config: Any, *arguments: Any) -> Any:
        if not _is_hosted(config):
            return original(config, *arguments)
        from recbole_hyper.hosted import data as own

        return getattr(own, original.__name__)(config, *arguments)

    for name in ("create_dataset", "data_preparation"):
        replace(data, name, chosen)


def patch_trainer(trainer: Any) -> None:
    """RecBole's trainers train this package's models; a user's trainer class is left alone."""

    def new(cls: type, config: Any = None, *_arguments: Any, **_keywords: Any) -> Any:
        if cls.__module__ == trainer.__name__ and _is_hosted(config):
            from recbole_hyper.hosted.trainer import hosted_trainer

            cls = hosted_trainer(cls)
        return object.__new__(cls)

    trainer.AbstractTrainer.__new__ = new
