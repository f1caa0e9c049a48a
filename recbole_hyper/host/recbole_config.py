"""RecBole's own Config, made of values that this package resolved."""

import copy
from pathlib import Path
from typing import Any

from recbole.config import Config
from recbole.evaluator.register import metric_types
from recbole.utils import ModelType

from recbole_hyper.devices import CPU, usable_accelerator
from recbole_hyper.errors import ConfigError
from recbole_hyper.yaml_files import packaged_yaml


def is_sequential(model: Any) -> bool:
    """Return whether the class ``model`` predicts the next item of a sequence."""
    return bool(model.type == ModelType.SEQUENTIAL)


class ResolvedConfig(Config):
    """A Config of values that are resolved; its constructor reads no file and no command line."""

    model_class: Any
    parameters: dict[str, list[str]]
    internal_config_dict: dict[str, Any]  # the defaults
    final_config_dict: dict[str, Any]  # the result

    def __new__(cls, *_: Any, **__: Any) -> "ResolvedConfig":
        """Return a new object; RecBole's Config may choose another class by its arguments (hosted.patches.names)."""
        return object.__new__(cls)

    def __init__(self, name: str, model: type, dataset: str) -> None:
        self.model, self.model_class, self.dataset = name, model, dataset
        self._init_parameters_category()
        # RecBole appends to these module-level lists at every construction
        self.parameters = copy.deepcopy(self.parameters)
        self.yaml_loader = self._build_yaml_loader()
        self._load_internal_config_dict(name, model, dataset)

    def _update_internal_config_dict(self, file: str) -> dict[str, Any]:
        """Add the values in a file of RecBole."""
        content = copy.deepcopy(dict(packaged_yaml(Path(file).resolve())))
        self.internal_config_dict.update(content)
        return content

    def complete(self, values: dict[str, Any]) -> None:
        """Take ``values`` as the result, and add what RecBole's models, trainers and data sets read besides.

        ConfigError if RecBole cannot use a value.
        """
        self.final_config_dict, data_path = values, values["data_path"]
        metrics = [values["metrics"]] if isinstance(values["metrics"], str) else values["metrics"]
        # RecBole refuses metrics of this package, and those that a plugin registered without a type
        values["metrics"] = [name for name in metrics if name.lower() in metric_types] or ["NDCG"]
        try:
            self._set_default_parameters()
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            # RecBole does not check every value
            raise ConfigError(f"RecBole cannot use this configuration: {type(error).__name__}: {error}") from error
        values |= {"metrics": metrics, "data_path": data_path}
        if not values.get("use_gpu", True):
            values["gpu_id"] = ""  # RecBole ignores use_gpu; an empty gpu_id selects the CPU
        self._init_device()
        # RecBole supports no accelerator but CUDA
        if values["gpu_id"] and values["device"].type == "cpu":
            values["device"] = usable_accelerator() or CPU
        self._set_train_neg_sample_args()
        for phase in ("valid", "test"):
            # the protocol draws candidates once; RecBole's samplers draw none
            values[f"{phase}_neg_sample_args"] = {"distribution": "uniform", "sample_num": "none"}


def default_values(name: str, model: type, dataset: str) -> dict[str, Any]:
    """Return the defaults in RecBole's files for the class ``model`` called ``name`` on a data set."""
    return ResolvedConfig(name, model, dataset).internal_config_dict
