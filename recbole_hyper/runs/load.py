"""A finished run read back: its configuration, data and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.files import read_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.runs.folder import REFIT, RESULT, read_begun
from recbole_hyper.training.build import build, read_data
from recbole_hyper.training.checkpoint import WEIGHTS, CheckpointError, load_weights
from recbole_hyper.types import Split


def load(output_dir: str | Path) -> tuple[HyperRecommender, Config, SequenceDataset]:
    """Load a finished run: (model with its tested weights in evaluation mode, configuration, dataset).

    Raises:
        ConfigError: no finished run there, or a model of RecBole that keeps more than tensors.
        CheckpointError: the weights do not fit the data that are there now.
    """
    config = Config(config_dict=read_run(output_dir))
    data, split = read_finished(config)
    model, _ = load_model(config, data, split)
    return model, config, data


def read_run(output_dir: str | Path) -> dict[str, Any]:
    """Return the configuration that a run wrote into its folder, to be read and not to be continued.

    Raises:
        ConfigError: no run there, or a config.yaml that is none of a run.
    """
    folder = Path(output_dir)
    return {**read_begun(folder), "output_dir": str(folder), "resume": False}


def read_finished(config: Config) -> tuple[SequenceDataset, Split]:
    """Read data and split of a finished run; ConfigError for a model of RecBole, which keeps more than tensors."""
    if not issubclass(config.model_class, HyperRecommender):
        raise ConfigError(f"{config['model']}: only models of this package can be loaded again")
    return read_data(config)


def load_model(config: Config, data: SequenceDataset, split: Split) -> tuple[HyperRecommender, bool]:
    """Load the tested weights of the run in ``output_dir``.

    Returns:
        the model in evaluation mode, and whether it was refit on train + validation.

    Raises:
        CheckpointError: weights that are missing, damaged, of other data, or that a resume has replaced since the
            result was written.
    """
    folder = Path(config["output_dir"])
    refit = folder / REFIT / WEIGHTS
    refitted = split.refit_lengths is not None and refit.is_file()
    model, _, _ = build(config, data, split, split.refit_lengths if refitted else split.train_lengths)
    path = refit if refitted else folder / WEIGHTS
    epoch = load_weights(path, model, split.store.fingerprint()).get("epoch")
    result = read_json(folder / RESULT) if (folder / RESULT).is_file() else {}
    tested = result.get("refit_epochs", 0) - 1 if refitted else result.get("best_epoch")
    if result and epoch != tested:
        raise CheckpointError(
            f"{path} is of epoch {epoch}, but {folder / RESULT} tested epoch {tested}: a resume was stopped here; end "
            f"it with 'recbole-hyper run --resume=True --output_dir={folder}'"
        )
    return model.eval(), refitted
