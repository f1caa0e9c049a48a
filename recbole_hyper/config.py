"""RecBole's Config with this project's models and properties, bound strictly before any data are read.

Order, later wins: RecBole's own YAMLs, our overall.yaml, the YAMLs of the parts (encoder, geometry, loss), the model
YAML (ours or RecBole's), what our datasets.yaml says of the data set, config files, the dictionary, the command line.
What the model YAML says of a part that is replaced does not hold: see :mod:`recbole_hyper.config_parts`. ``eval_args``
is merged key by key; every other key is replaced as a whole, as RecBole does. What a run does not read:
:mod:`recbole_hyper.recbole_keys`.
"""

import ast
import copy
import functools
import importlib
import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import recbole
from recbole.config import Config as RecBoleConfig
from recbole.utils import ModelType

from recbole_hyper import registry
from recbole_hyper.bridge import models, old_keys, user_files
from recbole_hyper.config_checks import (
    check_auto,
    check_combinations,
    check_eval_args,
    check_learner,
    check_load_col,
    check_metrics,
    check_valid_metric,
    check_values,
)
from recbole_hyper.config_parts import CURVATURE, PARTS, is_curved, part_keys, part_name, settings_of_model
from recbole_hyper.devices import CPU, usable_accelerator, why_no_accelerator
from recbole_hyper.errors import ConfigError, MissingDataError, did_you_mean, near_hint
from recbole_hyper.keys import is_flag, is_text
from recbole_hyper.recbole_files import later_model, recbole_folder, recbole_models
from recbole_hyper.recbole_keys import REFUSED, SWITCHED, TRANSLATED, check_refused, translate, without_effect
from recbole_hyper.yaml_files import Loader, config_file, merge, merged, parse_yaml, properties_folder, read_yaml

logger = logging.getLogger("recbole_hyper")

# before the name of a data set of RecBole, and the folder that holds these
RECBOLE_DATA = "recbole/"
RECBOLE_PROPERTIES = recbole_folder() / "properties"
# keys that RecBole reads although none of its YAML files names them
RECBOLE_SILENT_KEYS = {"model", "dataset", "tail_ratio", "encoding"}


def model_class(name: str) -> type:
    """Return the model class called ``name``: of plugins, else ours, else RecBole's; ConfigError for none."""
    found = models.model_named(name)
    if found is not None:
        return found
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


# what spells no value at all
NOTHING = ("None", "~", "null")


def parse_value(text: Any) -> Any:
    """Turn a command-line string into the Python value that it spells; anything else stays a string. Runs no code."""
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
    """Turn strings into the values that they spell, except where text is meant: the interval "[5,10]" is no list."""
    return {key: value if is_text(key) and value not in NOTHING else parse_value(value) for key, value in keys.items()}


def config_files(text: str) -> list[str]:
    """Return the paths in ``text``, which spaces separate; a text that names a file is one path, spaces and all."""
    return [text] if Path(text).is_file() else text.split()


@functools.cache
def stated_values() -> dict[str, tuple[Any, ...]]:
    """Return every key that some YAML of RecBole or of this project names, and the values that it has there."""
    stock = ("*", "model/*", "dataset/sample", "dataset/ml-*", "quick_start_config/*")
    ours = ("overall", "model/*", "encoder/*", "geometry/*", "loss/*")
    found: dict[str, tuple[Any, ...]] = {}
    for folder, names in ((RECBOLE_PROPERTIES, stock), (properties_folder(), ours)):
        for path in (path for name in names for path in folder.glob(f"{name}.yaml")):
            for key, value in read_yaml(path).items():
                found[key] = (*found.get(key, ()), value)
    return found


@functools.cache
def all_known_keys() -> frozenset[str]:
    """Return every key that some YAML of RecBole or of this project, or RecBole's own code, names."""
    return frozenset({*stated_values(), *RECBOLE_SILENT_KEYS})


@functools.cache
def general_keys() -> frozenset[str]:
    """Return every key that RecBole's, or this package's, YAML files for all models name."""
    stock = (RECBOLE_PROPERTIES / name for name in ("overall.yaml", "dataset/sample.yaml"))
    return frozenset(key for file in (*stock, properties_folder() / "overall.yaml") for key in read_yaml(file))


def is_switch(key: str) -> bool:
    """Return whether ``key`` is true or false, by its declaration or wherever RecBole gives it a default."""
    values = [value for value in stated_values().get(key, ()) if value is not None]
    return is_flag(key) or (bool(values) and all(isinstance(value, bool) for value in values))


class Config(RecBoleConfig):
    """Configuration of one run.

    Args:
        model: name or class of a model of this package or of RecBole.
        dataset: name of the dataset folder below ``data_path``.
        config_file_list: YAML files, or names of protocols such as "global_timepoint"; later ones win.
        config_dict: keys that win over the files; the dictionary is not changed.
        keys_of_files: by key of ``config_dict`` that comes from a file: the file, "" for one that a run wrote. Such a
            key need not be one that something reads.

    Raises:
        ConfigError: unknown key, model or part; a value of the wrong type or outside its range; a missing dataset.
    """

    def __init__(
        self,
        model: str | type | None = None,
        dataset: str | None = None,
        config_file_list: Sequence[str | os.PathLike[str]] | None = None,
        config_dict: Mapping[str, Any] | None = None,
        keys_of_files: Mapping[str, str] | None = None,
    ) -> None:
        self._named, self._keys_of_files = model, dict(keys_of_files or {})
        files = [str(config_file(path)) for path in config_file_list or []]
        try:
            super().__init__(model, dataset, files, dict(config_dict or {}))
        except (TypeError, KeyError, AttributeError) as error:
            # RecBole does not look at the form of every value that it takes apart
            raise ConfigError(f"RecBole cannot use this configuration: {type(error).__name__}: {error}") from error
        others = self._keys_of_others()
        given, final, defaults = (
            {key: value for key, value in keys.items() if key not in others}
            for keys in (self.external_config_dict, self.final_config_dict, self.internal_config_dict)
        )
        check_values(given, final, defaults)
        check_combinations(self.final_config_dict)
        check_auto(self.final_config_dict, self.model_class)
        check_learner(self.final_config_dict["learner"], self.model_class)
        check_valid_metric(*(self.final_config_dict[key] for key in ("valid_metric", "metrics", "topk")))
        if issubclass(self.model_class, registry.Model):
            self.model_class.check_config(self)

    internal_config_dict: dict[str, Any]
    external_config_dict: dict[str, Any]
    file_config_dict: dict[str, Any]
    # by key of a configuration file: that file
    file_of_key: dict[str, str]
    # keys of files that nothing reads
    foreign_keys: Sequence[str] = ()
    # names of the files beside others' model that have its defaults
    _beside: frozenset[str] = frozenset()
    # by key: the file that its default stands in
    sources: dict[str, str]
    parameters: dict[str, list[str]]
    # by key that the model does not read although RecBole or this package documents it: why
    without_effect: dict[str, str]
    # what is said of keys whose meaning another key takes away
    remarks: list[str]

    # --- RecBole's hooks ---------------------------------------------------------------------------------------------
    def compatibility_settings(self) -> None:
        """Nothing: ``bridge.patches`` has restored what RecBole needs, and RecBole's own version breaks on numpy 2."""

    def _build_yaml_loader(self) -> type[Loader]:
        # RecBole adds to PyYAML's own loader at every construction
        return Loader

    def _load_config_files(self, file_list: Sequence[str]) -> dict[str, Any]:
        self._files = [Path(path) for path in file_list]
        # as they are, to know the model: what old names in them mean depends on it
        return merged(*(read_yaml(path, twice=[]) for path in self._files))

    def _load_cmd_line(self) -> dict[str, Any]:
        # the command line is parsed in cli.py and comes in as config_dict; sys.argv may be pytest's or ray's
        return {}

    def _convert_config_dict(self, config_dict: Mapping[str, Any]) -> dict[str, Any]:
        # RecBole evaluates strings as Python code
        return parse_keys(config_dict)

    def _init_parameters_category(self) -> None:
        super()._init_parameters_category()
        # RecBole appends to these module-level lists at every construction
        self.parameters = copy.deepcopy(self.parameters)

    def _merge_external_config_dict(self) -> None:
        given = merged(self.file_config_dict, self.variable_config_dict)
        # parts and models must be there before they are named
        plugins = registry.load_plugins(given["plugins"]) if given.get("plugins") else None
        named = self._named or given.get("model")
        cls: Any = named if inspect.isclass(named) else model_class(str(named)) if named else None
        sequential = cls is None or cls.type == ModelType.SEQUENTIAL
        self.file_config_dict, self.file_of_key = user_files.read_all(self._files, sequential=sequential)
        of_files = {**self.file_of_key, **self._keys_of_files}
        typed = self.variable_config_dict.keys() - self._keys_of_files.keys()
        self.file_of_key = {key: file for key, file in of_files.items() if key not in typed}
        self.external_config_dict = merged(self.file_config_dict, self.variable_config_dict)
        if plugins:
            self.external_config_dict["plugins"] = plugins
        if cls is not None and registry.parts_of(cls):
            old_keys.rename_loss(self.external_config_dict, cls.__name__)
        for key in PARTS.keys() & self.external_config_dict.keys():
            self.external_config_dict[key] = part_name(key, self.external_config_dict[key])

    def _get_model_and_dataset(self, model: str | type | None, dataset: str | None) -> tuple[str, type, str]:
        model = model or self.external_config_dict.get("model")
        dataset = dataset or self.external_config_dict.get("dataset")
        if dataset is None and self.external_config_dict.get("interactions") == "given":
            dataset = "interactions"
        if model is None or dataset is None:
            missing = "model" if model is None else "dataset"
            raise ConfigError(f"no {missing} was named; give --{missing}=NAME")
        cls = model if inspect.isclass(model) else model_class(str(model))
        # RecBole's data set, where another of its name is this package's
        name = str(dataset).removeprefix(RECBOLE_DATA)
        self._of_recbole = name != str(dataset)
        return cls.__name__, cls, name

    def _load_internal_config_dict(self, model: str, model_class: Any, dataset: str) -> None:
        ours = properties_folder()
        super()._load_internal_config_dict(model, model_class, dataset)
        stock = dict(self.internal_config_dict)
        recbole_model_yaml = RECBOLE_PROPERTIES / "model" / f"{model}.yaml"
        layers: list[tuple[str, Mapping[str, Any]]] = [("RecBole", stock)]
        layers.append(("overall.yaml", read_yaml(ours / "overall.yaml")))
        own_yaml = f"model/{model}.yaml"
        if model_class.type == ModelType.GENERAL:
            # negatives of general models exclude the user's own items, as RecBole's default does
            layers.append(("RecBole", {"repeatable": False}))
        if registry.parts_of(model_class):
            model_yaml = read_yaml(ours / own_yaml) if (ours / own_yaml).is_file() else {}
            parts, found = settings_of_model(model_class.parts, model_yaml, self.external_config_dict)
            names = [*(f"{PARTS[key][1]}/{part}.yaml" for key, part in parts.items()), own_yaml]
            layers += [*zip(names, found, strict=True), (f"{model}.parts", parts)]
        elif models.is_third_party(model_class):
            layers += self._defaults_beside(model_class)
        elif (ours / own_yaml).is_file():
            layers.append((own_yaml, read_yaml(ours / own_yaml)))
        elif recbole_model_yaml.is_file():
            own = read_yaml(recbole_model_yaml)
            layers.append((f"RecBole's {own_yaml}", own))
            if own.get("loss_type") == "CE" and model_class.type == ModelType.SEQUENTIAL:
                # RecBole refuses its own default of one negative for a cross-entropy model
                layers.append(("config.py", {"train_neg_sample_args": None}))
        layers.append(("datasets.yaml", read_yaml(ours / "datasets.yaml").get(dataset) or {}))
        self.internal_config_dict = merged(*(layer for _, layer in layers))
        self.sources = {key: name for name, layer in layers for key in layer}

    def _defaults_beside(self, model: Any) -> list[tuple[str, Mapping[str, Any]]]:
        """Return what X.yaml beside the file of others' model X says, and the like of what it derives from."""
        layers: list[tuple[str, Mapping[str, Any]]] = []
        for file in models.defaults_files(model):
            if RECBOLE_PROPERTIES in file.parents:
                layers.append((f"RecBole's model/{file.name}", read_yaml(file)))
                continue
            content = user_files.read(file, sequential=model.type == ModelType.SEQUENTIAL)
            self.file_of_key = {**dict.fromkeys(content, str(file)), **self.file_of_key}
            self._beside |= {file.name}
            own = {key: value for key, value in content.items() if key not in old_keys.SET_BY_RECBOLE}
            layers.append((file.name, own))
        content = merged(*(layer for _, layer in layers), self.external_config_dict)
        said = any("train_neg_sample_args" in layer for _, layer in layers)
        if content.get("loss_type") == "CE" and model.type == ModelType.SEQUENTIAL and not said:
            # RecBole refuses its own default of one negative for a cross-entropy model
            layers.append(("config.py", {"train_neg_sample_args": None}))
        return layers

    def _get_final_config_dict(self) -> dict[str, Any]:
        self.without_effect = self._unread()
        self._check_keys()
        final: dict[str, Any] = copy.deepcopy(self.internal_config_dict)
        off = self.switched_off()
        given = self.external_config_dict.items()
        read = {key: value for key, value in given if key not in off and not self.ignores(key)}
        merge(final, copy.deepcopy(read))
        self.remarks = translate(read, final, self.internal_config_dict)
        for text in self.remarks:
            logger.warning("%s", text)
        check_load_col(final.get("load_col"))
        if final.get("load_col") is None:
            final["load_col"] = {"inter": [final[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")]}
        said = {"train_neg_sample_args"} & {*self.external_config_dict, *self.file_of_key}
        if final.get("loss_type") == "BPR" and not said:
            final["train_neg_sample_args"] = {"distribution": "uniform", "sample_num": 1}
        return final

    def _set_default_parameters(self) -> None:
        root = os.path.join(self.final_config_dict["data_path"], RECBOLE_DATA if self._of_recbole else "").rstrip("/")
        # RecBole looks these up right away
        check_metrics(self.final_config_dict["metrics"], self.final_config_dict["topk"])
        sequential, refit = self.model_class.type == ModelType.SEQUENTIAL, bool(self.final_config_dict.get("refit"))
        check_eval_args(self.final_config_dict["eval_args"], sequential=sequential, refit=refit)
        super()._set_default_parameters()
        if self.dataset == "ml-100k" and not (Path(root) / "ml-100k" / "ml-100k.inter").is_file():
            self.final_config_dict["data_path"] = str(Path(recbole.__file__).parent / "dataset_example" / "ml-100k")
        else:
            self.final_config_dict["data_path"] = os.path.join(root, self.dataset)
        self._check_dataset(root)

    def _init_device(self) -> None:
        if not self.final_config_dict.get("use_gpu", True):
            # RecBole ignores use_gpu; an empty gpu_id is what selects the CPU
            self.final_config_dict["gpu_id"] = ""
        super()._init_device()
        gpu_id, given = self.final_config_dict["gpu_id"], self.external_config_dict.get("use_gpu")
        # RecBole knows CUDA alone
        if gpu_id and self.final_config_dict["device"].type == "cpu":
            self.final_config_dict["device"] = usable_accelerator() or CPU
        if given and self.final_config_dict["device"].type == "cpu":
            logger.warning("use_gpu=True: this run takes the CPU; %s", why_no_accelerator(gpu_id))

    def _set_eval_neg_sample_args(self, phase: Any) -> None:
        # candidates are drawn once by the protocol, and general models' samplers are not asked for any
        self.final_config_dict[f"{phase}_neg_sample_args"] = {"distribution": "uniform", "sample_num": "none"}

    # --- checks ------------------------------------------------------------------------------------------------------
    def ignores(self, key: str) -> bool:
        """Return whether a run of this model does not read the known key ``key``."""
        if key in self.without_effect or (key in REFUSED and key not in self.internal_config_dict):
            return True
        if key in self.internal_config_dict or key in RECBOLE_SILENT_KEYS or key not in all_known_keys():
            return False
        if key in self._own_keys():
            return False
        # an option of a part's constructor that no YAML of the part names
        return not any(key in part_keys(part, self.internal_config_dict[part]) for part in self._parts())

    def _parts(self) -> Sequence[str]:
        return list(PARTS) if registry.parts_of(self.model_class) else []

    def _unread(self) -> dict[str, str]:
        """Return the documented keys that the model does not read, and why."""
        found = without_effect(self.model_class)
        if models.is_third_party(self.model_class):
            found = {key: why for key, why in found.items() if key not in self._own_keys()}
        if self._parts() and not is_curved(self.internal_config_dict):
            found |= dict.fromkeys(CURVATURE, "neither the geometry nor the encoder is curved")
        return found

    def known_keys(self) -> frozenset[str]:
        """Return every key that may be set: of RecBole, of this package, and of the parts that the model has."""
        others = (models.keys_in_source(model) for model in models.models().values())
        known = (all_known_keys() | set(self.internal_config_dict) | self._own_keys()).union(REFUSED, *others)
        return known.union(*(part_keys(part, self.internal_config_dict[part]) for part in self._parts()))

    def _keys_of_others(self) -> set[str]:
        """Return the keys that mean what others' model makes of them, and not what RecBole makes of them."""
        if not models.is_third_party(self.model_class):
            return set()
        return set(self._own_keys()) - set(general_keys())

    def _own_keys(self) -> frozenset[str]:
        """Return the keys that the source of a model of RecBole, or of others, asks for."""
        return models.keys_in_source(self.model_class)

    def _drop_foreign_keys(self) -> None:
        """Leave out the keys of files that nothing reads; ConfigError for a misspelled one, or where ``strict`` is set.

        Those of others' models stay in the configuration: their source may put the name of a key together.
        """
        beside = {key for key, source in self.sources.items() if source in self._beside}
        named = models.words_in_source(self.model_class) if models.is_third_party(self.model_class) else frozenset()
        known = self.known_keys() - (beside - all_known_keys() - self._own_keys()) | named
        read = {key for key in known if not self.ignores(key)}
        strict = bool(self.external_config_dict.get("strict"))
        self.foreign_keys = user_files.foreign_keys(self.file_of_key, known, read, strict=strict)
        for key in self.foreign_keys:
            if key in old_keys.SET_BY_RECBOLE or not models.is_third_party(self.model_class):
                self.external_config_dict.pop(key, None)

    def _check_keys(self) -> None:
        check_refused(self.external_config_dict)
        self._drop_foreign_keys()
        known = self.known_keys().union(self.foreign_keys)
        for key in (key for key in self.external_config_dict if key not in known):
            raise ConfigError(f"unknown key {key!r}{near_hint(key, known)}")
        for key, why in self.given_in_vain().items():
            logger.warning("%s does not read %s: the key has no effect in this run; %s", self.model, key, why)

    def given_in_vain(self) -> dict[str, str]:
        """Return the keys that are given and that a run of this model does not read, and why.

        What asks for the default, as the configuration of an earlier run does, is no mistake.
        """
        vain = {
            key: self.without_effect.get(key, "it belongs to other models or parts")
            for key in self.external_config_dict
            if key not in REFUSED and self.ignores(key)
        }
        given = {**self.switched_off(), **vain}
        defaults = self.internal_config_dict
        return {
            key: why for key, why in given.items() if self.external_config_dict[key] not in (None, defaults.get(key))
        }

    def switched_off(self) -> dict[str, str]:
        """Return the keys that are given but do not count with the value of another key, and that value."""
        values = self.internal_config_dict | self.external_config_dict
        return {
            key: f"{other} is {values.get(other)!r}"
            for keys, other, counts in SWITCHED
            if not counts(values.get(other))
            for key in keys
            if key in self.external_config_dict
        }

    def _check_dataset(self, root: str) -> None:
        if self.final_config_dict["interactions"] == "given":
            return
        folder = Path(self.final_config_dict["data_path"])
        middles = [f".{part}" for part in self.final_config_dict["benchmark_filename"] or ()] or [""]
        files = [folder / f"{self.dataset}{middle}.inter" for middle in middles]
        file = next((file for file in files if not file.is_file()), None)
        if file is None:
            missing = []
            for suffix in self.final_config_dict["load_col"]:
                if suffix != "inter" and not (folder / f"{self.dataset}.{suffix}").is_file():
                    found = sorted(path.name for path in folder.glob(f"{self.dataset}.*") if path.is_file())
                    logger.warning(
                        "load_col names columns of %r, but %s does not exist: they are not read; the folder holds %s",
                        *(suffix, folder / f"{self.dataset}.{suffix}", ", ".join(found)),
                    )
                    missing.append(suffix)
            columns = self.final_config_dict["load_col"].items()
            self.final_config_dict["load_col"] = {suffix: names for suffix, names in columns if suffix not in missing}
            return
        if folder.is_dir() and len(files) > 1:
            found = sorted(path.name for path in folder.glob("*.inter"))
            raise ConfigError(
                f"benchmark_filename={self.final_config_dict['benchmark_filename']}: {file.absolute()} does not exist; "
                f"the folder holds {', '.join(found) or 'no .inter file'}"
            )
        siblings = sorted(path.parent.name for path in Path(root).glob("*/*.inter")) if Path(root).is_dir() else []
        hint = did_you_mean(repr(self.dataset), map(repr, siblings), " Did you mean ", n=1)
        message = (
            f"dataset {self.dataset!r} was not found: {file.absolute()} does not exist.{hint}"
            + (f" Datasets there: {', '.join(dict.fromkeys(siblings))}." if siblings else "")
            + f" Prepare it with 'recbole-hyper prepare {self.dataset}', or give the folder that holds it with "
            "--data_path=DIR"
        )
        keys = self.final_config_dict
        raise MissingDataError(
            message, self.dataset, Path(root), of_recbole=self._of_recbole, offline=bool(keys.get("offline"))
        )

    def plain(self) -> dict[str, Any]:
        """Return the complete configuration as plain values, runnable again as a config file."""
        dropped = {"device", "eval_type", "MODEL_TYPE", "MODEL_INPUT_TYPE", "single_spec", "local_rank"}
        dropped |= {"valid_neg_sample_args", "test_neg_sample_args", "valid_metric_bigger", "resume"}
        # whether a run may go on is read from its epochs, whatever the model makes of them
        dropped |= (set(self.without_effect) - {"epochs"}) | set(TRANSLATED)
        content = {key: value for key, value in self.final_config_dict.items() if key not in dropped}
        if issubclass(self.model_class, registry.Model) or models.is_third_party(self.model_class):
            content["model"] = registry.lasting_name("models", self.model_class)
        content["data_path"] = str(Path(self.final_config_dict["data_path"]).parent)
        if (content.get("train_neg_sample_args") or {}).get("distribution") == "none":
            content["train_neg_sample_args"] = None
        return content
