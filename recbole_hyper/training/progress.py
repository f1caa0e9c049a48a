"""The progress of training and its files, for this package's loop and for RecBole's trainers."""

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from recbole_hyper.files import write_csv
from recbole_hyper.host.loggers import EVENTS, EventFile, WandbRun
from recbole_hyper.hyperbolic.riemannian import restore_training_state
from recbole_hyper.kernels.clock import Stopwatch
from recbole_hyper.models.contract import OwnModel, make_scorer
from recbole_hyper.random_numbers import random_state, restore_random_state
from recbole_hyper.training import checkpoint
from recbole_hyper.training.averaging import WeightAverage
from recbole_hyper.training.checkpoint import STATE, WEIGHTS, CheckpointError
from recbole_hyper.training.memory import PeakMemory
from recbole_hyper.training.optim import RateSchedule, build_scheduler, own_rates
from recbole_hyper.training.processes import gathered, world
from recbole_hyper.training.settings import OptimizerSettings, RankSettings, TrainSettings
from recbole_hyper.training.validation import Evaluation, metrics, rank
from recbole_hyper.types import Ranks

# attributes that a resume restores from the checkpoint
RESTORED = ("cur_step", "best_epoch", "best_valid_score", "best_valid_result", "history", "seconds", "peak_memory")

logger = logging.getLogger("recbole_hyper")


def in_time(seconds: float) -> str:
    """Return a time in words: "0.4 s", "12 s", "3 min 20 s" or "2 h 5 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


class DivergedError(ValueError):
    """The training loss is NaN or infinite; the message names epoch and step."""


class Training:
    """A model in training: its epochs so far, the best epoch, and their files.

    ``train.csv`` has a row per epoch, ``model.safetensors`` the best weights, ``checkpoint.pt`` the state of training;
    each file is replaced in one step. Without validation the last epoch is the best; with it, the last epoch is always
    validated. With ``ema_decay``, the average is validated, saved as the best, and left in the model at the end.

    Attributes:
        history: rows of train.csv: mean losses over the steps, and seconds without the time to compile kernels.
        seconds, peak_memory: wall time and largest memory in bytes of "train" and "valid".
        best_epoch: epoch of the best validation score, from 0; -1 before the first.
        best_ranks: ranks of the best validation; None if this process did not compute them (after a resume).
        on_validation: called with (epoch, score) after every validation and its checkpoint.
        plateau_scores: in a refit, the validation scores by epoch of the run that chose the epochs, for ``lr_plateau``.
        data_fingerprint: fingerprint of the training data, saved in the checkpoints, or "".
    """

    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.ReduceLROnPlateau | None
    schedule: RateSchedule | None
    average: WeightAverage | None
    batches: Any = None

    def __init__(
        self, config: Any, model: Any, output_dir: Path, loss_of: Callable[[Any], Tensor] | None = None
    ) -> None:
        settings = TrainSettings.of(config)
        # RecBole's trainers, loggers and models read the whole configuration
        self.config, self.settings, self.ranking = config, settings, RankSettings.of(config)
        self.optimizing = OptimizerSettings.of(config)
        self.model, self.output_dir, self.device = model, output_dir, settings.device
        self.loss_of = loss_of or model.calculate_loss
        self.one_step = model.type.name == "TRADITIONAL"
        self.epochs: int = 1 if self.one_step else settings.epochs
        self.eval_step, self.stopping_step = settings.eval_step, settings.stopping_step
        self.valid_metric, self.valid_metric_bigger = settings.valid_metric.lower(), settings.valid_metric_bigger
        self.cur_step, self.best_epoch = 0, -1
        self.best_valid_score: float = -math.inf if self.valid_metric_bigger else math.inf
        self.best_valid_result: Any = None
        self.history: list[dict[str, Any]] = []
        self.seconds, self.peak_memory = {"train": 0.0, "valid": 0.0}, {"train": 0, "valid": 0}
        self.best_ranks: Ranks | None = None
        self._ranks: Ranks | None = None
        self.on_validation: Callable[[int, float], None] | None = None
        self.plateau_scores: dict[int, float] = {}
        self.data_fingerprint = ""
        self._saved: int | None = None  # epoch of the weights that a resume finds, perhaps after that of its checkpoint
        self._saved_at, minutes = monotonic(), settings.checkpoint_minutes
        # several processes, whose clocks differ, save after an epoch only
        within_epochs = not self.one_step and world()[1] == 1
        self._seconds_between_saves = 60.0 * minutes if within_epochs and minutes is not None else math.inf
        self.tensorboard = EventFile(output_dir / EVENTS if settings.log_tensorboard else None)
        self.wandblogger = WandbRun(config, output_dir)
        self.set_up()

    def set_up(self) -> None:
        """Make what a kind of training needs besides; the constructor calls this last."""

    def _use_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Set ``optimizer``, its scheduler, and the average of the weights."""
        settings, self.optimizer = self.settings, optimizer
        self.scheduler = build_scheduler(optimizer, self.optimizing)
        self.schedule = self.average = None
        if settings.lr_schedule or settings.warmup_ratio:
            self.schedule = RateSchedule(optimizer, settings.lr_schedule, settings.warmup_ratio or 0.0, settings.epochs)
        if settings.ema_decay is not None:
            self.average = WeightAverage(self.model, float(settings.ema_decay))

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained or the patience is used up; with more of either, training continues."""
        return self.cur_step > self.stopping_step or len(self.history) >= self.epochs

    @property
    def is_best_last(self) -> bool:
        """Whether the last epoch is the best, so that more epochs may help; always False with a schedule."""
        if self.one_step or self.schedule is not None or not self._last_is_validated:
            return False
        return self.best_epoch + 1 == len(self.history) == self.epochs

    @property
    def _last_is_validated(self) -> bool:
        return bool(self.history) and "valid_seconds" in self.history[-1]

    def is_validated(self, epoch: int) -> bool:
        """Return whether ``eval_step`` includes ``epoch``, or it is the last one, also that of a killed run."""
        return self.eval_step > 0 and ((epoch + 1) % self.eval_step == 0 or epoch in (self.epochs - 1, self._saved))

    def require_finite(self, loss: float, step: int) -> None:
        """Raise DivergedError for a loss that is NaN or infinite; ``step`` counts from 1."""
        if math.isfinite(loss):
            return
        last_state = "No checkpoint was saved before"
        if (self.output_dir / STATE).is_file():
            last_state = f"The last good state is in {self.output_dir}"
        raise DivergedError(
            f"the training loss is {loss} at epoch {len(self.history)}, step {step}; lower learning_rate "
            f"({self.settings.learning_rate}) or set clip_grad_norm={{'max_norm': 5.0}}. {last_state}"
        )

    # --- an epoch ----------------------------------------------------------------------------------------------------
    def _note_epoch(self, means: Mapping[str, float], seconds: float, memory: int) -> None:
        """Add an epoch with the ``means`` of its losses to train.csv and the loggers."""
        row: dict[str, Any] = {"epoch": len(self.history), "train_seconds": seconds}
        if self.scheduler is not None or self.schedule is not None:
            row["learning_rate"] = float(self.optimizer.param_groups[0]["lr"])
        self.history.append({**row, **means})
        self._note("train", seconds, memory, self.history[-1])

    def _note(self, phase: str, seconds: float, memory: int, row: Mapping[str, Any]) -> None:
        self.seconds[phase] += seconds
        self.peak_memory[phase] = max(self.peak_memory[phase], memory)
        self._write_history()
        for log in (self.tensorboard, self.wandblogger):
            log.log_row(row, phase)

    def _write_history(self) -> None:
        write_csv(self.output_dir / "train.csv", self.history)

    def _validate(self, valid: Evaluation, show_progress: bool) -> tuple[float, dict[str, float]]:
        """Rank validation, with the averaged weights if there are any; return (score, metrics)."""
        watch = Stopwatch()
        if isinstance(self.model, OwnModel):
            valid = replace(valid, cases=self.model.epoch_cases(valid.cases))
        with PeakMemory(self.device) as memory, self._averaged():
            result = self.measure(valid, show_progress, "epoch")
        row = {"seconds": watch.seconds(), **result}
        self.history[-1].update({f"valid_{name}": value for name, value in row.items()})
        self._note("valid", row["seconds"], memory.bytes, {"epoch": self.history[-1]["epoch"], **row})
        return result[self.valid_metric], result

    def choose(self, valid: Evaluation, show_progress: bool = False) -> None:
        """Let the model choose settings on ``valid`` with the best weights, which it has; rank and save these again.

        Nothing happens if the model chooses none.
        """
        watch = Stopwatch()
        with PeakMemory(self.device) as memory:
            if not isinstance(self.model, OwnModel) or not self.model.choose(valid.cases):
                return
            result = self.measure(valid, show_progress)
        score, before = result[self.valid_metric], len(self.model.epoch_cases(valid.cases))
        chosen = f"; {self.best_valid_score:.4f} over {before} cases chose the epoch" if self.best_epoch >= 0 else ""
        texts = in_time(watch.seconds()), self.valid_metric, score, len(valid), chosen
        logger.info("fitted to validation in %s: %s %.4f over %d cases%s", *texts)
        self.best_valid_score, self.best_valid_result, self.best_ranks = score, result, self._ranks
        self._note("valid", watch.seconds(), memory.bytes, {"epoch": self.best_epoch, **result})
        self._save_best()

    def rank_part(self, evaluation: Evaluation, show_progress: bool = False, purpose: str | None = None) -> Ranks:
        """Rank the cases of ``evaluation`` with the current weights; ``purpose`` "epoch" chooses an epoch."""
        scorer = make_scorer(self.model.eval(), self.config, part=purpose or evaluation.name)
        return rank(scorer, self.ranking, evaluation, show_progress)

    def measure(
        self, evaluation: Evaluation, show_progress: bool = False, purpose: str | None = None
    ) -> dict[str, float]:
        """Return the metrics of ``evaluation`` with the current weights; see :meth:`rank_part`."""
        self._ranks = self.rank_part(evaluation, show_progress, purpose)
        return metrics(self.ranking, evaluation, self._ranks)

    def log_epoch(self) -> None:
        """Log the last epoch as one line: loss and seconds, the validation metric and its best, the time left."""
        row, done = self.history[-1], len(self.history)
        first = "fitted in one step" if self.one_step else f"epoch {done - 1} of 0 to {self.epochs - 1}"
        parts = [] if self.one_step else [f"loss {row['train_loss']:.4f}"]
        parts.append(in_time(row["train_seconds"]))
        if (score := row.get(f"valid_{self.valid_metric}")) is not None:
            parts.append(f"{self.valid_metric} {score:.4f} (best {self.best_valid_score:.4f}, epoch {self.best_epoch})")
        left = (self.epochs - done) * sum(self.seconds.values()) / done
        if left and not self.finished:
            parts.append(f"at most {in_time(left)} left")
        logger.info("%s: %s", first, ", ".join(parts))

    def validate(self, valid: Evaluation, show_progress: bool = False) -> float:
        """Rank validation, save the weights if they are the best so far, and return the score.

        By RecBole's rule, an equal score is the best too, and training ends after more than ``stopping_step``
        validations that were worse.
        """
        epoch = len(self.history) - 1
        score, result = self._validate(valid, show_progress)
        self.tensorboard.add_scalar("Vaild_score", score, epoch)
        best = self.best_valid_score
        if score >= best if self.valid_metric_bigger else score <= best:
            self.best_valid_score, self.best_valid_result, self.cur_step = score, dict(result), 0
            self._take_best(epoch)
        else:
            self.cur_step += 1
        if self.cur_step > self.stopping_step:
            logger.info("no better epoch in %d validations: the training ends", self.stopping_step + 1)
        return score

    def _averaged(self) -> contextlib.AbstractContextManager[None]:
        """Use the averaged weights, if there are any, inside a block."""
        return contextlib.nullcontext() if self.average is None else self.average.applied()

    def close_loggers(self, metrics: Mapping[str, float]) -> None:
        """Close TensorBoard and Weights and Biases; ``metrics`` are the test metrics, or {}."""
        self.tensorboard.close()
        self.wandblogger.close(metrics)

    # --- the best weights --------------------------------------------------------------------------------------------
    def _take_best(self, epoch: int) -> None:
        """Select the current weights, those of ``epoch``, as the best, and save them."""
        self.best_epoch, self.best_ranks = epoch, self._ranks
        # without validation every epoch is the best so far: save only the last one
        if self._last_is_validated or epoch + 1 >= self.epochs:
            with self._averaged():
                self._save_best()

    def _save_best(self) -> None:
        """Save the current weights as those of the best epoch."""
        about = {"model": self.settings.model, "epoch": self.best_epoch, "valid_score": float(self.best_valid_score)}
        about["data_fingerprint"] = self.data_fingerprint
        checkpoint.save_weights(self.output_dir / WEIGHTS, checkpoint.learned_tensors(self.model), about)

    def load_best(self) -> None:
        """Load the weights of the best epoch; CheckpointError if they are missing, damaged or of another epoch."""
        path = self.output_dir / WEIGHTS
        epoch = checkpoint.load_weights(path, self.model).get("epoch")
        if epoch != self.best_epoch:
            raise CheckpointError(f"{path} is of epoch {epoch}, but epoch {self.best_epoch} is the best; train again")

    # --- the state of training ---------------------------------------------------------------------------------------
    def _save_state(self) -> None:
        """Write checkpoint.pt every ``checkpoint_step`` epochs and at the end."""
        if self.finished or not len(self.history) % int(self.settings.checkpoint_step):
            self._write_state()

    def _write_state(self) -> None:
        checkpoint.save_state(self.output_dir / STATE, self._state())
        self._saved_at = monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            **copy.deepcopy({name: getattr(self, name) for name in RESTORED}),
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": dict(self.best_valid_result or {}),
            # a model that is fitted in one step is fitted again
            "model": {} if self.one_step else self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "average": self.average.state_dict() if self.average is not None else None,
            "data_fingerprint": self.data_fingerprint,
            "epoch": len(self.history) - 1,
            "random": gathered(random_state(self.batches)),
        }

    def resume(self, batches: Any) -> int:
        """Restore ``checkpoint.pt`` and return its number of epochs, 0 without one; CheckpointError for a wrong one."""
        path = self.output_dir / STATE
        if not path.is_file():
            return 0
        state = checkpoint.load_state(path, {*RESTORED, "model", "optimizer", "epoch", "random"})
        checkpoint.require_same_data(path, state, self.data_fingerprint)
        # train again: the checkpoint of a model fitted in one step is incomplete; and a run with more epochs may select
        # an earlier epoch, so that its refit is shorter than this one
        if self.one_step or len(state["history"]) > self.epochs:
            return 0
        with checkpoint.checkpoint_errors(path):
            self._restore(state, batches)
        # check now that the best weights are there: they may be needed only after hours of training
        if self.finished or any("valid_seconds" in row for row in self.history):
            self._saved = checkpoint.read_weights(self.output_dir / WEIGHTS)[1].get("epoch")
        return len(self.history)

    def _restore(self, state: Mapping[str, Any], batches: Any) -> None:
        with own_rates(self.optimizer):
            restore_training_state(self.model, self.optimizer, state)
        if self.scheduler is not None and state.get("scheduler"):
            self.scheduler.load_state_dict(state["scheduler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        for name in RESTORED:
            setattr(self, name, state[name])
        (rank, size), states = world(), state["random"]
        if len(states) != size:
            raise CheckpointError(f"{self.output_dir} needs {len(states)} processes, as before, not {size}")
        restore_random_state(states[rank], batches)
