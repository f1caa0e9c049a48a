"""RecBole's own functions accept this package's models by name. A name that both packages have (Pop) is RecBole's.

The patches import :mod:`recbole_hyper.host` only when a model of this package is used.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

# where RecBole searches for a model, the last one first
FOLDERS = tuple(
    f"{kind}_recommender" for kind in ("exlib", "knowledge_aware", "sequential", "context_aware", "general")
)


def replace(module: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function by ``make(original)``, also in modules that already imported it by name."""
    original = getattr(module, name)
    if getattr(original, "patched", False):
        return
    new = make(original)
    new.patched = True
    for other in list(sys.modules.values()):
        if getattr(other, "__dict__", {}).get(name) is original:
            setattr(other, name, new)


def around(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Turn ``function(original, *arguments)`` into a ``make`` for :func:`replace`."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def new(*arguments: Any, **keywords: Any) -> Any:
            return function(original, *arguments, **keywords)

        return new

    return make


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
    replace(utils, "get_model", lambda original: _get_model)
    replace(utils, "get_flops", _get_flops)


@around
def _get_flops(original: Callable[..., Any], model: Any, dataset: Any, *arguments: Any, **keywords: Any) -> Any:
    # RecBole returns 1 for a model whose operations it cannot count
    hosted = _is_hosted(getattr(dataset, "config", None))
    return 1 if hosted else original(model, dataset, *arguments, **keywords)


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

    if plugins := _value_of("plugins", files, settings):
        registry.load_plugins(plugins)
    if model is None:
        model = _value_of("model", files, settings)
    cls = _get_model(model) if isinstance(model, str) else model
    return isinstance(cls, type) and issubclass(cls, registry.Model)


def _value_of(key: str, files: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """Return RecBole's value of a key: from the command line, else the dictionary, else the last file that has it."""
    from recbole_hyper.yaml_files import read_yaml

    for word in sys.argv[1:]:
        if word.startswith(f"--{key}="):
            return word.partition("=")[2]
    if key in settings:
        return settings[key]
    value = None
    for file in files:
        with contextlib.suppress(OSError, ValueError):  # RecBole's Config reports a broken file
            value = read_yaml(Path(file)).get(key, value)
    return value


def patch_data(data: Any) -> None:
    """``create_dataset`` and ``data_preparation`` use this package's reader and protocols for its models."""

    @around
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


def _in_trial() -> bool:
    """Return whether a trial of Ray runs in this process."""
    from ray import tune

    return tune.get_context().get_trial_id() is not None


def _report(**metrics: Any) -> None:
    """``tune.report`` with RecBole's arguments: Ray 2 takes a dictionary, and only in a trial."""
    from ray import tune

    if _in_trial():
        tune.report(dict(metrics))


def objective_function(
    config_dict: Mapping[str, Any] | None = None, config_file_list: Sequence[str] | None = None, saved: bool = True
) -> dict[str, Any]:
    """RecBole's objective function. A Ray worker unpickles it by its name here, and so imports the patches."""
    quick_start = import_module("recbole.quick_start.quick_start")
    result = quick_start.objective_function.__wrapped__(config_dict, config_file_list, saved)
    # Ray takes the result of a trial as one more report
    return {**result["test_result"], **result} if _in_trial() else result


@around
def _run(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    from recbole_hyper.errors import ConfigError

    call = inspect.signature(original).bind(*arguments, **keywords)
    call.apply_defaults()
    model, files, settings = (call.arguments[name] for name in ("model", "config_file_list", "config_dict"))
    processes, world = call.arguments["nproc"], call.arguments["world_size"]
    if (processes != 1 or world > 0) and _names_ours(model, files or (), settings or {}):
        raise ConfigError(
            f"nproc={processes}, world_size={world}: RecBole's distributed training cannot train models of this "
            "package; use recbole_hyper.run with num_workers"
        )
    return original(*arguments, **keywords)


def patch_quick_start(quick_start: Any) -> None:
    """``objective_function`` works with Ray 2. ``run`` refuses this package's models in several processes.

    RecBole starts these processes without the patches.
    """
    replace(quick_start, "run", _run)
    if isinstance(quick_start.tune, ModuleType):
        quick_start.tune = SimpleNamespace(report=_report)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        objective_function.__wrapped__ = original  # type: ignore[attr-defined]
        return objective_function

    replace(quick_start, "objective_function", make)
