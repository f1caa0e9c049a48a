"""RecBole's trainer for models of this package: RecBole's interface and checkpoint, this package's loop and ranking."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import recbole.trainer.trainer as host
import torch

from recbole_hyper.errors import ConfigError
from recbole_hyper.host.loggers import lent_loggers
from recbole_hyper.hosted.data import CaseData, TrainingData
from recbole_hyper.hosted.pickles import readable
from recbole_hyper.hyperbolic.riemannian import restore_training_state
from recbole_hyper.training.checkpoint import checkpoint_errors
from recbole_hyper.training.loop import Loop


@functools.cache
def hosted_trainer(base: type) -> type:
    """Return a subclass of ``base``, a RecBole trainer, with the behaviour of :class:`HostedTrainer`."""
    return type(f"Hosted{base.__name__}", (HostedTrainer, base), {})


class HostedTrainer:
    """Mixin for RecBole trainers: trains and ranks as ``recbole_hyper.run`` does, and writes RecBole's checkpoint.

    ``saved_model_file`` has RecBole's content: configuration, epoch, model and optimizer of the best epoch. A resumed
    training draws other random numbers; use ``recbole_hyper.run`` to resume exactly.
    """

    config: Any
    model: Any
    device: torch.device
    saved_model_file: str
    start_epoch: int
    cur_step: int
    best_valid_score: float

    def __init__(self, config: Any, model: Any) -> None:
        self.loop = HostedLoop(config, model, self)
        with lent_loggers(self.loop.tensorboard, self.loop.wandblogger):
            super().__init__(config, model)  # type: ignore[call-arg]

    def _build_optimizer(self, **kwargs: Any) -> torch.optim.Optimizer:
        return self.loop.optimizer

    @property
    def best_epoch(self) -> int:
        """The epoch with the best validation score, counted from 0; -1 before the first validation."""
        return self.loop.best_epoch

    def fit(
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Callable[[int, float], None] | None = None,
    ) -> tuple[float, Any]:
        """Train from ``start_epoch`` on; return the best validation score and result, as RecBole does."""
        batches = train_data.batches(self.model) if isinstance(train_data, TrainingData) else train_data
        self.loop.begin(self.start_epoch, self.cur_step, self.best_valid_score, saved=saved)
        self.loop.on_validation = callback_fn
        self.loop.fit(batches, valid_data or None, show_progress)
        self.cur_step, self.best_valid_score = self.loop.cur_step, self.loop.best_valid_score
        self.best_valid_result = self.loop.best_valid_result
        return self.best_valid_score, self.best_valid_result

    def evaluate(
        self, eval_data: Any, load_best_model: bool = True, model_file: Any = None, show_progress: bool = False
    ) -> Any:
        """Return the metrics of ``eval_data`` by RecBole's names, None if it has no cases.

        Loads the weights of ``model_file`` or ``saved_model_file`` first, unless ``load_best_model`` is False.
        """
        if not eval_data:
            return None
        if load_best_model:
            self._load(model_file or self.saved_model_file)
        if isinstance(eval_data, CaseData):
            return Loop.measure(self.loop, eval_data.evaluation, show_progress)
        return super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)  # type: ignore[misc]

    def _load(self, file: str) -> dict[str, Any]:
        content = torch.load(readable(file), map_location=self.device, weights_only=True)
        with checkpoint_errors(Path(file)):
            self.model.load_state_dict(content["state_dict"])
            self.model.load_other_parameter(content.get("other_parameter"))
        self.logger.info(f"Loading model structure and parameters from {file}")  # type: ignore[attr-defined]
        return content

    def resume_checkpoint(self, resume_file: Any) -> None:
        """Resume after the epoch of a checkpoint that such a trainer wrote.

        CheckpointError if the file does not fit the model, ConfigError with ``ema_decay``, torch's errors for an unsafe
        file.
        """
        if self.loop.average is not None:
            raise ConfigError(
                "ema_decay: training cannot resume, because RecBole's checkpoint has only the averaged weights; "
                "recbole_hyper.run also saves the raw weights and resumes exactly"
            )
        file = self.saved_model_file = str(resume_file)
        content = self._load(file)
        with checkpoint_errors(Path(file)):
            restore_training_state(self.model, self.loop.optimizer, {**content, "model": content["state_dict"]})
            self.start_epoch = content["epoch"] + 1
            self.cur_step, self.best_valid_score = content["cur_step"], content["best_valid_score"]
        self.loop.best_epoch = content["epoch"]

    def save_checkpoint(self, epoch: int) -> None:
        """Write RecBole's checkpoint with the current weights."""
        self.cur_step, self.best_valid_score = self.loop.cur_step, self.loop.best_valid_score
        host.Trainer._save_checkpoint(self, epoch)


class HostedLoop(Loop):
    """A loop whose only file is RecBole's checkpoint of the best epoch."""

    def __init__(self, config: Any, model: Any, trainer: HostedTrainer) -> None:
        super().__init__(config, model, Path(config["checkpoint_dir"]))
        self._seconds_between_saves = math.inf
        self.trainer = trainer
        self.saved = True

    def begin(self, epoch: int, cur_step: int, best_valid_score: float, *, saved: bool) -> None:
        """Start with ``epoch``, after the epochs of RecBole's checkpoint."""
        self.saved, self.cur_step, self.best_valid_score = saved, cur_step, best_valid_score
        self.history = self.history[:epoch] or [{"epoch": earlier} for earlier in range(epoch)]

    def measure(self, evaluation: Any, show_progress: bool = False) -> dict[str, float]:
        """Return the metrics of an evaluation, or of a loader of RecBole."""
        return self.trainer.evaluate(evaluation, load_best_model=False, show_progress=show_progress)

    def _take_best(self, epoch: int) -> None:
        self.best_epoch = epoch
        if self.saved:
            with self._averaged():
                self.trainer.save_checkpoint(epoch)

    def _save_best(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Do nothing: RecBole's checkpoint is the only file."""

    def _put_aside_best(self, state: dict[str, Any]) -> None:
        """Do nothing, as above."""

    def _write_state(self) -> None:
        """Do nothing, as above."""

    def _write_history(self) -> None:
        """Do nothing: the log has losses and metrics."""

    def has_state(self) -> bool:
        return Path(self.trainer.saved_model_file).is_file()
