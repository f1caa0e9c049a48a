"""A training step and a ranked batch of a model on the foreign device, with what they transfer."""

from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.config import Config
from recbole_hyper.devices import moved
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.build import build, read_data
from recbole_hyper.training.loop import Loop
from recbole_hyper.training.settings import RankSettings
from recbole_hyper.training.validation import Evaluation, rank
from tests.conftest import SMALL, write_inter
from tests.devices.foreign import Transfers, counted

NEGATIVES = {"n_negatives": 8}
BUCKETS = {"sce_bucket_size_y": 16, "sce_n_buckets": 6, "sce_bucket_size_x": 60}
# what a model needs on data of fifty items
OF_SMALL_DATA: dict[str, dict[str, Any]] = {
    **{model: NEGATIVES for model in ("HSTU", "FuXi", "SASRecBCEPlus", "SASRecSampledCE", "eSASRec", "gSASRec")},
    "SASRecSCE": BUCKETS,
    "HSASRecSCE": BUCKETS,
    "SASRecRECE": {"rece_rounds": 2},
    "PureSVDN": {"rank": 8},
    **{model: {"n_heads": 2} for model in ("DualRec", "DualSASRec")},
}


def small_keys(model: str, data: Path, **keys: Any) -> dict[str, Any]:
    """Return the keys of a run on the small data set "random", which :func:`write_random` writes."""
    return {
        **SMALL,
        **OF_SMALL_DATA.get(model, {}),
        "data_path": str(data),
        "eval_args": {"mode": "full"},
        "topk": [1, 5, 10],
        "valid_metric": "NDCG@10",
        "use_gpu": True,
        "stopping_step": 20,
        "train_batch_size": 32,
        "epochs": 1,
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        **keys,
    }


def write_random(folder: Path, users: int = 40, items: int = 300) -> Path:
    """Write the data set "random" of users with 2 to 24 distinct items each, and return its data_path."""
    generator = np.random.default_rng(5)
    rows = []
    for user in range(users):
        count = int(generator.integers(2, 25))
        rows += [(f"u{user}", f"i{item}", time) for time, item in enumerate(generator.permutation(items)[:count])]
    return write_inter(folder, "random", rows)


def step_and_ranking(model: str, data: Path, folder: Path, **keys: Any) -> tuple[Transfers | None, Transfers, int]:
    """Return what a training step and a ranked batch of ``model`` transfer, and how many cases the batch has.

    None for the step of a model that is fitted at once.
    """
    config = Config(model, "random", config_dict=small_keys(model, data, output_dir=str(folder), **keys))
    dataset, split = read_data(config)
    made, batches, training = build(config, dataset, split, split.train_lengths)
    step, loop = None, Loop(config, made, folder)
    if isinstance(made, HyperRecommender):
        scaler = torch_scaler(loop)
        made.train()
        first, *_ = list(batches)
        loop.train_step(moved(first, loop.device), scaler)  # makes the state of the optimizer
        with counted() as step:
            loop.train_step(moved(first, loop.device), scaler)
    else:
        loop.fit(batches)
    evaluation = Evaluation("test", split.test, split, training.item_counter, training.user_counter)
    with counted() as ranking:
        rank(make_scorer(made.eval(), config), RankSettings.of(config), evaluation)
    return step, ranking, len(evaluation)


def torch_scaler(loop: Loop) -> Any:
    """Return a gradient scaler as an epoch makes it."""
    import torch

    return torch.amp.GradScaler(loop.device.type, enabled=loop.scales)
