"""Resolves the configuration of a run: the value of every key, its source, and what reads it. See docs/options.md.

Later sources win: RecBole's files; the settings of every run; the options of the model's parts; the model's file; the
data set's line; the configuration that an earlier run stored; the user's files, in order; the dictionary or the command
line. ``eval_args`` is merged key by key, any other key is replaced as a whole.
"""

import copy
import functools
import importlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recbole_hyper import registry, settings
from recbole_hyper.config.checks import check_all, check_dataset
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
from recbole_hyper.config.recbole_keys import REFUSED, SWITCHED, TO_TRANSLATE, refusals, translate, without_effect
from recbole_hyper.errors import ConfigError, Mistakes, did_you_mean, near_hint, near_key
from recbole_hyper.host import models, old_keys, user_files
from recbole_hyper.host.recbole_config import ResolvedConfig, default_values, is_sequential
from recbole_hyper.host.recbole_files import MODEL_FOLDERS, later_model, recbole_models
from recbole_hyper.options import Option
from recbole_hyper.yaml_files import (
    merge,
    merged,
    only,
    packaged_yaml,
    properties_folder,
    read_yaml,
    recbole_folder,
    without,
)

# prefix of the name of a data set of RecBole, and the folder of these data sets
RECBOLE_DATA = "recbole/"
RECBOLE_PROPERTIES = recbole_folder() / "properties"
# keys that RecBole reads although its YAML files do not name them
RECBOLE_SILENT_KEYS = {"model", "dataset", "tail_ratio", "encoding"}


def model_class(name: str, folders: Sequence[str] = MODEL_FOLDERS, *, recbole_first: bool = False) -> type:
    """Return the model class called ``name``: a plugin's, else ours, else RecBole's; ConfigError if there is none.

    ``folders`` are RecBole's folders of models; ``recbole_first`` is for RecBole's functions, where a name that both
    packages have (Pop) is RecBole's.
    """
    plugin = models.models().get(name)
    if plugin is not None:
        return plugin
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
    if later := later_model(name):
        raise ConfigError(later)
    hint = did_you_mean(name, [*stock, *ours], " Did you mean ", 4, 0.5)
    wrong = f"neither RecBole nor this package has a model {name!r}" if recbole_first else f"model {name!r} is unknown"
    raise ConfigError(
        f"{wrong}.{hint} Models of this package: {', '.join(ours)}; RecBole's general and sequential models also run."
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
    parts: dict[str, str] = field(default_factory=dict)  # name by key (encoder, geometry, loss_type)
    values: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)  # the user's keys
    defaults: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # of the defaults
    files: dict[str, str] = field(default_factory=dict)  # file of each key that comes from one
    options: dict[str, Option] = field(default_factory=dict)  # every declaration by key
    reasons: dict[str, str] = field(default_factory=dict)  # documented keys that the model does not read, and why
    foreign: list[str] = field(default_factory=list)  # keys of files that nothing reads
    remarks: list[str] = field(default_factory=list)  # warnings about keys that other keys make useless
    warnings: list[str] = field(default_factory=list)  # all warnings
    mistakes: Mistakes = field(default_factory=Mistakes)
    of_recbole: bool = False  # whether the data set is RecBole's
    own_keys: frozenset[str] = frozenset()  # keys in the source of a model of RecBole or of a third party
    own_meaning: frozenset[str] = frozenset()  # keys to which a third party's model gives its own meaning
    _ignored: dict[str, bool] = field(default_factory=dict)

    def ignores(self, key: str) -> bool:
        """Return whether a run of this model ignores the known key ``key``."""
        if key not in self._ignored:
            self._ignored[key] = self._ignores(key)
        return self._ignored[key]

    def _ignores(self, key: str) -> bool:
        if key in self.reasons or (key in REFUSED and key not in self.defaults):
            return True
        if key in self.defaults or key in RECBOLE_SILENT_KEYS or key in self.own_keys:
            return False
        if any(key in part_keys(part, name) for part, name in self.parts.items()):
            return False
        return known_at_once(key) or key in all_known_keys()

    def known_keys(self) -> frozenset[str]:
        """Return every key that may be set: RecBole's, this package's, and those of the model and its parts."""
        own = (part_keys(part, name) for part, name in self.parts.items())
        others = (models.keys_in_source(model) for model in models.models().values())
        return all_known_keys().union(self.defaults, self.own_keys, REFUSED, *own, *others)

    def unread(self) -> dict[str, str]:
        """Return the user's keys that a run of this model ignores, and why.

        A key that has its default value, as in the configuration of an earlier run, is left out.
        """
        ignored = (key for key in self.given if key not in REFUSED and self.ignores(key))
        unread = self.switched_off() | {key: self.reasons.get(key, OTHERS) for key in ignored}
        return {key: why for key, why in unread.items() if self.given[key] not in (None, self.defaults.get(key))}

    def switched_off(self) -> dict[str, str]:
        """Return the user's keys that have no effect because of the value of another key, and that value."""
        values = self.defaults | self.given
        return {
            key: f"{other} is {values.get(other)!r}"
            for keys, other, counts in SWITCHED
            if not counts(values.get(other))
            for key in keys
            if key in self.given
        }


OTHERS = "it belongs to other models or parts"


# keys whose value is a path, in which ~ is the home folder
PATHS = ("data_path", "output_dir", "init_from")
# names of metrics in other libraries
METRICS = {"hr": "Hit"}


def at_home(key: str, value: Any) -> Any:
    """Return the value of ``key``, with the home folder for ~ if it is a path."""
    return os.path.expanduser(value) if key in PATHS and isinstance(value, str) else value


def class_of(model: str | type) -> type:
    """Return the class of a model, which may be a name or a class."""
    return model if isinstance(model, type) else model_class(str(model))


@dataclass(frozen=True)
class Rules:
    """What differs between kinds of runs: this package's own, those in RecBole's functions, and stored ones."""

    find_model: Callable[[Any], type] = class_of
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
    """Return the configuration of a run of ``model`` on ``dataset``.

    Args:
        model: name or class; by default the key ``model``. The same for ``dataset``.
        files: the user's YAML files; later ones win.
        keys: values from the command line or from Python, which win over the files.
        stored: the configuration of an earlier run, over which files and keys win; its values stay as they are.
        places: file by key of ``keys``, for those that were read from one; nothing needs to read such a key.
        rules: what differs between kinds of runs.

    Raises:
        ConfigError: no model or no data set is named, or a file, a plugin or the model cannot be read. All other
            mistakes are in the result.
    """
    keys, stored, places = dict(keys or {}), dict(stored or {}), dict(places or {})
    broken, contents = Mistakes(), []
    for path in files:
        with broken.collected():
            # old names in the files are translated later: their meaning depends on the model
            contents.append(read_yaml(path, twice=[]))
    raw = merged(stored, *contents, keys)
    plugins = registry.load_plugins(raw["plugins"]) if raw.get("plugins") else None
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
    found = Resolution(cls, cls.__name__, name, of_recbole=name != str(dataset))
    resolver = _Resolver(found)
    resolver.read(files, keys, stored, places, plugins)
    resolver.set_defaults(rules.unread)
    resolver.check_keys(rules.optional)
    resolver.set_values()
    resolver.find_data(with_files=rules.with_files)
    return found


class _Resolver:
    """Fills in a :class:`Resolution`, step by step."""

    def __init__(self, found: Resolution) -> None:
        self.found, self.cls = found, found.model_class
        self.sequential = is_sequential(self.cls)
        self.third_party = models.is_third_party(self.cls)
        self.beside: set[str] = set()  # files with defaults that are beside a third party's model
        found.own_keys = models.keys_in_source(self.cls)
        # RecBole's attributes and the keys that it sets
        self.reads_itself = {
            *dir(ResolvedConfig),
            *old_keys.SET_BY_RECBOLE,
            "internal_config_dict",
            "final_config_dict",
        }
        # keys to which a third party's model gives its own meaning
        found.own_meaning = found.own_keys - settings.general_defaults().keys() if self.third_party else frozenset()

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.found.warnings.append(text)

    def read(
        self,
        files: Sequence[Path],
        keys: dict[str, Any],
        stored: dict[str, Any],
        places: dict[str, str],
        plugins: list[str] | None,
    ) -> None:
        """Read the user's keys from a stored configuration, files and ``keys``, with today's names."""
        found = self.found
        file_keys: dict[str, Any] = {}
        for path in files:
            with found.mistakes.collected():
                content = user_files.read(path, sequential=self.sequential)
                merge(file_keys, content)
                found.files |= dict.fromkeys(content, str(path))
        with found.mistakes.collected():
            old = only(old_keys.TRANSLATED, keys)
            new, lines = old_keys.translated(old, "the command line", sequential=self.sequential)
            keys, found.warnings = without(old, keys) | new, found.warnings + lines
        found.files = {**dict.fromkeys(stored, ""), **found.files, **places}
        found.files = {key: file for key, file in found.files.items() if key in places or key not in keys}
        given = found.given = merged(stored, file_keys, keys)
        if plugins:
            given["plugins"] = plugins
        for key in given.keys() & PATHS:
            given[key] = at_home(key, given[key])
        for key in settings.INTERVALS & given.keys():
            given[key] = settings.interval_text(given[key])
        if isinstance(metrics := given.get("metrics"), list | str):
            names = [metrics] if isinstance(metrics, str) else metrics
            given["metrics"] = [METRICS.get(str(name).lower(), name) for name in names]
        if isinstance(metric := given.get("valid_metric"), str):
            name, at, cut = metric.partition("@")
            given["valid_metric"] = METRICS.get(name.lower(), name) + at + cut
        if registry.parts_of(self.cls):
            try:
                given |= old_keys.renamed_loss(only(["loss_type"], given), found.model)
            except ConfigError as error:
                found.mistakes.add(str(error))
                del given["loss_type"]
        for key in PARTS.keys() & given.keys():
            with found.mistakes.collected():
                given[key] = part_name(key, given[key])

    def set_defaults(self, unread: Mapping[str, str]) -> None:
        """Set the defaults, their sources, the declarations, and the keys that the model does not read."""
        found = self.found
        layers = self._layers()
        found.defaults = merged(*(layer for _, layer in layers))
        found.sources = {key: name for name, layer in layers for key in layer}
        found.options = dict(settings.SETTINGS if issubclass(self.cls, registry.Model) else settings.declared())
        if issubclass(self.cls, registry.Model):
            found.options |= self.cls.own_options
        for key, name in found.parts.items():
            found.options |= part_options(key, name)
        reasons = without_effect(self.cls)
        if self.third_party:
            reasons = {key: why for key, why in reasons.items() if key not in found.own_keys}
        if found.parts and not is_curved(found.defaults):
            reasons |= dict.fromkeys(CURVATURE, "neither the geometry nor the encoder is curved")
        found.reasons = {key: why for key, why in {**reasons, **unread}.items() if why}

    def _layers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the defaults with their sources; later ones win."""
        cls, name, given = self.cls, self.found.model, self.found.given
        layers: list[tuple[str, Mapping[str, Any]]] = [("RecBole", default_values(name, cls, self.found.dataset))]
        layers.append(("settings", settings.shared_defaults()))
        own_yaml = f"model/{name}.yaml"
        model_file, recbole_file = properties_folder() / own_yaml, RECBOLE_PROPERTIES / own_yaml
        model_yaml = packaged_yaml(model_file) if model_file.is_file() else {}
        if issubclass(cls, registry.Model) and cls.own_options:
            layers.append((f"model {name}", registry.defaults(cls)))
        if registry.parts_of(cls):
            parts, applies = parts_of_model(registry.parts_of(cls), model_yaml, self._known_parts(given))
            self.found.parts = parts
            layers += [(f"{PARTS[key][1]} {part}", part_defaults(key, part)) for key, part in parts.items()]
            layers += [(own_yaml, applies), (f"{name}.parts", parts)]
        elif issubclass(cls, registry.Model):
            layers.append((own_yaml, model_yaml))
        elif self.third_party:
            layers += self._layers_of_files(models.defaults_files(cls), given)
        elif recbole_file.is_file():
            layers += self._layers_of_files([recbole_file], {})
        data_sets = packaged_yaml(properties_folder() / "datasets.yaml")
        layers.append(("datasets.yaml", data_sets.get(self.found.dataset) or {}))
        return layers

    def _known_parts(self, given: dict[str, Any]) -> dict[str, Any]:
        """Remove the parts that do not exist from ``given``; they are mistakes. Return the others."""
        unknown = set()
        for key, (kind, _) in PARTS.items():
            if given.get(key):
                count = len(self.found.mistakes.errors)
                with self.found.mistakes.collected():
                    registry.resolve(kind, given[key])
                if len(self.found.mistakes.errors) > count:
                    unknown.add(key)
        for key in unknown:
            del given[key]
        return only(PARTS, given)

    def _layers_of_files(self, files: Sequence[Path], given: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the defaults in ``files`` of a model of RecBole or of a third party; ``given`` are the user's keys."""
        layers: list[tuple[str, Mapping[str, Any]]] = []
        for file in files:
            if RECBOLE_PROPERTIES in file.parents:
                layers.append((f"RecBole's model/{file.name}", packaged_yaml(file)))
                continue
            content = user_files.read(file, sequential=self.sequential)
            self.found.files = {**dict.fromkeys(content, str(file)), **self.found.files}
            self.beside |= {file.name}
            own = {key: value for key, value in content.items() if key not in old_keys.SET_BY_RECBOLE}
            layers.append((file.name, own))
        stated = merged(*(layer for _, layer in layers))
        is_ce = {**stated, **given}.get("loss_type") == "CE"
        if is_ce and self.sequential and "train_neg_sample_args" not in stated:
            # RecBole refuses its default of one negative for a cross-entropy model
            layers.append(("its loss CE", {"train_neg_sample_args": None}))
        return layers

    def check_keys(self, optional: Collection[str]) -> None:
        """Find refused and unknown keys, and drop the keys of files that nothing reads.

        For a third party's model these keys stay, as its source may compose the names of keys.
        """
        found, given = self.found, self.found.given
        for text in refusals(only(REFUSED, given)):
            found.mistakes.add(text)
        in_beside = {key for key, source in found.sources.items() if source in self.beside}
        named = models.words_in_source(self.cls) if self.third_party else frozenset()

        def is_known(key: str) -> bool:
            # an old name is still there only if its translation failed
            if key in {*named, *found.own_keys, *REFUSED, *old_keys.TRANSLATED} or known_at_once(key):
                return True
            return key in found.defaults and key not in in_beside

        for key in old_keys.SET_BY_RECBOLE & found.files.keys():
            found.foreign.append(key)
        misspelled: Collection[str] = ()
        suspects = [key for key in {**found.files, **given} if not is_known(key) and key not in found.foreign]
        if suspects:
            known = found.known_keys()
            of_files = known - (in_beside - all_known_keys() - found.own_keys) | named
            unknown = [key for key in suspects if key not in (of_files if key in found.files else known)]
            misspelled = self._sort_unknown(unknown, known, optional)
        found.foreign.sort(key=list(found.files).index)
        for file in filter(None, dict.fromkeys(found.files[key] for key in found.foreign)):
            names = ", ".join(key for key in found.foreign if found.files[key] == file and key not in misspelled)
            if not names:
                continue
            if given.get("strict"):
                found.mistakes.add(f"{file}: nothing reads {names}; remove it, or leave out --strict")
            else:
                user_files.warn_once(Path(file), f"nothing reads {names}")
        for key in found.foreign:
            if key in old_keys.SET_BY_RECBOLE or not self.third_party:
                given.pop(key, None)
        for key, why in found.unread().items():
            self.warn(f"{found.model} does not read {key}: the key has no effect in this run; {why}")

    def _sort_unknown(self, unknown: Sequence[str], known: Collection[str], optional: Collection[str]) -> set[str]:
        """Sort ``unknown`` keys into foreign ones, misspelled ones, which are returned, and those that are left out."""
        found, misspelled, slips = self.found, set[str](), dict[str, list[str]]()
        foreign = [key for key in unknown if key in found.files]
        found.foreign += foreign
        read = [key for key in known if not found.ignores(key)] if foreign else []
        for key in unknown:
            if key in foreign:
                # a file beside a model has its own keys, and a stored configuration was checked
                is_own = not found.files[key] or Path(found.files[key]).name in self.beside
                if near := "" if is_own else near_key(key, read):
                    misspelled.add(key)
                    slips.setdefault(found.files[key], []).append(f"unknown key {key!r}, did you mean {near}?")
            elif key in optional:
                self.warn(f"--{key} on the command line is not a key of this configuration and is ignored")
                found.given.pop(key, None)
            else:
                found.mistakes.add(f"unknown key {key!r}{near_hint(key, {*known, *found.foreign})}")
                found.given.pop(key, None)
        for file, texts in slips.items():
            found.mistakes.add(f"{file}: {' '.join(texts)}")
        return misspelled

    def set_values(self) -> None:
        """Set and check the values."""
        found, given = self.found, self.found.given
        off = found.switched_off()
        read = {key: given[key] for key in given if key not in off and not found.ignores(key)}
        values = found.values = copy.deepcopy(found.defaults)
        merge(values, copy.deepcopy(read))
        with found.mistakes.collected():
            changed, found.remarks = translate(only(TO_TRANSLATE, read), only(TO_TRANSLATE, values), self.cls)
            values |= changed
        found.warnings += found.remarks
        unset = (
            found.own_keys - values.keys() - settings.SETTINGS.keys() - RECBOLE_SILENT_KEYS if self.third_party else []
        )
        if unset := sorted(key for key in unset if key not in self.reads_itself):
            self.warn(f"{found.model} reads {', '.join(unset)} in its source, but no file sets it: it is None")
        check_all(given, values, found.defaults, found.options, self.cls, found.own_meaning, found.mistakes)
        if not hasattr(self.cls, "input_type") and "loss_type" not in values:
            found.mistakes.add(
                f"{found.model} needs loss_type, CE or BPR, since its class has no input_type: set it, or put the "
                f"model's own {found.model}.yaml beside its file"
            )
        if values.get("loss_type") == "BPR" and "train_neg_sample_args" not in {*given, *found.files}:
            values["train_neg_sample_args"] = {"distribution": "uniform", "sample_num": 1}
        if values.get("load_col") is None:
            values["load_col"] = {"inter": [values[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")]}

    def find_data(self, *, with_files: bool) -> None:
        """Set ``data_path`` to the folder of the data set, and find its files unless they may be missing."""
        found, values = self.found, self.found.values
        if not isinstance(values["data_path"], str) or not isinstance(values["load_col"], dict):
            return  # a mistake
        root = os.path.join(values["data_path"], RECBOLE_DATA if found.of_recbole else "").rstrip("/")
        values["data_path"] = os.path.join(root, found.dataset)
        if found.dataset == "ml-100k" and not (Path(root) / "ml-100k" / "ml-100k.inter").is_file():
            values["data_path"] = str(recbole_folder() / "dataset_example" / "ml-100k")
            # a file may state RecBole's default, a folder that need not exist
            if "data_path" in found.given and Path(root) != Path(found.defaults["data_path"]):
                if not Path(root).is_dir():
                    found.mistakes.add(
                        f"data_path={root!r} does not exist; leave it out to use the ml-100k in the recbole package"
                    )
                self.warn(f"data_path={root!r} has no ml-100k: using the copy in the recbole package")
        if with_files:
            with found.mistakes.collected():
                check_dataset(values, root, found.dataset, of_recbole=found.of_recbole)
