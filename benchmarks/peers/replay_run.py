"""RePlay's SasRec with cross-entropy over all items, read from parquet and trained by Lightning as in its example.

Its ParquetModule reads the padding of a column from the key "padding", unlike its docstring says.
"""

from __future__ import annotations

import logging
import math
import warnings

import lightning
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from peer import Run, padded_left
from replay.data import FeatureHint, FeatureSource, FeatureType
from replay.data.nn import ParquetModule, TensorFeatureInfo, TensorFeatureSource, TensorSchema
from replay.nn.lightning import LightningModule
from replay.nn.lightning.optimizer import OptimizerFactory
from replay.nn.sequential import SasRec
from replay.nn.transform.template import make_default_sasrec_transforms
from torch import Tensor


class Steps(Callback):
    """Counts the steps of Lightning's loop and starts the clock with the first."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        """Start the clock before the first batch of the first epoch."""
        if trainer.current_epoch == 0:
            begin(self.run, module.model)

    def on_train_batch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule, *_: object) -> None:
        """Count the step, and stop when the time is up."""
        if not trainer.should_stop and not self.run.step():
            trainer.should_stop = True


def begin(run: Run, model: SasRec) -> None:
    """Start the clock of a model that Lightning is about to train."""
    padding = run.n_items - 1

    def scores(histories: list[list[int]]) -> Tensor:
        # RePlay numbers items from 0, and padding comes last
        items = padded_left(
            [[item - 1 for item in history] for history in histories], run.settings["max_length"], padding
        )
        model.eval()
        found = torch.full((len(histories), run.n_items), -torch.inf)
        found[:, 1:] = model(feature_tensors={"item_id": items}, padding_mask=items != padding)["logits"]
        model.train()
        return found

    run.begin(
        scores,
        packages=("replay-rec", "lightning", "numpy", "pandas", "polars"),
        steps=math.ceil(len(run.train) / run.settings["batch"]),
        targets=run.last_targets(),
        notes="the newest L + 1 items of each user",
    )


def main() -> None:
    """Fit RePlay's model until the time is up."""
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    run = Run()
    settings = run.settings
    lightning.seed_everything(settings["seed"], verbose=False)
    items, length = run.n_items - 1, settings["max_length"]
    lists = [[item - 1 for item in sequence[-length - 1 :]] for sequence in run.train.values()]
    pd.DataFrame({"item_id": lists}).to_parquet("train.parquet")
    schema = TensorSchema(
        [
            TensorFeatureInfo(
                "item_id",
                is_seq=True,
                feature_type=FeatureType.CATEGORICAL,
                embedding_dim=settings["width"],
                padding_value=items,
                cardinality=items,
                feature_hint=FeatureHint.ITEM_ID,
                feature_sources=[TensorFeatureSource(FeatureSource.INTERACTIONS, "item_id")],
            )
        ]
    )
    model = SasRec.from_params(
        schema=schema,
        embedding_dim=settings["width"],
        num_heads=settings["heads"],
        num_blocks=settings["blocks"],
        max_sequence_length=length,
        dropout=settings["dropout"],
    )
    batches = ParquetModule(
        batch_size=settings["batch"],
        metadata={"train": {"item_id": {"shape": length + 1, "padding": items}}},
        transforms={"train": make_default_sasrec_transforms(schema)["train"]},
        train_path="train.parquet",
    )
    trainer = lightning.Trainer(
        max_epochs=10**9, enable_progress_bar=False, enable_model_summary=False, logger=False,
        enable_checkpointing=False, devices=1, accelerator="cpu", limit_val_batches=0, callbacks=[Steps(run)],
    )  # fmt: skip
    optimizer = OptimizerFactory(learning_rate=settings["learning_rate"])
    trainer.fit(LightningModule(model, optimizer_factory=optimizer), datamodule=batches)


if __name__ == "__main__":
    main()
