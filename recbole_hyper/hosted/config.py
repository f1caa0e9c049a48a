"""RecBole's own ``Config(...)`` for a model of this package."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from recbole.utils import get_model

from recbole_hyper import registry
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.config.resolve import Rules, resolve
from recbole_hyper.hosted.pickles import plain_config
from recbole_hyper.yaml_files import config_file, merged

logger = logging.getLogger("recbole_hyper")

# options of RecBole's scripts, which are not settings of a model
SCRIPT_OPTIONS = {
    *("config_files", "params_file", "output_file", "display_file", "tool", "model_list", "valid_metric_bigger"),
    *("nproc", "ip", "port", "world_size", "group_offset", "run_times"),
}
# keys that only recbole_hyper.run reads, and why
_FOLDER = "RecBole's functions write one file into checkpoint_dir; recbole_hyper.run writes a folder"
_REPORT = "only recbole_hyper.run writes it"
RUN_ONLY = {
    "checkpoint_dir": "",  # RecBole's functions read it
    **dict.fromkeys(("output_dir", "save_data", "checkpoint_step", "checkpoint_minutes"), _FOLDER),
    **dict.fromkeys(("save_cases", "confidence", "protocol_report"), _REPORT),
}
# keys that RecBole's functions cannot follow: the values that do nothing, and what to do instead
REFUSED = {
    "resume": ((None, False), "recbole_hyper.run resumes"),
    "refit": ((None, False), "recbole_hyper.run trains the final model on train + validation"),
    "init_from": ((None,), "recbole_hyper.run starts from the weights of an earlier run"),
}


class HostedConfig(Config):
    """This package's configuration behind RecBole's ``Config(...)``: the same keys, defaults and checks.

    As in RecBole, ``--key=value`` on the command line wins over the dictionary, which wins over the files. Unknown
    words there only give a warning, because a script may have its own options. ConfigError for a key that only
    ``recbole_hyper.run`` supports.
    """

    # the patches test this attribute
    hosted: ClassVar[bool] = True

    def __init__(
        self,
        model: str | type | None = None,
        dataset: str | None = None,
        config_file_list: Sequence[Any] | None = None,
        config_dict: Mapping[str, Any] | None = None,
    ) -> None:
        files, typed = [config_file(path) for path in config_file_list or ()], parse_keys(_command_line())
        keys = merged(parse_keys(config_dict or {}), typed)
        rules = Rules(_model_of_recbole, RUN_ONLY, optional=typed)
        self.adopt(resolve(model, dataset, files, keys, rules=rules))
        for key, (harmless, advice) in REFUSED.items():
            if self[key] not in harmless:
                raise ConfigError(f"{key}={self[key]!r} does not work with RecBole's own functions; {advice}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as plain values."""
        return plain_config(self)


def _model_of_recbole(model: str | type) -> type:
    """Return the class that RecBole's own functions use for ``model``."""
    if isinstance(model, str):
        return get_model(model)
    _require_own_name(model)
    return model


def _command_line() -> dict[str, str]:
    """Return the ``--key=value`` words of the process's command line by key."""
    words = [] if "ipykernel_launcher" in sys.argv[0] else sys.argv[1:]
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not equals:
            logger.warning("%r on the command line is not of the form --key=value and is ignored", word)
        elif key in values and values[key] != value:
            raise ConfigError(f"--{key} is given twice, as {values[key]!r} and as {value!r}")
        elif key not in SCRIPT_OPTIONS:
            values[key] = value
    return values


def _require_own_name(cls: type) -> None:
    """Raise ConfigError if RecBole's functions, which find models by name, would find a different class."""
    registry.name_of("models", cls)
    try:
        other = get_model(cls.__name__)
    except ValueError:
        registry.register("models")(cls)
        return
    if other is not cls:
        raise ConfigError(
            f"RecBole's own functions find a model by its name, and {cls.__name__!r} is {registry.path_of(other)} "
            f"there; train {registry.path_of(cls)} with recbole_hyper.run"
        )
