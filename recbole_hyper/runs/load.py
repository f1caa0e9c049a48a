"""Load a finished run: its configuration, data and model."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recbole_hyper import registry
from recbole_hyper.devices import why_no_accelerator
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest
from recbole_hyper.host.dataset import StoreDataset
from recbole_hyper.host.recbole_config import ResolvedConfig
from recbole_hyper.models import MODULES
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.processes import package_version
from recbole_hyper.runs.build import build_model, read_data
from recbole_hyper.runs.folder import edited, read_config, read_result, require_finished
from recbole_hyper.runs.plugin_files import trusting, with_trusted_plugins
from recbole_hyper.runs.saved_data import SavedData, read_saved_data
from recbole_hyper.serving.model_scorer import ModelScorer
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.training.checkpoint import REFIT, WEIGHTS, CheckpointError, load_weights
from recbole_hyper.types import Split
from recbole_hyper.yaml_files import merge

logger = logging.getLogger("recbole_hyper")


def load(output_dir: str | Path, *, unfinished: bool = False, trust_plugins: bool = False) -> Recommender:
    """Load a finished run as a :class:`Recommender`; its folder is enough, on any machine with the package.

    A warning says what has changed since: the version of the package, or the configuration. A run that saved no data
    (``save_data=False``) reads the data set again.

    Args:
        output_dir: folder of the run.
        trust_plugins: run the Python files and import the modules that the folder names; by default, only code that has
            already run in this process (see :mod:`recbole_hyper.runs.plugin_files`).
        unfinished: load the best weights so far of a run without a result; ``differences`` then says so.

    ConfigError for no run, a newer format, untrusted code, or features that cannot be found; CheckpointError for
    weights or data that are missing, damaged, or do not belong together.
    """
    folder = Path(output_dir).expanduser()
    with trusting(everything=trust_plugins):
        content = read_run(folder)
    if not unfinished:
        require_finished(folder, ", or load it with unfinished=True")
    saved, result = read_saved_data(folder), read_result(folder)
    changed, written = edited(folder, result), None
    if saved is not None:
        # the mode only affects the evaluation, and its file of candidates may be missing
        merge(content, {"eval_args": {"mode": "full"}})
        written = _as_written(content, saved) if result and not changed else None
    config, data, split = _read(content, saved, cases=False) if written is None else written
    if saved is None:
        changed.append(f"{folder} saved no data (save_data): the data set was read again")
    elif saved.version != package_version():
        changed.append(f"trained by recbole_hyper {saved.version}, this is version {package_version()}")
    model, refitted = load_model(config, data, split)
    if not result:
        changed.append(f"{folder} has no result: these are the best weights so far")
    for text in changed:
        logger.warning("%s", text)
    lengths: Any = split.refit_lengths if refitted else split.train_lengths
    return Recommender(
        ModelScorer(model, config, data.store, data.item_features if isinstance(model, OwnModel) else None),
        config,
        data.store,
        counts=split.store.counts(lengths),
        allowed=split.catalogue,
        trained=data.store.users[lengths > 0],
        changed=changed,
    )


def read_run(output_dir: str | Path) -> dict[str, Any]:
    """Return the configuration of a run for reading it; ConfigError for no run, or one that names untrusted code."""
    folder = Path(output_dir)
    return {**with_trusted_plugins(folder, read_config(folder)), "output_dir": str(folder), "resume": False}


def read_finished(
    output_dir: str | Path, content: Mapping[str, Any], *, data_set: bool = False
) -> tuple[Any, StoreDataset, Split]:
    """Return configuration, data and split of a run for the configuration ``content`` (:func:`read_run`).

    The data comes from its folder; or from the data set on request, for features, or if the folder has none.
    """
    return _read(content, None if data_set else read_saved_data(Path(output_dir)), cases=True)


def _read(content: Mapping[str, Any], saved: SavedData | None, *, cases: bool) -> tuple[Any, StoreDataset, Split]:
    """Return configuration, data and split; the split of ``saved`` data has cases only on request.

    A RecBole model that may read features needs the data set: ConfigError if it is missing or has changed.
    """
    from recbole_hyper.config import Config
    from recbole_hyper.protocols.base import make_split
    from recbole_hyper.runs.dataset import SequenceDataset

    config = Config(stored=content, with_files=saved is None)
    if saved is None:
        return config, *read_data(config)
    if not saved.reads_features or config.model_class.origin == "own":
        data = SequenceDataset(config, saved.store, saved.item_features)
        return config, data, make_split(saved.store, config) if cases else saved.split
    who = f"{content['model']} was trained on features, which only the data set has"
    try:
        config = Config(stored=content)
    except ConfigError as error:
        raise ConfigError(f"{who}: {error}") from error
    data, split = read_data(config)
    if data.store.fingerprint() != saved.fingerprint:
        raise ConfigError(f"{who}, but the one in {config['data_path']} has changed: restore it")
    return config, data, split


def _as_written(content: Mapping[str, Any], saved: SavedData) -> tuple[Any, StoreDataset, Split] | None:
    """Return what :func:`_read` does from the values that the run resolved; None unless model and version are ours."""
    if content["model"] not in MODULES or saved.version != package_version():
        return None
    if content.get("plugins"):
        registry.load_plugins(content["plugins"])
    config = ResolvedConfig(content["model"], registry.resolve("models", content["model"]), content["dataset"])
    data_path = str(Path(content["data_path"]) / content["dataset"])
    config.complete({**config.internal_config_dict, **content, "data_path": data_path})
    if content.get("use_gpu") and config["device"].type == "cpu":
        logger.warning("use_gpu=True: this run uses the CPU; %s", why_no_accelerator(config["gpu_id"]))
    return config, StoreDataset(config, saved.store, saved.item_features), saved.split


def open_model(config: Any, data: StoreDataset, split: Split, *, refitted: bool) -> Any:
    """Return the model with the weights in ``output_dir``, of the refit or of the selection."""
    path = Path(config["output_dir"]) / (REFIT if refitted else "") / WEIGHTS
    model = build_model(config, data, split.store, split.refit_lengths if refitted else split.train_lengths)
    load_weights(path, model, split.store.fingerprint())
    return model


def load_model(config: Any, data: StoreDataset, split: Split) -> tuple[Any, bool]:
    """Return (tested model of the run in ``output_dir``, whether it was refit); CheckpointError for wrong weights."""
    folder, path = Path(config["output_dir"]), Path(config["output_dir"]) / REFIT / WEIGHTS
    result = read_result(folder)
    refitted = split.refit_lengths is not None and (path.is_file() or bool(result.get("refit_epochs")))
    path = path if refitted else folder / WEIGHTS
    model = open_model(config, data, split, refitted=refitted)
    if result.get("files", {}).get(path.relative_to(folder).as_posix(), digest := file_digest(path)) != digest:
        raise CheckpointError(
            f"{path} has other weights than those of result.json; if a resume was stopped here, finish it with "
            f"'recbole-hyper run --resume=True --output_dir={folder}', else restore them from a copy"
        )
    if isinstance(model, OwnModel):
        model.complete()
    return model.eval(), refitted
