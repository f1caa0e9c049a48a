"""Resolves the configuration of a run: the value of every key, its source, and what reads it. See docs/options.md.

Later sources win: RecBole's files; the settings of every run; the options of the model's parts; the model's file; the
data set's line; the configuration that an earlier run stored; the user's files, in order; the dictionary or the command
line. ``eval_args`` is merged key by key, any other key is replaced as a whole.
"""

import copy
import functools
import importlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recbole_hyper import registry, settings
from recbole_hyper.config.checks import check_all, check_dataset
from recbole_hyper.config.parts import CURVATURE, PARTS, is_curved, part_name, part_of, parts_of_model
from recbole_hyper.config.recbole_keys import NO_EFFECT, REFUSED, TO_TRANSLATE, translate, without_effect
from recbole_hyper.errors import ConfigError, Mistakes, did_you_mean, near_hint, near_key
from recbole_hyper.host import models, old_keys, user_files
from recbole_hyper.host.recbole_config import ResolvedConfig, default_values, is_sequential
from recbole_hyper.host.recbole_files import MODEL_FOLDERS, recbole_models
from recbole_hyper.options import Option
from recbole_hyper.yaml_files import (
    merge,
    merged,
    only,
    packaged_yaml,
    properties_folder,
    read_yaml,
    recbole_folder,
    warn_once,
    without,
)

Keys = Mapping[str, Any]
# prefix of the name of a data set of RecBole, and the folder of these data sets
RECBOLE_DATA = "recbole/"
RECBOLE_PROPERTIES = recbole_folder() / "properties"
# keys that RecBole reads although its YAML files do not name them
RECBOLE_SILENT_KEYS = {"model", "dataset", "tail_ratio", "encoding"}
# keys whose value is a path, in which ~ is the home folder
PATHS = ("data_path", "output_dir", "init_from")
# names of metrics in other libraries
METRICS = {"hr": "Hit"}


def model_class(name: str | type, folders: Sequence[str] = MODEL_FOLDERS, *, recbole_first: bool = False) -> type:
    """Return the model class called ``name``: a plugin's, else ours, else RecBole's; ConfigError if there is none.

    ``folders`` are RecBole's folders of models; ``recbole_first`` is for RecBole's functions, where a name that both
    packages have (Pop, ItemKNN) is RecBole's. A class is returned as it is.
    """
    if isinstance(name := models.models().get(str(name), name), type):
        return name
    name = str(name)
    ours, stock = registry.names("models"), recbole_models(folders)
    if (name in ours and not (recbole_first and name in stock)) or ":" in name:
        return registry.resolve("models", name)
    file = {path.stem: path for path in stock.values()}.get(name.lower())
    try:
        module = file and importlib.import_module(f"recbole.model.{file.parent.name}.{file.stem}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"RecBole's {name} needs the package {error.name!r}; install it first") from error
    if hasattr(module, name):
        return getattr(module, name)
    for kind in ("context_aware", "knowledge_aware"):
        if name in recbole_models((f"{kind}_recommender",)):
            raise ConfigError(f"RecBole's {name}: {kind.replace('_', '-')} models are not supported")
    hint = did_you_mean(name, [*stock, *ours], " Did you mean ", 4, 0.5)
    raise ConfigError(
        f"neither RecBole nor this package has a model {name!r}.{hint} Models of this package: {', '.join(ours)}; "
        "RecBole's general and sequential models also run."
    )


@functools.cache
def recbole_values() -> dict[str, tuple[Any, ...]]:
    """Return every key in RecBole's YAML files, and its values there."""
    names = ("*", "model/*", "dataset/sample", "dataset/ml-*", "quick_start_config/*")
    by_key: dict[str, tuple[Any, ...]] = {}
    for path in (path for name in names for path in RECBOLE_PROPERTIES.glob(f"{name}.yaml")):
        for key, value in packaged_yaml(path).items():
            by_key[key] = (*by_key.get(key, ()), value)
    return by_key


def known_at_once(key: str) -> bool:
    """Return whether ``key`` is known without a look at the parts: a setting, or a key of RecBole."""
    return key in settings.SETTINGS or key in recbole_values() or key in RECBOLE_SILENT_KEYS


@functools.cache
def all_known_keys() -> frozenset[str]:
    """Return every key that this package declares or RecBole knows; this imports all parts."""
    return frozenset({*recbole_values(), *settings.declared(), *RECBOLE_SILENT_KEYS})


@dataclass
class Resolution:
    """The configuration of one run. ``mistakes`` are all reasons why it cannot run."""

    model_class: Any
    model: str
    dataset: str
    of_recbole: bool  # whether the data set is RecBole's
    third_party: bool
    own_keys: frozenset[str]  # keys in the source of a model of RecBole or of a third party
    given: dict[str, Any] = field(default_factory=dict)  # the user's keys
    files: dict[str, str] = field(default_factory=dict)  # file of each key that comes from one; "" for a stored one
    beside: set[str] = field(default_factory=set)  # names of the files with defaults beside a third party's model
    parts: dict[str, str] = field(default_factory=dict)  # name by key (encoder, geometry, loss_type)
    defaults: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # of the defaults
    options: dict[str, Option] = field(default_factory=dict)  # every declaration by key
    reasons: dict[str, str] = field(default_factory=dict)  # documented keys that the model does not read, and why
    read: frozenset[str] = frozenset()  # all keys that the run reads
    foreign: list[str] = field(default_factory=list)  # keys of files that nothing reads
    values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    mistakes: Mistakes = field(default_factory=Mistakes)

    def ignores(self, key: str) -> bool:
        """Return whether a run of this model ignores the known key ``key``."""
        if key in self.reasons or (key in REFUSED and key not in self.defaults):
            return True
        return key not in self.read and (known_at_once(key) or key in all_known_keys())

    def known_keys(self) -> frozenset[str]:
        """Return every key that may be set: RecBole's, this package's, and those of the model and its parts."""
        others = (models.keys_in_source(model) for model in models.models().values())
        return all_known_keys().union(self.read, REFUSED, *others)

    def unread(self) -> dict[str, str]:
        """Return the user's keys that a run of this model ignores, and why.

        A key that has its default value, as in the configuration of an earlier run, is left out.
        """
        ignored = (key for key in self.given if key not in REFUSED and self.ignores(key))
        unread = {key: self.reasons.get(key, "it belongs to other models or parts") for key in ignored}
        unread = self.switched_off() | unread
        return {key: why for key, why in unread.items() if self.given[key] not in (None, self.defaults.get(key))}

    def switched_off(self) -> dict[str, str]:
        """Return the user's keys that have no effect because of the value of another key, and that value."""
        values = self.defaults | self.given
        return {
            key: f"{entry.switch} is {values.get(entry.switch)!r}"
            for entry in NO_EFFECT
            if entry.switch and not entry.is_on(values.get(entry.switch))
            for key in entry.keys.split()
            if key in self.given
        }


def at_home(key: str, value: Any) -> Any:
    """Return the value of ``key``, with the home folder for ~ if it is a path."""
    return os.path.expanduser(value) if key in PATHS and isinstance(value, str) else value


@dataclass(frozen=True)
class Rules:
    """What differs between kinds of runs: this package's own, those in RecBole's functions, and stored ones."""

    find_model: Callable[[Any], type] = model_class
    unread: Mapping[str, str] = field(default_factory=dict)  # keys that are not read, and why; "" for one that is read
    optional: Collection[str] = ()  # keys that are left out with a warning if nothing knows them
    with_files: bool = True  # False if the data set may be missing


def resolve(
    model: str | type | None,
    dataset: str | None,
    files: Sequence[Path] = (),
    keys: Mapping[str, Any] | None = None,
    *,
    stored: Mapping[str, Any] | None = None,
    places: Mapping[str, str] | None = None,
    rules: Rules = Rules(),
) -> Resolution:
    """Return the configuration of a run; the arguments are those of ``Config``, ``keys`` are already parsed.

    ConfigError if no model or no data set is named, or if a file, a plugin or the model cannot be read. All other
    mistakes are in the result.
    """
    keys, stored, broken = dict(keys or {}), dict(stored or {}), Mistakes()
    raw = dict(stored)
    for path in files:
        with broken.collected():
            # old names in the files are translated later: their meaning depends on the model
            merge(raw, read_yaml(path))
    merge(raw, keys)
    if raw.get("plugins"):
        keys["plugins"] = registry.load_plugins(raw["plugins"])
    model = model or raw.get("model")
    dataset = dataset or raw.get("dataset") or ("interactions" if raw.get("interactions") == "given" else None)
    for key, one in (("model", model), ("dataset", dataset)):
        if one is None:
            broken.add(f"no {key} given: use --{key}=NAME")
    cls: Any = None
    with broken.collected():
        cls = models.with_origin(rules.find_model(model)) if model is not None else None
    broken.raise_all()
    # the prefix selects RecBole's data set if this package has another of that name
    name = str(dataset).removeprefix(RECBOLE_DATA)
    third_party, own_keys = models.is_third_party(cls), models.keys_in_source(cls)
    found = Resolution(cls, cls.__name__, name, name != str(dataset), third_party, own_keys)
    _read(found, files, keys, stored, places or {})
    _set_defaults(found, rules.unread)
    _check_keys(found, rules.optional)
    _set_values(found)
    _find_data(found, with_files=rules.with_files)
    return found


def _read(found: Resolution, files: Sequence[Path], keys: Keys, stored: Keys, places: Mapping[str, str]) -> None:
    """Read the user's keys from a stored configuration, files and ``keys``, with today's names."""
    sequential, of_files = is_sequential(found.model_class), dict[str, Any]()
    for path in files:
        with found.mistakes.collected():
            content = user_files.read(path, sequential=sequential)
            merge(of_files, content)
            found.files |= dict.fromkeys(content, str(path))
    with found.mistakes.collected():
        old, lines = old_keys.translated(only(old_keys.NAMES, keys), sequential=sequential)
        keys, found.warnings = without(old_keys.NAMES, keys) | old, found.warnings + lines
    origins = {**dict.fromkeys(stored, ""), **found.files, **places}
    found.files = {key: file for key, file in origins.items() if key in places or key not in keys}
    given = found.given = merged(stored, of_files, keys)
    given |= {key: at_home(key, given[key]) for key in PATHS if key in given}
    for key in ("user_inter_num_interval", "item_inter_num_interval"):
        if isinstance(given.get(key), list) and len(given[key]) == 2:  # files of RecBole's users may have [5, 10]
            given[key] = "[{},{}]".format(*given[key])
    order = given["eval_args"].get("order") if isinstance(given.get("eval_args"), Mapping) else None
    if order == "RO" and given.get("TIME_FIELD", "") is None:  # RecBole's sign of data without times
        del given["TIME_FIELD"]
    if isinstance(metrics := given.get("metrics"), list):
        given["metrics"] = [METRICS.get(str(name).lower(), name) for name in metrics]
    for key in ("metrics", "valid_metric"):
        if isinstance(metric := given.get(key), str):
            name, at, cut = metric.partition("@")
            given[key] = METRICS.get(name.lower(), name) + at + cut
    for key in only(PARTS, given):
        try:
            if key == "loss_type" and registry.parts_of(found.model_class):
                given[key] = old_keys.renamed_loss(given[key], found.model)
            given[key] = part_name(key, given[key])
            if given[key] and registry.parts_of(found.model_class):
                registry.resolve(PARTS[key][0], given[key])
        except ConfigError as error:
            found.mistakes.add(str(error))
            del given[key]


def _set_defaults(found: Resolution, unread: Mapping[str, str]) -> None:
    """Set the defaults, their sources, the declarations, and the keys that the model reads and does not read."""
    cls, layers = found.model_class, list(_layers(found))
    found.defaults = merged(*(layer for _, layer in layers))
    found.sources = {key: name for name, layer in layers for key in layer}
    found.options = dict(settings.SETTINGS if issubclass(cls, registry.Model) else settings.declared())
    own = dict(cls.own_options) if issubclass(cls, registry.Model) else {}
    for key, name in found.parts.items():
        own |= {option.key: option for option in part_of(key, name).options().values()}
    found.options |= own
    found.read = found.own_keys.union(RECBOLE_SILENT_KEYS, found.defaults, own)
    reasons = without_effect(cls)
    if found.third_party:
        reasons = {key: why for key, why in reasons.items() if key not in found.own_keys}
    if found.parts and not is_curved(found.defaults):
        reasons |= dict.fromkeys(CURVATURE, "neither the geometry nor the encoder is curved")
    found.reasons = {key: why for key, why in {**reasons, **unread}.items() if why}


def _layers(found: Resolution) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the defaults with their sources; later ones win."""
    cls, name, given = found.model_class, found.model, found.given
    yield "RecBole", default_values(name, cls, found.dataset)
    yield "settings", settings.shared_defaults()
    own_yaml = f"model/{name}.yaml"
    model_file, recbole_file = properties_folder() / own_yaml, RECBOLE_PROPERTIES / own_yaml
    model_yaml = packaged_yaml(model_file) if model_file.is_file() else {}
    if issubclass(cls, registry.Model) and cls.own_options:
        yield f"model {name}", cls.defaults()
    if registry.parts_of(cls):
        found.parts, applies = parts_of_model(registry.parts_of(cls), model_yaml, only(PARTS, given))
        for key, part in found.parts.items():
            yield f"{PARTS[key][1]} {part}", part_of(key, part).defaults()
        yield own_yaml, applies
        yield f"{name}.parts", found.parts
    elif issubclass(cls, registry.Model):
        yield own_yaml, model_yaml
    elif found.third_party:
        yield from _layers_of_files(found, models.defaults_files(cls), given)
    elif recbole_file.is_file():
        yield from _layers_of_files(found, [recbole_file], {})
    data_sets = packaged_yaml(properties_folder() / "datasets.yaml")
    yield "datasets.yaml", data_sets.get(found.dataset) or {}


def _layers_of_files(found: Resolution, files: Sequence[Path], given: Keys) -> Iterator[tuple[str, Keys]]:
    """Yield the defaults in ``files`` of a model of RecBole or of a third party; ``given`` are the user's keys."""
    stated, sequential = dict[str, Any](), is_sequential(found.model_class)
    for file in files:
        if RECBOLE_PROPERTIES in file.parents:
            layer, name = packaged_yaml(file), f"RecBole's model/{file.name}"
        else:
            content = user_files.read(file, sequential=sequential)
            found.files = {**dict.fromkeys(content, str(file)), **found.files}
            found.beside |= {file.name}
            layer, name = {key: content[key] for key in content if key not in old_keys.SET_BY_RECBOLE}, file.name
        merge(stated, layer)
        yield name, layer
    is_ce = {**stated, **given}.get("loss_type") == "CE"
    if is_ce and sequential and "train_neg_sample_args" not in stated:
        # RecBole refuses its default of one negative for a cross-entropy model
        yield "its loss CE", {"train_neg_sample_args": None}


def _check_keys(found: Resolution, optional: Collection[str]) -> None:
    """Find refused and unknown keys, and drop the keys of files that nothing reads.

    For a third party's model these keys stay, as its source may compose the names of keys.
    """
    given, files = found.given, found.files
    for key, (nothing, why) in REFUSED.items():
        if given.get(key) not in nothing:
            found.mistakes.add(f"{key} is not supported ({key}={given[key]!r}): {why}")
    beside = {key for key, source in found.sources.items() if source in found.beside} - found.own_keys
    named = models.words_in_source(found.model_class) if found.third_party else frozenset()
    known, slips = frozenset[str](), dict[str, dict[str, str]]()
    for key in {**files, **given}:
        file = files.get(key)
        if key in old_keys.SET_BY_RECBOLE and file is not None:
            found.foreign.append(key)
            continue
        # an old name is still there only if its translation failed
        if key in named or key in REFUSED or key in old_keys.OLD or known_at_once(key):
            continue
        if key in found.read and key not in beside:
            continue
        known = known or found.known_keys()
        if key in known and (file is None or key not in beside or key in all_known_keys()):
            continue
        if file is not None:
            found.foreign.append(key)
            # a file beside a model has its own keys, and a stored configuration was checked
            if file and Path(file).name not in found.beside:
                near = near_key(key, [one for one in known if not found.ignores(one)])
                slips.setdefault(file, {}).update({key: near} if near else {})
            continue
        if key in optional:
            found.warnings.append(f"--{key} on the command line is not a key of this configuration and is ignored")
        else:
            found.mistakes.add(f"unknown key {key!r}{near_hint(key, known)}")
        del given[key]
    for file in filter(None, dict.fromkeys(files[key] for key in found.foreign)):
        wrong = slips.get(file, {})
        texts = [f"unknown key {key!r}, did you mean {near}?" for key, near in wrong.items()]
        names = [key for key in found.foreign if files[key] == file and key not in wrong]
        if names and given.get("strict"):
            texts.append(f"nothing reads {', '.join(names)}; remove it, or leave out --strict")
        elif names:
            warn_once(file, f"nothing reads {', '.join(names)}")
        if texts:
            found.mistakes.add(f"{file}: {' '.join(texts)}")
    for key in found.foreign:
        if key in old_keys.SET_BY_RECBOLE or not found.third_party:
            given.pop(key, None)
    for key, why in found.unread().items():
        found.warnings.append(f"{found.model} does not read {key}: the key has no effect in this run; {why}")


def _set_values(found: Resolution) -> None:
    """Set and check the values."""
    given, cls = found.given, found.model_class
    off = found.switched_off()
    read = {key: given[key] for key in given if key not in off and not found.ignores(key)}
    values = found.values = copy.deepcopy(found.defaults)
    merge(values, copy.deepcopy(read))
    with found.mistakes.collected():
        changed, remarks = translate(only(TO_TRANSLATE, read), only(TO_TRANSLATE, values), cls)
        values |= changed
        found.warnings += remarks
    own_meaning: Collection[str] = ()
    if found.third_party:
        own_meaning = found.own_keys - settings.general_defaults().keys()
        # RecBole's attributes and the keys that it sets
        reads_itself = {*dir(ResolvedConfig), *old_keys.SET_BY_RECBOLE, "internal_config_dict", "final_config_dict"}
        unset = found.own_keys - values.keys() - {"loss_type"} - RECBOLE_SILENT_KEYS - reads_itself
        if unset:
            names = ", ".join(sorted(unset))
            found.warnings.append(f"{found.model} reads {names} in its source, but no file sets it: it is None")
    check_all(found, own_meaning)
    if values.get("loss_type") == "BPR" and "train_neg_sample_args" not in {*given, *found.files}:
        values["train_neg_sample_args"] = {"distribution": "uniform", "sample_num": 1}
    if values.get("load_col") is None:
        values["load_col"] = {"inter": [values[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")]}


def _find_data(found: Resolution, *, with_files: bool) -> None:
    """Set ``data_path`` to the folder of the data set, and find its files unless they may be missing."""
    values = found.values
    kinds = (("data_path", str), ("load_col", dict), ("benchmark_filename", list | None))
    if not all(isinstance(values[key], kind) for key, kind in kinds):
        return  # a mistake
    root = os.path.join(values["data_path"], RECBOLE_DATA if found.of_recbole else "").rstrip("/") or "/"
    values["data_path"] = os.path.join(root, found.dataset)
    if found.dataset == "ml-100k" and not (Path(root) / "ml-100k" / "ml-100k.inter").is_file():
        values["data_path"] = str(recbole_folder() / "dataset_example" / "ml-100k")
        # a file may state RecBole's default, a folder that need not exist
        if "data_path" in found.given and Path(root) != Path(found.defaults["data_path"]):
            found.warnings.append(f"data_path={root!r} has no ml-100k: using the copy in the recbole package")
    if with_files:
        with found.mistakes.collected():
            check_dataset(values, root, found.dataset, of_recbole=found.of_recbole)
