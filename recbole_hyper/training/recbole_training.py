"""RecBole models in a run: trained by RecBole's trainers, ranked and saved like the models of this package."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recbole_hyper.host import models
from recbole_hyper.host.loggers import lent_loggers
from recbole_hyper.kernels.clock import Stopwatch
from recbole_hyper.models.part_checks import require_loss
from recbole_hyper.training.checkpoint import CheckpointError
from recbole_hyper.training.memory import PeakMemory, give_back_freed
from recbole_hyper.training.progress import Training
from recbole_hyper.training.validation import Evaluation

# these have state in RecBole's trainer or model that is neither a parameter nor part of the optimizer
NOT_RESUMABLE = {"RecVAE", "DiffRec", "LDiffRec"}


def recbole_training(config: Any, model: Any, output_dir: Path) -> Any:
    """Return a trainer for a RecBole model: RecBole's, or ``XTrainer`` in the files of a third-party model ``X``."""
    base = models.trainer_class(config, type(model))
    with models.one_line(config, "while its trainer was built"):
        return type(f"Run{base.__name__}", (RecBoleTraining, base), {})(config, model, output_dir)


class RecBoleTraining(Training):
    """Mixin for a RecBole trainer, whose ``fit`` calls the methods below; checkpoints are between epochs only."""

    start_epoch: int

    def set_up(self) -> None:
        """Build RecBole's trainer, which reads the whole configuration."""
        config = self.config
        config["checkpoint_dir"] = str(self.output_dir)
        with lent_loggers(self.tensorboard, self.wandblogger):
            super(Training, self).__init__(config, self.model)  # type: ignore[call-arg]
        # RecBole limits it to the number of epochs; a run with more epochs would then validate other epochs
        self.eval_step = config["eval_step"]
        self._use_optimizer(self.optimizer)
        self._valid: Evaluation | None = None
        if self.schedule is not None:
            rates = self.schedule.set_rates
            self.optimizer.register_step_pre_hook(lambda *_: rates(len(self.history), self._step - 1, self._n_steps))
        if self.average is not None:
            update = self.average.update
            self.optimizer.register_step_post_hook(lambda *_: update())

    def fit(self, batches: Any, valid: Evaluation | None = None, show_progress: bool = False) -> None:
        """Train with RecBole's loop until the epochs or the patience are used up."""
        self.batches, self._valid = batches, valid if valid is not None and len(valid) else None
        if not self.finished:
            self.start_epoch, callback = len(self.history), self._after_validation
            super().fit(batches, self._valid, show_progress=show_progress, callback_fn=callback)  # type: ignore[misc]
            if self._valid and self.eval_step > 0 and not self._last_is_validated:  # RecBole's loop skipped it
                self._after_validation(len(self.history) - 1, self.validate(self._valid, show_progress))
                self.log_epoch()
            self._save_state()
        if self.average is not None:
            self.average.enter()

    def resume(self, batches: Any) -> int:
        done = super().resume(batches)
        if done and self.settings.model in NOT_RESUMABLE:
            raise CheckpointError(
                f"{self.output_dir}: RecBole's {self.settings.model} cannot be resumed exactly; start it in another "
                "output_dir"
            )
        return done

    def _train_epoch(self, train_data: Any, epoch_idx: int, loss_func: Any = None, show_progress: bool = False) -> Any:
        self._step, self._n_steps, watch = 0, max(1, len(train_data)), Stopwatch()
        with PeakMemory(self.device) as memory:
            loss = loss_func or self.model.calculate_loss
            checked = loss if epoch_idx else partial(self._checked, loss)
            where = f"in epoch {epoch_idx}" if epoch_idx else "in its first epoch"
            # a model that switches gradients off does so for this epoch only
            with models.one_line(self.config, where), torch.enable_grad():
                total = super()._train_epoch(train_data, epoch_idx, checked, show_progress)  # type: ignore[misc]
        give_back_freed()
        parts = total if isinstance(total, tuple) else (float(total or 0.0),)
        means = tuple(part / self._n_steps for part in parts)
        self._note_epoch({"train_loss": sum(means)}, watch.seconds(), memory.bytes)
        if self.scheduler is not None and epoch_idx in self.plateau_scores:
            self.scheduler.step(self.plateau_scores[epoch_idx])
        if self._valid and self.eval_step > 0 and not self.is_validated(epoch_idx):
            self._save_state()
        return means if isinstance(total, tuple) else means[0]

    def _checked(self, loss: Callable[[Any], Any], batch: Any) -> Any:
        """Return the loss of a batch; in the first step, ConfigError for any error or an invalid loss."""
        if self._step:
            return loss(batch)
        with models.one_line(self.config, "in its first step"):
            loss_of_batch = loss(batch)
        parts = loss_of_batch if isinstance(loss_of_batch, tuple) else (loss_of_batch,)
        learns = self.one_step or any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts)
        for part in parts:
            # RecBole has losses of shape (1,)
            if not isinstance(part, torch.Tensor) or part.numel() != 1 or not learns:
                require_loss(part, f"{type(self.model).__name__}.calculate_loss")
        return loss_of_batch

    def _check_nan(self, loss: torch.Tensor) -> None:
        """Count the step and check its loss; RecBole calls this once a step."""
        self._step += 1
        self.require_finite(float(loss.detach()), self._step)

    def _valid_epoch(self, valid_data: Evaluation, show_progress: bool = False) -> Any:
        return self._validate(valid_data, show_progress)

    def _save_checkpoint(self, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
        """Save the best weights; RecBole calls this for a new best epoch, and after every epoch without validation."""
        self._take_best(epoch)
        if self._valid is None or not self.is_validated(epoch):
            self._save_state()

    def _after_validation(self, epoch: int, score: float) -> None:
        if self.scheduler is not None:
            self.scheduler.step(score)
        self._save_state()
        if self.on_validation is not None:
            self.on_validation(epoch, float(score))
