"""Third-party RecBole models: what their files define.

RecBole's naming applies: ``XTrainer`` and ``XDataset`` in the files of ``X``, ``X.yaml`` beside them, keys as
``config["key"]``.
"""

import ast
import contextlib
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from recbole_hyper import plugin_files
from recbole_hyper.errors import ConfigError
from recbole_hyper.recbole_files import recbole_folder

# the models of the files that were loaded, by name
_models: dict[str, type] = {}
_BASE = "recbole.model.abstract_recommender"
# names that models give to a configuration
_CONFIG_WORDS = ("config", "conf", "cfg", "args", "opt", "params")


@contextlib.contextmanager
def one_line(cls: type, doing: str) -> Iterator[None]:
    """Turn what the code of a RecBole model raises while ``doing`` something into a ConfigError of one line."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{cls.__name__} failed {doing}: {type(error).__name__}: {text}; if it reads features, name their columns "
            "in load_col and selected_features, and see --traceback"
        ) from error


def is_recbole_model(cls: Any) -> bool:
    """Return whether ``cls`` is a RecBole model; RecBole's abstract classes are none."""
    return isinstance(cls, type) and cls.__module__ != _BASE and any(base.__module__ == _BASE for base in cls.__mro__)


def is_third_party(cls: Any) -> bool:
    """Return whether ``cls`` is a RecBole model that is neither RecBole's nor derived from this package's models."""
    return (
        is_recbole_model(cls)
        and not cls.__module__.startswith("recbole.")
        and not any(base.__module__.startswith("recbole_hyper.") for base in cls.__mro__)
    )


def collect(modules: Iterable[ModuleType]) -> None:
    """Register the models of plugin files and of the files that they import; ConfigError for two of one name."""
    by_name: dict[str, type] = {}
    for own in (own for module in modules for own in plugin_files.modules_of(module)):
        for cls in vars(own).values():
            if is_third_party(cls) and cls.__module__ == own.__name__:
                known = by_name.setdefault(cls.__name__, cls)
                if known is not cls:
                    files = f"{file_of(known)} and {file_of(cls)}"
                    raise ConfigError(f"plugins: {files} both have a model {cls.__name__}; rename one")
    _models.update(by_name)


def model_named(name: str) -> type | None:
    """Return the model of that name in the plugin files that were loaded, None for none."""
    return _models.get(name)


def models() -> dict[str, type]:
    """Return the models of the plugin files that were loaded, by name."""
    return dict(sorted(_models.items()))


def file_of(cls: type) -> Path | None:
    """Return the file of a class, None for one of a notebook."""
    try:
        return Path(inspect.getfile(cls)).absolute()
    except (OSError, TypeError):
        return None


def defaults_files(cls: type) -> list[Path]:
    """Return the YAML files of a third-party model and of those that it derives from; later ones win."""
    files = []
    for base in [base for base in reversed(cls.__mro__) if is_recbole_model(base)]:
        stock = recbole_folder() / "properties" / "model" / f"{base.__name__}.yaml"
        file = file_of(base)
        beside = [file.with_name(stock.name)] if file is not None and is_third_party(base) else []
        files += [path for path in (stock, *beside) if path.is_file()]
    return files


def trainer_of(cls: type) -> type | None:
    """Return the class ``XTrainer`` that the files of the model ``X`` have, None for none."""
    return _beside(cls, "Trainer", "recbole.trainer.trainer")


def dataset_of(cls: type) -> type | None:
    """Return the class ``XDataset`` that the files of the model ``X`` have, None for none."""
    return _beside(cls, "Dataset", "recbole.data.dataset.dataset")


def _beside(cls: type, suffix: str, base: str) -> type | None:
    for module in _modules(cls) if is_third_party(cls) else ():
        part = getattr(module, cls.__name__ + suffix, None)
        if isinstance(part, type) and any(one.__module__ == base for one in part.__mro__):
            return part
    return None


def _modules(cls: type) -> Iterator[ModuleType]:
    """Yield the modules of a model and of its base classes, without those of torch and the like."""
    for base in cls.__mro__:
        module, package = sys.modules.get(base.__module__), base.__module__.partition(".")[0]
        # what _BASE reads, every model of RecBole reads
        if module is None or base.__module__ == _BASE or package in ("builtins", "torch", "abc", "typing"):
            continue
        yield from [module] if package == "recbole" else plugin_files.modules_of(module)


@functools.cache
def keys_in_source(cls: type) -> frozenset[str]:
    """Return the keys that the source of a model reads from a configuration, as ``config["key"]``, ``config.key``...

    The source is the module of a RecBole model, or all files of a third-party one and of its base classes.
    """
    if not is_recbole_model(cls) or cls.__module__.startswith("recbole_hyper."):
        return frozenset()
    others = is_third_party(cls)
    modules = _modules(cls) if others else iter([sys.modules[cls.__module__]])
    # RecBole's Config derives the columns of a batch from loss_type
    always = {"loss_type"} if others else set[str]()
    return frozenset(always).union(
        key for tree in map(_tree, modules) for node in ast.walk(tree) for key in _keys(node)
    )


@functools.cache
def words_in_source(cls: type) -> frozenset[str]:
    """Return every string in the files of a third-party model; the model cannot read a key that is not among them."""
    nodes = (node for tree in map(_tree, _modules(cls)) for node in ast.walk(tree))
    return frozenset(text for node in nodes for text in _text(node)) | keys_in_source(cls)


@functools.cache
def _tree(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # a notebook has no file
        return ast.Module(body=[], type_ignores=[])


def _keys(node: ast.AST) -> Iterator[str]:
    """Yield the keys that a piece of source reads from a configuration."""
    if isinstance(node, ast.Subscript) and _is_config(node.value):
        yield from _text(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        if _is_config(node.func.value):
            yield from (key for argument in node.args[:1] for key in _text(argument))
    elif isinstance(node, ast.Compare) and len(node.comparators) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        if _is_config(node.comparators[0]):
            yield from _text(node.left)
    elif isinstance(node, ast.Attribute) and _is_config(node.value, _CONFIG_WORDS[:3]) and node.attr not in vars(dict):
        yield node.attr


def _is_config(node: ast.AST, words: Sequence[str] = _CONFIG_WORDS) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.strip("_").lower() in words


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


# a protocol decides these here; in RecBole the data set class does
DECIDED = ("build", "leave_one_out", "split_by_ratio", "time_based_split", "data_augmentation", "_benchmark_presets")


def overridden(cls: type) -> list[str]:
    """Return the methods of a third-party data set class that decide splits and histories."""
    own = [base for base in cls.__mro__ if not base.__module__.startswith(("recbole.", "recbole_hyper.", "builtins"))]
    return [name for name in DECIDED if any(name in vars(base) for base in own)]
