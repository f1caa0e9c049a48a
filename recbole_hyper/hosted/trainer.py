"""RecBole's trainer for models of this package: RecBole's interface and checkpoint, this package's loop and ranking."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recbole.trainer.trainer as host
import torch

from recbole_hyper.errors import ConfigError
from recbole_hyper.host.loggers import lent_loggers
from recbole_hyper.hosted.data import TrainingData
from recbole_hyper.training.checkpoint import checkpoint_errors
from recbole_hyper.training.loop import Loop


@functools.cache
def hosted_trainer(base: type) -> type:
    """Return a subclass of ``base``, a RecBole trainer, with the behaviour of :class:`HostedTrainer`."""
    return type(f"Hosted{base.__name__}", (HostedTrainer, base), {})


class HostedTrainer:
    """Mixin for RecBole trainers: trains and ranks as ``recbole_hyper.run`` does, and writes RecBole's checkpoint.

    ``saved_model_file`` has RecBole's content: configuration, epoch, model and optimizer of the best epoch.
    """

    config: Any
    model: Any
    device: torch.device
    saved_model_file: str
    cur_step: int
    best_valid_score: float

    def __init__(self, config: Any, model: Any) -> None:
        self.loop = HostedLoop(config, model, self)
        with lent_loggers(self.loop.tensorboard, self.loop.wandblogger):
            super().__init__(config, model)  # type: ignore[call-arg]

    def _build_optimizer(self, **kwargs: Any) -> torch.optim.Optimizer:
        return self.loop.optimizer

    def fit(
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Callable[[int, float], None] | None = None,
    ) -> tuple[float, Any]:
        """Train from ``start_epoch`` on; return the best validation score and result, as RecBole does.

        What a model fits to validation is fitted with the best weights if these are ``saved``, else with the last.
        """
        batches = train_data.batches(self.model) if isinstance(train_data, TrainingData) else train_data
        self.loop.saved, self.loop.on_validation = saved, callback_fn
        self.loop.fit(batches, valid_data or None, show_progress)
        if valid_data and self.model.fits_itself:
            if saved:
                self._load(self.saved_model_file)
            self.loop.choose(valid_data, show_progress)
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
            file = model_file or self.saved_model_file
            self._load(file)
            self.logger.info(f"Loading model structure and parameters from {file}")  # type: ignore[attr-defined]
        return self.loop.measure(eval_data, show_progress)

    def _load(self, file: Any) -> None:
        content = torch.load(file, map_location=self.device, weights_only=True)
        with checkpoint_errors(Path(file)):
            self.model.load_state_dict(content["state_dict"])
            self.model.load_other_parameter(content.get("other_parameter"))

    def resume_checkpoint(self, resume_file: Any) -> None:
        """Raise ConfigError: RecBole's checkpoint has no random numbers and no order of batches."""
        raise ConfigError(f"{resume_file} cannot be resumed exactly; train with recbole_hyper.run and its --resume")


class HostedLoop(Loop):
    """A loop whose only file is RecBole's checkpoint of the best epoch."""

    def __init__(self, config: Any, model: Any, trainer: HostedTrainer) -> None:
        super().__init__(config, model, Path(config["checkpoint_dir"]))
        self._seconds_between_saves = math.inf
        self.trainer = trainer
        self.saved = True

    def _take_best(self, epoch: int) -> None:
        self.best_epoch = epoch
        with self._averaged():
            self._save_best()

    def _save_best(self) -> None:
        if self.saved:
            self.trainer.cur_step, self.trainer.best_valid_score = self.cur_step, self.best_valid_score
            host.Trainer._save_checkpoint(self.trainer, self.best_epoch)

    def _write_state(self) -> None:
        """Do nothing: RecBole's checkpoint is the only file."""

    def _write_history(self) -> None:
        """Do nothing: the log has losses and metrics."""
