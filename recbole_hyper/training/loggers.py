"""What RecBole's trainers report to besides the log: TensorBoard's event files, and Weights and Biases.

Both get the epochs of train.csv. Names are RecBole's where it has one: ``Loss/Train`` and ``Vaild_score`` in event
files, ``train/train_loss`` and ``valid/<metric>`` at Weights and Biases.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import recbole.trainer.trainer as host
from recbole.utils import WandbLogger

EVENTS = "tensorboard"


class EventFile:
    """TensorBoard's event file of a run, made with the first number; of a folder that is None nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._writer: Any = None

    def add_scalar(self, tag: str, value: float, epoch: int) -> None:
        """Write the number ``tag`` of an epoch."""
        if self.folder is not None and self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # what a run that was killed wrote of this epoch and later ones is withdrawn
            self._writer = SummaryWriter(str(self.folder), purge_step=epoch or None)
        if self._writer is not None:
            self._writer.add_scalar(tag, value, epoch)
            self._writer.flush()

    def add_hparams(self, settings: dict[str, Any], metrics: dict[str, float]) -> None:
        """Write hyper-parameters and what they reached."""
        if self._writer is not None:
            self._writer.add_hparams(settings, metrics)
            self._writer.flush()

    def log_row(self, row: Mapping[str, Any], head: str) -> None:
        """Write the numbers of an epoch, a row with "epoch", as ``head/<name>``."""
        for name, value in row.items():
            if name != "epoch":
                self.add_scalar(f"{head}/{name}", value, int(row["epoch"]))

    def close(self) -> None:
        """Write what is left; a later number begins another file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def hyperparameters(config: Any) -> dict[str, Any]:
    """Return what TensorBoard lists of a configuration: the learner, its rate, the batch, and the keys of the model."""
    general = {"model", "dataset", "config_files", "device", *itertools.chain(*config.parameters.values())}
    names = {"learner", "learning_rate", "train_batch_size"} | (set(config.final_config_dict) - general)
    values = {name: config[name] for name in sorted(names) if config[name] is not None}
    return {name: one if isinstance(one, bool | str | float | int) else str(one) for name, one in values.items()}


class WandbRun(WandbLogger):
    """RecBole's logger of Weights and Biases, by epoch: what RecBole's ``fit`` logs is dropped."""

    _began, _head = False, ""

    def __init__(self, config: Any, folder: Path) -> None:
        self._folder = folder
        super().__init__(config)

    def setup(self) -> None:
        """Begin a run unless one is under way; its files go to ``folder`` unless ``WANDB_DIR`` is set."""
        if not self.log_wandb:
            return
        import wandb

        self._wandb = wandb
        if wandb.run is None:
            place = os.environ.get("WANDB_DIR") or str(self._folder)
            wandb.init(project=self.config["wandb_project"], config=self.config.plain(), dir=place)
            self._began = True
        self._set_steps()

    def log_as(self, head: str) -> None:
        """Put ``head`` before all names in the place of "train": one run may train twice."""
        self._head = head
        if self.log_wandb:
            self._wandb.define_metric(f"{head}/*", step_metric=f"{head}_step")

    def log_metrics(self, metrics: Mapping[str, Any], head: str = "train", commit: bool = True) -> None:
        """Drop what RecBole's ``fit`` says of an epoch."""

    def log_row(self, row: Mapping[str, Any], head: str) -> None:
        """Report the numbers of an epoch, a row with "epoch", as ``head/<name>`` over ``head_step``."""
        head = self._head or head
        super().log_metrics({**row, f"{head}_step": row["epoch"]}, head)

    def close(self, metrics: Mapping[str, float]) -> None:
        """Put the metrics of the test into the summary as ``eval/<metric>``, and end the run if it was begun here."""
        if self.log_wandb:
            self.log_eval_metrics(metrics, head="eval")
        if self._began:
            self._wandb.finish()
            self._began = False


@contextlib.contextmanager
def lent_loggers(events: EventFile, wandb: WandbRun) -> Iterator[None]:
    """Give these to RecBole's trainers that are built inside, which would open a writer below the working directory."""
    before = host.get_tensorboard, host.WandbLogger
    host.get_tensorboard, host.WandbLogger = lambda logger: events, lambda config: wandb
    try:
        yield
    finally:
        host.get_tensorboard, host.WandbLogger = before
