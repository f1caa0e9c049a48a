"""RecTools' SASRecModel with the softmax over all items, or with ``recipe: esasrec`` eSASRec: LiGR, 256 negatives."""

from __future__ import annotations

import logging
import math
import warnings

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from peer import Run, padded_left
from pytorch_lightning.callbacks import Callback
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import SASRecModel
from rectools.models.nn.transformers.ligr import LiGRLayers
from torch import Tensor


class Steps(Callback):
    """Counts the steps of Lightning's loop and starts the clock with the first."""

    def __init__(self, run: Run, esasrec: bool) -> None:
        self.run, self.esasrec = run, esasrec

    def __deepcopy__(self, _: dict) -> Steps:
        """Return itself, because RecTools copies its trainer, which would copy the split as well."""
        return self

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start the clock before the first batch of the first epoch."""
        if trainer.current_epoch == 0:
            begin(self.run, module, self.esasrec)

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: object) -> None:
        """Count the step, and stop when the time is up."""
        if not trainer.should_stop and not self.run.step():
            trainer.should_stop = True


def begin(run: Run, module: pl.LightningModule, esasrec: bool) -> None:
    """Start the clock of a model that Lightning is about to train."""
    network, prepared = module.torch_model, module.data_preparator
    # RecTools numbers the items itself, including padding
    own = prepared.item_id_map.get_external_sorted_by_internal()[prepared.n_item_extra_tokens :]
    ours = torch.tensor([int(item) for item in own])
    number = {token: at for at, token in enumerate(ours.tolist(), start=prepared.n_item_extra_tokens)}
    length = run.settings["max_length"]

    def scores(histories: list[list[int]]) -> Tensor:
        known = [[number[item] for item in items if item in number] for items in histories]
        training = network.training
        network.eval()
        vectors = network.item_model.get_all_embeddings()
        states = network.encode_sessions({"x": padded_left(known, length)}, vectors)[:, -1]
        found = torch.full((len(known), run.n_items), -torch.inf)
        found[:, ours] = (states @ vectors.T)[:, prepared.n_item_extra_tokens :]
        network.train(training)
        return found

    kept = len(ours)
    negatives = "; 256 negatives for each target" if esasrec else ""
    trained_on = sum(len(items) > 1 for items in run.train.values())
    run.begin(
        scores,
        packages=("rectools", "pytorch-lightning", "numpy", "pandas"),
        steps=math.ceil(trained_on / run.settings["batch"]),
        targets=run.last_targets(),
        notes=f"the newest L + 1 items of each user, which leaves {kept} items{negatives}",
    )


def main() -> None:
    """Fit RecTools' model until the time is up."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    run = Run()
    settings = run.settings
    pl.seed_everything(settings["seed"], verbose=False)
    esasrec = settings["recipe"] == "esasrec"
    rows = [(user, item, at) for user, items in run.train.items() for at, item in enumerate(items)]
    frame = pd.DataFrame(rows, columns=[Columns.User, Columns.Item, "position"])
    frame[Columns.Weight] = 1.0
    # positions as times, so that ties keep their order
    seconds = pd.to_timedelta(frame.pop("position").to_numpy(dtype=np.int64), unit="s")
    frame[Columns.Datetime] = pd.Timestamp("2000-01-01") + seconds

    def trainer() -> pl.Trainer:
        return pl.Trainer(
            max_epochs=10**9, enable_progress_bar=False, enable_model_summary=False, logger=False,
            enable_checkpointing=False, devices=1, accelerator="cpu", callbacks=[Steps(run, esasrec)],
        )  # fmt: skip

    options = {"loss": "softmax"}
    if esasrec:
        options = {
            "loss": "sampled_softmax",
            "n_negatives": 256,
            "transformer_layers_type": LiGRLayers,
            "transformer_layers_kwargs": {"ff_factors_multiplier": 4},
            "use_key_padding_mask": True,
        }
    model = SASRecModel(
        n_factors=settings["width"],
        n_blocks=settings["blocks"],
        n_heads=settings["heads"],
        dropout_rate=settings["dropout"],
        session_max_len=settings["max_length"],
        lr=settings["learning_rate"],
        batch_size=settings["batch"],
        get_trainer_func=trainer,
        recommend_torch_device="cpu",
        **options,
    )
    model.fit(Dataset.construct(frame))


if __name__ == "__main__":
    main()
