"""Between reading the data and building the model: checks against the data, and values for ``auto``."""

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.parts import is_curved
from recbole_hyper.data.source import Source
from recbole_hyper.files import digest, read_json, write_json
from recbole_hyper.models.base import HyperRecommender, auto_keys, build_part, curvature_key
from recbole_hyper.models.data_defaults import SOFTMAX_ITEMS, VALID_CASES, TrainingStatistics, choose_values
from recbole_hyper.processes import cache_folder
from recbole_hyper.protocols.base import repeated_targets
from recbole_hyper.registry import reads_times
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.training.cost import softmax_items
from recbole_hyper.training.progress import in_time
from recbole_hyper.types import Split

logger = logging.getLogger("recbole_hyper")

# a validation by cost has at least so many cases
_FEWEST_CASES = 10_000
# where the numbers came from: the configuration of a resumed run has only the numbers
CHOSEN = "chosen.json"


def require_times(config: Config) -> None:
    """Raise ConfigError for an encoder that reads times on data without any."""
    if reads_times(config) and not Source.of(config).timed:
        raise ConfigError(
            f"encoder={config['encoder']} reads times, but {Source.of(config).path('inter')} is read without any: add "
            f"a column {config['TIME_FIELD']}:float, name it in load_col, or choose another encoder"
        )


def resolve_auto(config: Config, data: SequenceDataset, split: Split, output_dir: Path | None = None) -> dict[str, Any]:
    """Replace every ``auto`` in ``config`` by a number; return entries of result.json on them and on item features.

    The run in ``output_dir`` keeps the entries when it is resumed, but for numbers that are chosen again.
    """
    file = output_dir / CHOSEN if output_dir else None
    before = read_json(file) if file and config["resume"] and file.is_file() else {}
    chosen = resolve_data_defaults(config, split)
    entries = {**estimate_auto_curvature(config, data, split), **before, **chosen}
    if file:
        write_json(file, entries)
    if (features := data.item_features) is not None:
        columns = {column.name: {"type": column.kind, "size": column.size} for column in features.columns}
        entries["item_features"] = {"columns": columns, "fingerprint": features.fingerprint()}
    return entries


def resolve_data_defaults(config: Config, split: Split) -> dict[str, Any]:
    """Replace each ``auto`` in ``config`` by what its rule computes from the training data; return entries."""
    if not (keys := auto_keys(config)):
        return {}
    statistics = TrainingStatistics.of(split)
    choice = choose_values(keys, statistics, None if "train_batch_size" in keys else int(config["train_batch_size"]))
    for key, value in choice.items():
        config[key] = value
    if SOFTMAX_ITEMS in choice:
        config[SOFTMAX_ITEMS] = choice[SOFTMAX_ITEMS] = _softmax_items(config, split)
    if VALID_CASES in choice:
        config[VALID_CASES] = choice[VALID_CASES] = _valid_cases(config, split)
    logger.info(
        "chosen for %d sequences with %.1f interactions per item (auto): %s",
        statistics.n_sequences,
        statistics.interactions_per_item,
        ", ".join(f"{key}={value}" for key, value in choice.items()),
    )
    return {"data_defaults": {"chosen": choice, "statistics": dataclasses.asdict(statistics)}}


def _softmax_items(config: Config, split: Split) -> int | None:
    """Return the number of items that the softmax of a step is computed over, None for all."""
    targets = int(split.train_lengths.sum())
    chosen, seconds = softmax_items(
        float(config["epochs"]) * targets * split.store.n_items,
        split.store.n_items,
        int(config["hidden_size"]),
        build_part("geometry", config),
        config["device"],
    )
    if chosen:
        logger.info(
            "the softmax over all %d items would take about %s in this training: it is computed over a sample of %d in "
            "each step (--softmax_items=~ takes all)", split.store.n_items - 1, in_time(seconds), chosen,
        )  # fmt: skip
    return chosen


def _valid_cases(config: Config, split: Split) -> int | None:
    """Return the number of validation cases that a tenth of the training allows, None if that is all of them.

    By the number of logits, of which training computes three products and a ranking one.
    """
    n_items, step = split.store.n_items, int(config["eval_step"])
    if not step or not len(split.valid):
        return None
    epochs = int(config["epochs"])
    trained = 3 * epochs * float(split.train_lengths.sum()) * (config[SOFTMAX_ITEMS] or n_items)
    allowed = max(_FEWEST_CASES, int(0.1 * trained / (n_items * math.ceil(epochs / step))))
    return None if len(split.valid) <= allowed else allowed


def estimate_auto_curvature(config: Config, data: SequenceDataset, split: Split) -> dict[str, Any]:
    """Replace ``auto`` by the estimate from the training data, as the curvature or as the start of a learned one.

    Returns the entries of result.json about it.
    """
    if not issubclass(config.model_class, HyperRecommender) or not is_curved(config):
        return {}
    key, learned = curvature_key(config), config["curvature"] == "learn"
    if config[key] != "auto":
        return {"curvature_origin": "learned" if learned else "given"}
    from recbole_hyper.curvature.estimate import estimate_curvature

    matrix = split.store.matrix(split.train_lengths)[:, 1:]
    fingerprint = digest([split.store.fingerprint(), split.train_lengths.tolist()], 32)
    cache = cache_folder() / "curvature" / f"{data.dataset_name}-{fingerprint[:16]}.json"
    estimate = estimate_curvature(matrix, cache_path=cache, fingerprint=fingerprint)
    config[key] = float(estimate.curvature)
    logger.info(
        "curvature %.4g estimated from the training data (%.4g to %.4g)",
        *(estimate.curvature, estimate.lower, estimate.upper),
    )
    if learned:
        return {"curvature_origin": "learned"}
    return {
        "curvature_origin": "estimated from the training data",
        "curvature_interval": [float(estimate.lower), float(estimate.upper)],
    }


def log_split(split: Split) -> None:
    """Add the numbers of cases to the counts of ``split``, and log them."""
    for name, cases in (("validation", split.valid), ("test", split.test)):
        split.counts[f"{name} cases"] = len(cases)
        if len(cases):
            split.counts[f"{name} targets that repeat an item of their history"] = int(repeated_targets(cases).sum())
    split.counts["training interactions"] = int(split.train_lengths.sum())
    for name, value in split.counts.items():
        if value != 0:
            logger.info("%s: %s", name, value)
