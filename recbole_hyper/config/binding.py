"""The configuration of a run, and which source of a value wins. See docs/options.md.

Later sources win: RecBole's files; the settings of every run; the options of the model's parts; the model's file; the
data set's line; the user's files, in order; the dictionary or the command line. ``eval_args`` is merged key by key, any
other key is replaced as a whole. Everything is checked once, before data are read. RecBole's methods then add what its
own models and data sets read.
"""

import ast
import copy
import functools
import importlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import recbole
from recbole.config import Config as RecBoleConfig
from recbole.utils import ModelType

from recbole_hyper import registry, settings
from recbole_hyper.config.checks import OWN_METRICS, check_all, check_dataset, is_smaller_better
from recbole_hyper.config.parts import (
    CURVATURE,
    PARTS,
    is_curved,
    part_defaults,
    part_keys,
    part_name,
    part_options,
    parts_of_model,
)
from recbole_hyper.config.recbole_keys import REFUSED, SWITCHED, TRANSLATED, check_refused, translate, without_effect
from recbole_hyper.devices import CPU, usable_accelerator, why_no_accelerator
from recbole_hyper.errors import ConfigError, did_you_mean, near_hint
from recbole_hyper.host import models, old_keys, user_files
from recbole_hyper.host.recbole_files import later_model, recbole_folder, recbole_models
from recbole_hyper.options import Option
from recbole_hyper.values import consists_of
from recbole_hyper.yaml_files import config_file, merge, merged, parse_yaml, properties_folder, read_yaml

logger = logging.getLogger("recbole_hyper")

# prefix of the name of a data set of RecBole, and the folder of these data sets
RECBOLE_DATA = "recbole/"
RECBOLE_PROPERTIES = recbole_folder() / "properties"
# keys that RecBole reads although its YAML files do not name them
RECBOLE_SILENT_KEYS = {"model", "dataset", "tail_ratio", "encoding"}
# texts that mean None
NOTHING = ("None", "~", "null")


def model_class(name: str) -> type:
    """Return the model class called ``name``: a plugin's, else ours, else RecBole's; ConfigError if there is none."""
    plugin = models.models().get(name)
    if plugin is not None:
        return plugin
    ours = registry.names("models")
    if name in ours or ":" in name:
        return registry.resolve("models", name)
    stock = recbole_models()
    if name in stock:
        folder = stock[name].parent.name
        try:
            module = importlib.import_module(f"recbole.model.{folder}.{name.lower()}")
        except ModuleNotFoundError as error:
            raise ConfigError(f"RecBole's {name} needs the package {error.name!r}; install it first") from error
        return getattr(module, name)
    if later := later_model(name):
        raise ConfigError(later)
    hint = did_you_mean(name, [*stock, *ours], " Did you mean ", 4, 0.5)
    raise ConfigError(
        f"model {name!r} is unknown.{hint} "
        f"Models of this package: {', '.join(ours)}; RecBole's general and sequential models also run."
    )


def parse_value(text: Any) -> Any:
    """Return the Python value that a text spells, or the text itself; runs no code."""
    if not isinstance(text, str):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in NOTHING:
        return None
    try:
        value = ast.literal_eval(text)
        return list(value) if isinstance(value, tuple) else value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    if text[:1] in "{[":
        try:
            return parse_yaml(text, f"the value {text[:40]!r}")
        except ConfigError as error:
            if any(word in str(error) for word in ("too deeply", "given twice")):
                raise
    return text


def parse_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``keys`` with texts parsed, but for keys whose value is text: the interval "[5,10]" stays text."""
    return {
        key: value if settings.is_text(key) and value not in NOTHING else parse_value(value)
        for key, value in keys.items()
    }


@functools.cache
def recbole_values() -> dict[str, tuple[Any, ...]]:
    """Return every key in RecBole's YAML files, and its values there."""
    names = ("*", "model/*", "dataset/sample", "dataset/ml-*", "quick_start_config/*")
    by_key: dict[str, tuple[Any, ...]] = {}
    for path in (path for name in names for path in RECBOLE_PROPERTIES.glob(f"{name}.yaml")):
        for key, value in read_yaml(path).items():
            by_key[key] = (*by_key.get(key, ()), value)
    return by_key


@functools.cache
def all_known_keys() -> frozenset[str]:
    """Return every key that this package declares or RecBole knows."""
    return frozenset({*recbole_values(), *settings.declared(), *RECBOLE_SILENT_KEYS})


def is_switch(key: str) -> bool:
    """Return whether ``key`` is true or false, by its declaration or else by RecBole's defaults."""
    option = settings.declared().get(key)
    if option is not None and option.kind is not Any:
        return consists_of(option.kind, bool, type(None))
    values = [value for value in recbole_values().get(key, ()) if value is not None]
    return bool(values) and all(isinstance(value, bool) for value in values)


class Config(RecBoleConfig):
    """Configuration of one run.

    Args:
        model: name or class of a model of this package or of RecBole.
        dataset: name of the dataset folder below ``data_path``.
        config_file_list: YAML files, or names of protocols such as "global_timepoint"; later ones win.
        config_dict: keys that win over the files; the dictionary is not changed.
        keys_of_files: by key of ``config_dict`` that comes from a file: the file, "" for one that a run wrote. Nothing
            needs to read such a key.

    Raises:
        ConfigError: a key, model or part is unknown, a value is not allowed, or the data set is missing.
    """

    model_class: Any
    parameters: dict[str, list[str]]
    internal_config_dict: dict[str, Any]  # the defaults
    external_config_dict: dict[str, Any]  # the user's keys
    final_config_dict: dict[str, Any]  # the result
    sources: dict[str, str]  # where the default of each key comes from
    file_of_key: dict[str, str]  # the configuration file of each key that comes from one
    foreign_keys: Sequence[str] = ()  # keys of configuration files that nothing reads
    without_effect: dict[str, str]  # documented keys that the model does not read, and why
    remarks: list[str]  # warnings about keys that have no effect because of another key
    _beside: frozenset[str] = frozenset()  # files with defaults that are beside a third party's model

    def __init__(
        self,
        model: str | type | None = None,
        dataset: str | None = None,
        config_file_list: Sequence[str | os.PathLike[str]] | None = None,
        config_dict: Mapping[str, Any] | None = None,
        keys_of_files: Mapping[str, str] | None = None,
    ) -> None:
        files = [config_file(path) for path in config_file_list or ()]
        self.bind(model, dataset, files, parse_keys(config_dict or {}), keys_of_files or {})

    def bind(
        self,
        model: str | type | None,
        dataset: str | None,
        files: Sequence[Path],
        typed: Mapping[str, Any],
        keys_of_files: Mapping[str, str],
    ) -> None:
        """Set and check every value, from ``files`` and from the keys ``typed`` on a command line or in Python."""
        # old names in the files are translated later: their meaning depends on the model
        raw = merged(*(read_yaml(path, twice=[]) for path in files), typed)
        plugins = registry.load_plugins(raw["plugins"]) if raw.get("plugins") else None
        model = model or raw.get("model")
        dataset = dataset or raw.get("dataset") or ("interactions" if raw.get("interactions") == "given" else None)
        if model is None or dataset is None:
            missing = "model" if model is None else "dataset"
            raise ConfigError(f"no {missing} was named; set --{missing}=NAME")
        self.model_class = models.with_origin(self.find_model(model))
        # the prefix selects RecBole's data set if this package has another of that name
        self.model, self.dataset = self.model_class.__name__, str(dataset).removeprefix(RECBOLE_DATA)
        self._of_recbole = self.dataset != str(dataset)
        sequential = self.model_class.type == ModelType.SEQUENTIAL
        self._third_party = models.is_third_party(self.model_class)
        # keys in the source of a model of RecBole or of a third party
        self._own_keys = models.keys_in_source(self.model_class)
        self._parts = list(PARTS) if registry.parts_of(self.model_class) else []

        file_keys, self.file_of_key = user_files.read_all(files, sequential=sequential)
        typed, renamed = old_keys.translated(typed, "the command line", sequential=sequential)
        for text in renamed:
            logger.warning("%s", text)
        places = {**self.file_of_key, **keys_of_files}
        self.file_of_key = {key: file for key, file in places.items() if key in keys_of_files or key not in typed}
        keys = self.external_config_dict = merged(file_keys, typed)
        if plugins:
            keys["plugins"] = plugins
        if self._parts:
            old_keys.rename_loss(keys, self.model)
        for key in PARTS.keys() & keys.keys():
            keys[key] = part_name(key, keys[key])

        layers = self._defaults()
        self.internal_config_dict = merged(*(layer for _, layer in layers))
        self.sources = {key: name for name, layer in layers for key in layer}
        self.without_effect = self._unread()
        self._check_keys()

        off, defaults = self.switched_off(), self.internal_config_dict
        read = {key: value for key, value in keys.items() if key not in off and not self.ignores(key)}
        final = self.final_config_dict = copy.deepcopy(defaults)
        merge(final, copy.deepcopy(read))
        self.remarks = translate(read, final, self.model_class)
        for text in self.remarks:
            logger.warning("%s", text)
        # keys to which a third party's model gives its own meaning
        others = self._own_keys - settings.general_defaults().keys() if self._third_party else frozenset()
        check_all(keys, final, defaults, self.options(), self.model_class, others)
        self._complete()
        if issubclass(self.model_class, registry.Model):
            self.model_class.check_config(self)

    def find_model(self, model: str | type) -> type:
        """Return the class of a model, which may be a name or a class."""
        return model if isinstance(model, type) else model_class(str(model))

    def _defaults(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the defaults with their sources; later ones win."""
        cls, name, keys = self.model_class, self.model, self.external_config_dict
        layers: list[tuple[str, Mapping[str, Any]]] = [("RecBole", self._recbole_defaults())]
        layers.append(("settings", settings.shared_defaults()))
        own_yaml = f"model/{name}.yaml"
        model_file, recbole_file = properties_folder() / own_yaml, RECBOLE_PROPERTIES / own_yaml
        model_yaml = read_yaml(model_file) if model_file.is_file() else {}
        if issubclass(cls, registry.Model) and cls.own_options:
            layers.append((f"model {name}", registry.defaults(cls)))
        if registry.parts_of(cls):
            parts, applies = parts_of_model(registry.parts_of(cls), model_yaml, keys)
            layers += [(f"{PARTS[key][1]} {part}", part_defaults(key, part)) for key, part in parts.items()]
            layers += [(own_yaml, applies), (f"{name}.parts", parts)]
        elif issubclass(cls, registry.Model):
            layers.append((own_yaml, model_yaml))
        elif models.is_third_party(cls):
            layers += self._defaults_of_files(models.defaults_files(cls), keys)
        elif recbole_file.is_file():
            layers += self._defaults_of_files([recbole_file], {})
        layers.append(("datasets.yaml", read_yaml(properties_folder() / "datasets.yaml").get(self.dataset) or {}))
        return layers

    def _defaults_of_files(self, files: Sequence[Path], keys: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the defaults in ``files`` of a model of RecBole or of a third party; ``keys`` are the user's."""
        layers: list[tuple[str, Mapping[str, Any]]] = []
        sequential = self.model_class.type == ModelType.SEQUENTIAL
        for file in files:
            if RECBOLE_PROPERTIES in file.parents:
                layers.append((f"RecBole's model/{file.name}", read_yaml(file)))
                continue
            content = user_files.read(file, sequential=sequential)
            self.file_of_key = {**dict.fromkeys(content, str(file)), **self.file_of_key}
            self._beside |= {file.name}
            own = {key: value for key, value in content.items() if key not in old_keys.SET_BY_RECBOLE}
            layers.append((file.name, own))
        stated = merged(*(layer for _, layer in layers))
        if {**stated, **keys}.get("loss_type") == "CE" and sequential and "train_neg_sample_args" not in stated:
            # RecBole refuses its default of one negative for a cross-entropy model
            layers.append(("its loss CE", {"train_neg_sample_args": None}))
        return layers

    def _recbole_defaults(self) -> dict[str, Any]:
        """Return the defaults in RecBole's files for this model and data set."""
        self._init_parameters_category()
        # RecBole appends to these module-level lists at every construction
        self.parameters = copy.deepcopy(self.parameters)
        self.yaml_loader = self._build_yaml_loader()
        super()._load_internal_config_dict(self.model, self.model_class, self.dataset)
        return dict(self.internal_config_dict)

    def options(self) -> dict[str, Option]:
        """Return every declared option by key, as the model and its parts declare it."""
        by_key = dict(settings.declared())
        if issubclass(self.model_class, registry.Model):
            by_key |= self.model_class.own_options
        for key in self._parts:
            by_key |= part_options(key, self.internal_config_dict[key])
        return by_key

    def _complete(self) -> None:
        """Add the other keys that RecBole's models and data sets read, with RecBole's own methods."""
        final = self.final_config_dict
        root = os.path.join(final["data_path"], RECBOLE_DATA if self._of_recbole else "").rstrip("/")
        if final.get("load_col") is None:
            final["load_col"] = {"inter": [final[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")]}
        is_set = {"train_neg_sample_args"} & {*self.external_config_dict, *self.file_of_key}
        if final.get("loss_type") == "BPR" and not is_set:
            final["train_neg_sample_args"] = {"distribution": "uniform", "sample_num": 1}
        metrics = [final["metrics"]] if isinstance(final["metrics"], str) else final["metrics"]
        final["metrics"] = [name for name in metrics if name.lower() not in OWN_METRICS] or ["NDCG"]
        if not hasattr(self.model_class, "input_type") and "loss_type" not in final:
            raise ConfigError(
                f"{self.model} needs loss_type, CE or BPR, since its class has no input_type: set it, or put the "
                f"model's own {self.model}.yaml beside its file"
            )
        try:
            super()._set_default_parameters()
        except (TypeError, KeyError, AttributeError) as error:
            # RecBole does not check every value
            raise ConfigError(f"RecBole cannot use this configuration: {type(error).__name__}: {error}") from error
        final["metrics"] = metrics
        final["valid_metric_bigger"] = not is_smaller_better(final["valid_metric"])
        final["data_path"] = os.path.join(root, self.dataset)
        if "data_path" in self.external_config_dict and not Path(root).is_dir() and self.dataset == "ml-100k":
            raise ConfigError(
                f"data_path={root!r} does not exist; leave it out to use the ml-100k in the recbole package"
            )
        if self.dataset == "ml-100k" and not (Path(root) / "ml-100k" / "ml-100k.inter").is_file():
            final["data_path"] = str(Path(recbole.__file__).parent / "dataset_example" / "ml-100k")
            if "data_path" in self.external_config_dict:
                logger.warning("data_path=%r has no ml-100k: using the copy in the recbole package", root)
        self._check_dataset(root)
        if not final.get("use_gpu", True):
            final["gpu_id"] = ""  # RecBole ignores use_gpu; an empty gpu_id selects the CPU
        super()._init_device()
        # RecBole supports no accelerator but CUDA
        if final["gpu_id"] and final["device"].type == "cpu":
            final["device"] = usable_accelerator() or CPU
        if self.external_config_dict.get("use_gpu") and final["device"].type == "cpu":
            logger.warning("use_gpu=True: this run uses the CPU; %s", why_no_accelerator(final["gpu_id"]))
        super()._set_train_neg_sample_args()
        for phase in ("valid", "test"):
            # the protocol draws candidates once; RecBole's samplers draw none
            final[f"{phase}_neg_sample_args"] = {"distribution": "uniform", "sample_num": "none"}

    def _check_dataset(self, root: str) -> None:
        """Raise MissingDataError if the files of the data set are not below ``root``."""
        check_dataset(self.final_config_dict, root, self.dataset, of_recbole=self._of_recbole)

    def ignores(self, key: str) -> bool:
        """Return whether a run of this model ignores the known key ``key``."""
        defaults = self.internal_config_dict
        if key in self.without_effect or (key in REFUSED and key not in defaults):
            return True
        if key in defaults or key in RECBOLE_SILENT_KEYS or key in self._own_keys or key not in all_known_keys():
            return False
        return not any(key in part_keys(part, defaults[part]) for part in self._parts)

    def _unread(self) -> dict[str, str]:
        """Return the documented keys that the model ignores, and why."""
        reasons = without_effect(self.model_class)
        if self._third_party:
            reasons = {key: why for key, why in reasons.items() if key not in self._own_keys}
        if self._parts and not is_curved(self.internal_config_dict):
            reasons |= dict.fromkeys(CURVATURE, "neither the geometry nor the encoder is curved")
        return reasons

    def known_keys(self) -> frozenset[str]:
        """Return every key that may be set: RecBole's, this package's, and those of the model and its parts."""
        own = (part_keys(part, self.internal_config_dict[part]) for part in self._parts)
        others = (models.keys_in_source(model) for model in models.models().values())
        return all_known_keys().union(self.internal_config_dict, self._own_keys, REFUSED, *own, *others)

    def _check_keys(self) -> None:
        """Raise ConfigError for a refused or an unknown key, and drop the keys of files that nothing reads.

        For a third party's model these keys stay, as its source may compose the names of keys.
        """
        keys = self.external_config_dict
        check_refused(keys)
        in_beside = {key for key, source in self.sources.items() if source in self._beside}
        named = models.words_in_source(self.model_class) if self._third_party else frozenset()
        known = self.known_keys() - (in_beside - all_known_keys() - self._own_keys) | named
        read = {key for key in known if not self.ignores(key)}
        strict = bool(keys.get("strict"))
        self.foreign_keys = user_files.foreign_keys(self.file_of_key, known, read, strict=strict)
        for key in self.foreign_keys:
            if key in old_keys.SET_BY_RECBOLE or not self._third_party:
                keys.pop(key, None)
        known = self.known_keys().union(self.foreign_keys)
        for key in (key for key in keys if key not in known):
            raise ConfigError(f"unknown key {key!r}{near_hint(key, known)}")
        for key, why in self.unread_keys().items():
            logger.warning("%s does not read %s: the key has no effect in this run; %s", self.model, key, why)

    def unread_keys(self) -> dict[str, str]:
        """Return the user's keys that a run of this model ignores, and why.

        A key that has its default value, as in the configuration of an earlier run, is left out.
        """
        keys, other = self.external_config_dict, "it belongs to other models or parts"
        ignored = (key for key in keys if key not in REFUSED and self.ignores(key))
        unread = self.switched_off() | {key: self.without_effect.get(key, other) for key in ignored}
        return {key: why for key, why in unread.items() if keys[key] not in (None, self.internal_config_dict.get(key))}

    def switched_off(self) -> dict[str, str]:
        """Return the user's keys that have no effect because of the value of another key, and that value."""
        values = self.internal_config_dict | self.external_config_dict
        return {
            key: f"{other} is {values.get(other)!r}"
            for keys, other, counts in SWITCHED
            if not counts(values.get(other))
            for key in keys
            if key in self.external_config_dict
        }

    def plain(self) -> dict[str, Any]:
        """Return the complete configuration as plain values, which can be used as a config file."""
        dropped = {"device", "eval_type", "MODEL_TYPE", "MODEL_INPUT_TYPE", "single_spec", "local_rank"}
        dropped |= {"valid_neg_sample_args", "test_neg_sample_args", "valid_metric_bigger", "resume"}
        if "use_gpu" not in self.external_config_dict:
            dropped.add("use_gpu")  # so that opening the run warns about a missing GPU only if one was requested
        # a resumed run compares its epochs, even if the model ignores them
        dropped |= (set(self.without_effect) - {"epochs"}) | set(TRANSLATED)
        content = {key: value for key, value in self.final_config_dict.items() if key not in dropped}
        if issubclass(self.model_class, registry.Model) or self._third_party:
            content["model"] = registry.lasting_name("models", self.model_class)
        content["data_path"] = str(Path(self.final_config_dict["data_path"]).parent)
        if (content.get("train_neg_sample_args") or {}).get("distribution") == "none":
            content["train_neg_sample_args"] = None
        return content
