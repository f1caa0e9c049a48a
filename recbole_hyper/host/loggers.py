"""Loggers besides the log file: TensorBoard's event files, and Weights and Biases.

Both get the rows of train.csv, under RecBole's names if it has one: ``Loss/Train`` and ``Vaild_score`` in event files,
``train/train_loss`` and ``valid/<metric>`` at Weights and Biases.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import recbole.trainer.trainer as host
from recbole.utils import WandbLogger

EVENTS = "tensorboard"


class EventFile:
    """TensorBoard's event file of a run, created with the first number; without a folder, nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._writer: Any = None

    def add_scalar(self, tag: str, value: float, epoch: int) -> None:
        """Write one number of an epoch."""
        if self.folder is not None and self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # purge what a killed run wrote about this epoch and later ones
            self._writer = SummaryWriter(str(self.folder), purge_step=epoch or None)
        if self._writer is not None:
            self._writer.add_scalar(tag, value, epoch)
            self._writer.flush()

    def add_hparams(self, settings: dict[str, Any], metrics: dict[str, float]) -> None:
        """Write nothing: RecBole's trainers call this at the end, and config.yaml has the settings."""

    def log_row(self, row: Mapping[str, Any], head: str) -> None:
        """Write the numbers of an epoch, a row with "epoch", as ``head/<name>``."""
        for name, value in row.items():
            if name != "epoch":
                self.add_scalar(f"{head}/{name}", value, int(row["epoch"]))

    def close(self) -> None:
        """Close the file; a later number opens another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbRun(WandbLogger):
    """RecBole's logger of Weights and Biases with the rows of train.csv; what RecBole's ``fit`` logs is dropped."""

    _started, _head = False, ""

    def __init__(self, config: Any, folder: Path) -> None:
        self._folder = folder
        super().__init__(config)

    def setup(self) -> None:
        """Start a run unless one is active; its files go to ``folder`` unless ``WANDB_DIR`` is set."""
        if not self.log_wandb:
            return
        import wandb

        self._wandb = wandb
        if wandb.run is None:
            folder = os.environ.get("WANDB_DIR") or str(self._folder)
            wandb.init(project=self.config["wandb_project"], config=self.config.plain(), dir=folder)
            self._started = True
        self._set_steps()

    def log_as(self, head: str) -> None:
        """Use ``head`` instead of "train" as the prefix of all names: a run with a refit trains twice."""
        self._head = head
        if self.log_wandb:
            self._wandb.define_metric(f"{head}/*", step_metric=f"{head}_step")

    def log_metrics(self, metrics: Mapping[str, Any], head: str = "train", commit: bool = True) -> None:
        """Drop what RecBole's ``fit`` logs."""

    def log_row(self, row: Mapping[str, Any], head: str) -> None:
        """Log the numbers of an epoch, a row with "epoch", as ``head/<name>`` over ``head_step``."""
        head = self._head or head
        super().log_metrics({**row, f"{head}_step": row["epoch"]}, head)

    def close(self, metrics: Mapping[str, float]) -> None:
        """Add the test metrics to the summary as ``eval/<metric>``, and finish the run if it was started here."""
        if self.log_wandb:
            self.log_eval_metrics(metrics, head="eval")
        if self._started:
            self._wandb.finish()
            self._started = False


@contextlib.contextmanager
def lent_loggers(events: EventFile, wandb: WandbRun) -> Iterator[None]:
    """Lend these loggers to RecBole trainers built inside the block, which would otherwise create their own."""
    before = host.get_tensorboard, host.WandbLogger
    host.get_tensorboard, host.WandbLogger = lambda logger: events, lambda config: wandb
    try:
        yield
    finally:
        host.get_tensorboard, host.WandbLogger = before
