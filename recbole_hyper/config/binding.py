"""The configuration of a run as RecBole's ``Config``, which its models and functions read. See docs/options.md."""

import ast
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper import registry, settings
from recbole_hyper.config.recbole_keys import TRANSLATED
from recbole_hyper.config.resolve import Resolution, Rules, at_home, recbole_values, resolve
from recbole_hyper.devices import why_no_accelerator
from recbole_hyper.errors import ConfigError
from recbole_hyper.host.metrics import is_smaller_better
from recbole_hyper.host.models import is_third_party
from recbole_hyper.host.recbole_config import ResolvedConfig
from recbole_hyper.values import consists_of
from recbole_hyper.yaml_files import config_file, parse_yaml

logger = logging.getLogger("recbole_hyper")

# texts that mean None
NOTHING = ("None", "~", "null")


class Exact(dict[str, Any]):
    """Keys whose texts are values already: they come from a file, or were parsed before."""

    def copy(self) -> "Exact":
        """Return keys that may be changed."""
        return Exact(self)


def parse_value(text: Any) -> Any:
    """Return the Python value that a text spells, or the text itself; runs no code."""
    if not isinstance(text, str):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in NOTHING:
        return None
    with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = ast.literal_eval(text)
        return list(value) if isinstance(value, tuple) else value
    if text[:1] in "{[":
        with contextlib.suppress(ConfigError):
            return parse_yaml(text, text[:40])
    return text


def parse_keys(keys: Mapping[str, Any]) -> Exact:
    """Return ``keys`` with texts parsed, but for keys whose value is text: the interval "[5,10]" stays text."""
    if isinstance(keys, Exact):
        return keys
    return Exact(
        (key, at_home(key, value) if settings.is_text(key) and value not in NOTHING else parse_value(value))
        for key, value in keys.items()
    )


def is_switch(key: str) -> bool:
    """Return whether ``key`` is true or false, by its declaration or else by RecBole's defaults."""
    option = settings.SETTINGS.get(key) or settings.declared().get(key)
    if option is not None and option.kind is not Any:
        return consists_of(option.kind, bool, type(None))
    values = [value for value in recbole_values().get(key, ()) if value is not None]
    return bool(values) and all(isinstance(value, bool) for value in values)


class Config(ResolvedConfig):
    """Configuration of one run.

    Args:
        model: name or class of a model of this package or of RecBole.
        dataset: name of the dataset folder below ``data_path``.
        config_file_list: YAML files, or names of protocols such as "global_timepoint"; later ones win.
        config_dict: keys that win over the files; the dictionary is not changed.
        keys_of_files: by key of ``config_dict`` that comes from a file: the file. Nothing needs to read such a key.
        stored: the configuration of an earlier run, over which files and keys win. Its values stay as they are.
        with_files: False if the data set may be missing.

    Raises:
        ConfigError: a key, model or part is unknown, a value is not allowed, or the data set is missing; the message
            lists all mistakes.
    """

    resolved: Resolution
    external_config_dict: dict[str, Any]  # the user's keys

    def __init__(
        self,
        model: str | type | None = None,
        dataset: str | None = None,
        config_file_list: Sequence[str | os.PathLike[str]] | None = None,
        config_dict: Mapping[str, Any] | None = None,
        keys_of_files: Mapping[str, str] | None = None,
        *,
        stored: Mapping[str, Any] | None = None,
        with_files: bool = True,
    ) -> None:
        files, keys = [config_file(path) for path in config_file_list or ()], parse_keys(config_dict or {})
        rules = Rules(with_files=with_files)
        self.adopt(resolve(model, dataset, files, keys, places=keys_of_files, stored=stored, rules=rules))

    def adopt(self, resolved: Resolution) -> None:
        """Take the values of ``resolved``, log its warnings, and build the model's parts if they need a check."""
        for text in resolved.warnings:
            logger.warning("%s", text)
        resolved.mistakes.raise_all()
        self.resolved = resolved
        super().__init__(resolved.model, resolved.model_class, resolved.dataset)
        self.internal_config_dict, self.external_config_dict = resolved.defaults, resolved.given
        self.complete(resolved.values)
        final = self.final_config_dict
        final["valid_metric_bigger"] = not is_smaller_better(final["valid_metric"])
        if self.external_config_dict.get("use_gpu") and final["device"].type == "cpu":
            logger.warning("use_gpu=True: this run uses the CPU; %s", why_no_accelerator(final["gpu_id"]))
        if issubclass(self.model_class, registry.Model):
            self.model_class.check_config(self)

    def ignores(self, key: str) -> bool:
        """Return whether a run of this model ignores the known key ``key``."""
        return self.resolved.ignores(key)

    def plain(self) -> dict[str, Any]:
        """Return the complete configuration as plain values, which can be used as a config file."""
        dropped = {"device", "eval_type", "MODEL_TYPE", "MODEL_INPUT_TYPE", "single_spec", "local_rank"}
        dropped |= {"valid_neg_sample_args", "test_neg_sample_args", "valid_metric_bigger", "resume"}
        if "use_gpu" not in self.external_config_dict:
            dropped.add("use_gpu")  # so that opening the run warns about a missing GPU only if one was requested
        # a resumed run compares its epochs, even if the model ignores them
        dropped |= (self.resolved.reasons.keys() - {"epochs"}) | set(TRANSLATED)
        content = {key: value for key, value in self.final_config_dict.items() if key not in dropped}
        if issubclass(self.model_class, registry.Model) or is_third_party(self.model_class):
            content["model"] = registry.lasting_name("models", self.model_class)
        content["data_path"] = str(Path(self.final_config_dict["data_path"]).parent)
        if (content.get("train_neg_sample_args") or {}).get("distribution") == "none":
            content["train_neg_sample_args"] = None
        return content
