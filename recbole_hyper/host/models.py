"""RecBole models of third parties, and what their files define.

They follow RecBole's naming: a model ``X`` has ``XTrainer`` and ``XDataset`` in its files, ``X.yaml`` beside them, and
reads a key as ``config["key"]``.
"""

import ast
import contextlib
import functools
import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from recbole_hyper import plugin_files
from recbole_hyper.errors import ConfigError
from recbole_hyper.yaml_files import recbole_folder

# the models of the plugin files that were loaded, by name
_models: dict[str, type] = {}
_BASE = "recbole.model.abstract_recommender"
# names that models use for a configuration
_CONFIG_NAMES = ("config", "conf", "cfg", "args", "opt", "params")


@contextlib.contextmanager
def one_line(config: Any, doing: str) -> Iterator[None]:
    """Turn an error in the code of a RecBole model into a one-line ConfigError; ``doing`` says when it failed.

    Errors of this package stay as they are. A model that ends the process (``sys.exit``) has failed too.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if type(error).__module__.startswith("recbole_hyper."):
            raise
        text = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{config.model_class.__name__} failed {doing}{plugin_files.at_line(error)}: {type(error).__name__}: {text}"
            f"{_hint(config, error)}; --traceback shows where it failed"
        ) from error


def _hint(config: Any, error: BaseException) -> str:
    """Return what to type if ``error`` says that a column is missing, else ""."""
    if not isinstance(error, KeyError) or not error.args:
        return ""
    name, columns = str(error.args[0]).removesuffix(config["LIST_SUFFIX"]), list[str]()
    for part in ("inter", "user", "item"):
        file = Path(config["data_path"]) / f"{config['dataset']}.{part}"
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as lines:
                columns = [one.partition(":")[0].strip() for one in lines.readline().split(config["field_separator"])]
            if name in columns and name not in (config["load_col"] or {}).get(part, ()):
                return f"; {file.name} has the column {name}: add it to load_col.{part}"
    if "selected_features" not in keys_in_source(config.model_class):
        return ""
    return f"; name columns of items ({', '.join(columns)}) in selected_features and in load_col.item"


def is_recbole_model(cls: Any) -> bool:
    """Return whether ``cls`` is a RecBole model and not one of RecBole's abstract classes."""
    return isinstance(cls, type) and cls.__module__ != _BASE and any(base.__module__ == _BASE for base in cls.__mro__)


def is_third_party(cls: Any) -> bool:
    """Return whether ``cls`` is a RecBole model of neither RecBole nor this package."""
    return (
        is_recbole_model(cls)
        and not cls.__module__.startswith("recbole.")
        and not any(base.__module__.startswith("recbole_hyper.") for base in cls.__mro__)
    )


def with_origin(cls: Any) -> Any:
    """Return a model class that was found; its ``origin`` is then "own", "recbole" or "third"."""
    if is_third_party(cls):
        cls.origin = "third"
    elif cls.__module__.startswith("recbole."):
        cls.origin = "recbole"
    return cls


def collect(modules: Iterable[ModuleType]) -> None:
    """Register the models of plugin files and their imports; ConfigError for two of a name and for wrong types."""
    by_name: dict[str, type] = {}
    for module in itertools.chain.from_iterable(map(plugin_files.modules_of, modules)):
        for cls in vars(module).values():
            if is_third_party(cls) and cls.__module__ == module.__name__:
                from recbole.utils import InputType, ModelType  # only where there is a model: help must be quick

                for name, kind in (("type", ModelType), ("input_type", InputType)):
                    if not isinstance(value := getattr(cls, name, None), kind | None):
                        raise ConfigError(f"{cls.__name__}.{name}={value!r}: recbole.utils.{kind.__name__} is expected")
                if (known := by_name.setdefault(cls.__name__, cls)) is not cls:
                    files = f"{file_of(known)} and {file_of(cls)}"
                    raise ConfigError(f"plugins: {files} both have a model {cls.__name__}; rename one")
    _models.update(by_name)


def models() -> dict[str, type]:
    """Return the models of the loaded plugin files by name."""
    return dict(sorted(_models.items()))


def file_of(cls: type) -> Path | None:
    """Return the file of a class, None if it was defined in a notebook."""
    try:
        return Path(inspect.getfile(cls)).absolute()
    except (OSError, TypeError):
        return None


def defaults_files(cls: type) -> list[Path]:
    """Return the YAML files beside a third-party model and its base classes, and those of RecBole; later ones win."""
    files = []
    for base in [base for base in reversed(cls.__mro__) if is_recbole_model(base)]:
        stock = recbole_folder() / "properties" / "model" / f"{base.__name__}.yaml"
        file = file_of(base) if is_third_party(base) else None
        files += [stock] if file is None else [stock, file.with_name(stock.name)]
    return [file for file in files if file.is_file()]


def trainer_of(cls: type) -> type | None:
    """Return the class ``XTrainer`` in the files of a model ``X``, or None."""
    return _companion(cls, "Trainer", "recbole.trainer.trainer")


def dataset_of(cls: type) -> type | None:
    """Return the class ``XDataset`` in the files of a model ``X``, or None."""
    return _companion(cls, "Dataset", "recbole.data.dataset.dataset")


def _companion(cls: type, suffix: str, base_module: str) -> type | None:
    for module in _modules(cls) if is_third_party(cls) else ():
        companion = getattr(module, cls.__name__ + suffix, None)
        if isinstance(companion, type) and any(base.__module__ == base_module for base in companion.__mro__):
            return companion
    return None


def _modules(cls: type) -> Iterator[ModuleType]:
    """Yield the modules of a model and its base classes, except those of torch and the standard library."""
    for base in cls.__mro__:
        module, package = sys.modules.get(base.__module__), base.__module__.partition(".")[0]
        # every RecBole model reads the keys of _BASE
        if module is None or base.__module__ == _BASE or package in ("builtins", "torch", "abc", "typing"):
            continue
        yield from [module] if package == "recbole" else plugin_files.modules_of(module)


@functools.cache
def keys_in_source(cls: type) -> frozenset[str]:
    """Return the keys that the source of a model reads from a configuration, such as ``config["key"]``, ``config.key``.

    The source is the module of a RecBole model, or all files of a third-party model and its base classes.
    """
    if not is_recbole_model(cls) or cls.__module__.startswith("recbole_hyper."):
        return frozenset()
    third_party = is_third_party(cls)
    modules = _modules(cls) if third_party else filter(None, [sys.modules.get(cls.__module__)])
    # RecBole's Config derives the columns of a batch from loss_type
    always = frozenset({"loss_type"} if third_party else ())
    return always.union(key for tree in map(_tree, modules) for node in ast.walk(tree) for key in _keys(node))


@functools.cache
def words_in_source(cls: type) -> frozenset[str]:
    """Return all strings in the files of a third-party model: it cannot read any other key."""
    nodes = (node for tree in map(_tree, _modules(cls)) for node in ast.walk(tree))
    return frozenset(text for node in nodes for text in _text(node)) | keys_in_source(cls)


@functools.cache
def _tree(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # a notebook has no file
        return ast.Module(body=[], type_ignores=[])


def _keys(node: ast.AST) -> Iterator[str]:
    """Yield the keys that a node of the source reads from a configuration."""
    if isinstance(node, ast.Subscript) and _is_config(node.value):
        yield from _text(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        if _is_config(node.func.value):
            yield from (key for argument in node.args[:1] for key in _text(argument))
    elif isinstance(node, ast.Compare) and len(node.comparators) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        if _is_config(node.comparators[0]):
            yield from _text(node.left)
    elif isinstance(node, ast.Attribute) and _is_config(node.value, _CONFIG_NAMES[:3]) and node.attr not in vars(dict):
        yield node.attr


def _is_config(node: ast.AST, names: Sequence[str] = _CONFIG_NAMES) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.strip("_").lower() in names


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def training_loader(config: Any, training: Any) -> Any:
    """Return RecBole's loader of pairs for a general model, with the negatives of ``train_neg_sample_args``."""
    from recbole.data.utils import get_dataloader
    from recbole.sampler import Sampler

    arguments, sampler = config["train_neg_sample_args"], None
    if arguments["distribution"] != "none":
        sampler = Sampler(["train"], [training], arguments["distribution"], arguments["alpha"]).set_phase("train")
    return get_dataloader(config, "train")(config, training, sampler, shuffle=config["shuffle"])


def trainer_class(config: Any, cls: type) -> type:
    """Return the trainer of a model: ``XTrainer`` in the files of a model ``X``, or else RecBole's."""
    from recbole.utils import get_trainer

    return trainer_of(cls) or get_trainer(config["MODEL_TYPE"], config["model"])


def has_full_ranking(cls: type) -> bool:
    """Return whether a RecBole model scores all items at once."""
    from recbole.model.abstract_recommender import AbstractRecommender

    return cls.full_sort_predict is not AbstractRecommender.full_sort_predict  # type: ignore[attr-defined]


# methods of RecBole's data set class that protocols replace here
DECIDED = ("build", "leave_one_out", "split_by_ratio", "time_based_split", "data_augmentation", "_benchmark_presets")


def overridden(cls: type) -> list[str]:
    """Return which of its methods for splits and histories a third-party data set class overrides."""
    own = [base for base in cls.__mro__ if not base.__module__.startswith(("recbole.", "recbole_hyper.", "builtins"))]
    return [name for name in DECIDED if any(name in vars(base) for base in own)]
