"""RecBole's trainers with this project's ranking, checkpoints and records."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recbole.trainer.trainer as host
import torch
from recbole.utils import ModelType, early_stopping, get_trainer

from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.files import write_csv
from recbole_hyper.kernels.clock import Stopwatch
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.random_numbers import random_state, restore_random_state
from recbole_hyper.training.averaging import build_average
from recbole_hyper.training.checkpoint import (
    STATE,
    WEIGHTS,
    CheckpointError,
    fitting,
    learned_tensors,
    load_state,
    load_weights,
    read_weights,
    require_same_data,
    save_state,
    save_weights,
)
from recbole_hyper.training.loggers import EVENTS, EventFile, WandbRun, lent_loggers
from recbole_hyper.training.memory import PeakMemory, give_back_freed
from recbole_hyper.training.optim import build_optimizer, build_schedule, build_scheduler
from recbole_hyper.training.riemannian import restore_training_state
from recbole_hyper.types import Cases, Ranks, Split

# RecBole's trainers and models of these hold state that is in no parameter and no optimizer
NOT_RESUMABLE = {"RecVAE", "DiffRec", "LDiffRec"}
# what a resumed trainer takes over as it is
RESTORED = ("cur_step", "best_epoch", "best_valid_score", "best_valid_result", "seconds", "peak_memory")


class DivergedError(ValueError):
    """The training loss became NaN or infinite; the message names epoch and step."""


@dataclass(frozen=True)
class Evaluation:
    """One part of a split to be ranked: what the trainer takes in the place of an evaluation loader."""

    name: str
    cases: Cases
    split: Split
    item_counts: Counter
    user_counts: Counter

    def __len__(self) -> int:
        return len(self.cases)


def make_trainer(config: Any, model: Any, output_dir: Path) -> Any:
    """Return RecBole's trainer for ``model`` (a model may have its own), with the behaviour of :class:`RunTrainer`."""
    base = host.Trainer if isinstance(model, HyperRecommender) else get_trainer(config["MODEL_TYPE"], config["model"])
    return type(f"Run{base.__name__}", (RunTrainer, base), {})(config, model, output_dir)


class RunTrainer:
    """Mixin over a RecBole trainer. Its epoch loop and early stopping are RecBole's own.

    The last epoch is validated too where ``eval_step`` leaves it out, and selected where it is the best. That
    validation counts for nothing else: early stopping, ``lr_plateau`` and ``checkpoint.pt`` do not know of it, so that
    a run that goes on with more epochs, or more patience, ends as one that was not stopped there. With ``ema_decay``
    training goes on with the raw weights; the average is what is validated, saved as the best and left in the model
    when ``fit`` ends. ``checkpoint.pt`` holds both.

    What changes: evaluation ranks cases (:func:`rank_cases`); the best weights go to ``model.safetensors``, the state
    of training to ``checkpoint.pt`` after every validated epoch, both atomically; ``train.csv`` has a row per epoch; a
    loss that is not finite names its epoch and step; tensorboard files are written on request only. The loss that is
    told, here and there, is the mean over the steps of an epoch (RecBole's log has their sum), and no time counts in
    which kernels are compiled.

    Attributes:
        history: rows of train.csv.
        seconds, peak_memory: wall time spent in "train" and "valid", and the largest memory of each in bytes.
        best_epoch: epoch of the best validation score, from 0; -1 before the first.
        best_ranks: of the cases of that validation; None where this process did not rank them (after a resume).
        on_validation: called with (epoch, score) after every validation and its checkpoint.
        plateau_scores: validation scores by epoch of the run that chose the epochs, for a refit: it has no validation
            of its own, and lowers the learning rate where that run did.
        data_fingerprint: of the data that are trained on, kept in the checkpoints; "" for none.
    """

    # what the RecBole trainer that this is mixed into provides
    config: Any
    model: Any
    device: Any
    optimizer: torch.optim.Optimizer
    epochs: int
    start_epoch: int
    cur_step: int
    stopping_step: int
    best_valid_score: float
    valid_metric_bigger: bool
    best_valid_result: Any
    tensorboard: EventFile
    wandblogger: WandbRun

    def __init__(self, config: Any, model: Any, output_dir: Path) -> None:
        self.output_dir = output_dir
        config["checkpoint_dir"] = str(output_dir)
        with lent_loggers(output_dir / EVENTS if config["log_tensorboard"] else None, output_dir):
            super().__init__(config, model)  # type: ignore[call-arg]
        self.history: list[dict[str, Any]] = []
        self.seconds = {"train": 0.0, "valid": 0.0}
        self.peak_memory = {"train": 0, "valid": 0}
        self.best_epoch = -1
        self.best_ranks: Ranks | None = None
        self._ranks: Ranks | None = None
        self.finished = False
        self.on_validation: Callable[[int, float], None] | None = None
        self.plateau_scores: dict[int, float] = {}
        self.data_fingerprint = ""
        self.scheduler = build_scheduler(self.optimizer, config)
        self.schedule = build_schedule(self.optimizer, config)
        self.average = build_average(self.model, config)
        # RecBole's is at most the number of epochs; with more epochs the same would then not be validated
        self.eval_step = config["eval_step"]
        self._step = self._n_steps = 0
        self._terms: Counter = Counter()
        self._best_other: dict[str, Any] | None = None
        # tensors of the best epoch by ``eval_step``, where the last one was taken in its place
        self._best_by_step: dict[str, torch.Tensor] | None = None

    # --- training ----------------------------------------------------------------------------------------------------
    def _build_optimizer(self, **kwargs: Any) -> torch.optim.Optimizer:
        if isinstance(self.model, HyperRecommender):
            return build_optimizer(self.model, self.config)
        return super()._build_optimizer(**kwargs)  # type: ignore[misc]

    def fit(self, train_data: Any, valid_data: Any = None, *, show_progress: bool = False, **kwargs: Any) -> Any:
        """Train with RecBole's loop; returns (best validation score, best validation result)."""
        self._loader = train_data
        saved_validation = valid_data if valid_data is not None and len(valid_data) else None
        if not self.finished:
            super().fit(  # type: ignore[misc]
                train_data, saved_validation, show_progress=show_progress, callback_fn=self._after_validation, **kwargs
            )
            self.finished = True
            self._save_training_state(self.history[-1]["epoch"] if self.history else -1)
        unseen = self.history and "valid_seconds" not in self.history[-1]
        if unseen and saved_validation is not None and self.eval_step > 0:
            self._validate_last(saved_validation, show_progress)
        if self.average is not None:
            self.average.enter()
        return self.best_valid_score, self.best_valid_result

    def _validate_last(self, valid: Evaluation, show_progress: bool) -> None:
        """Validate the last epoch, which ``eval_step`` left out, and take it where it is the best."""
        epoch = self.history[-1]["epoch"]
        state = self._training_state(epoch)
        score, result = self._valid_epoch(valid, show_progress)
        self.tensorboard.add_scalar("Vaild_score", score, epoch)
        *_, best = early_stopping(score, self.best_valid_score, 0, self.stopping_step, self.valid_metric_bigger)
        if best:
            self._put_aside_best(state)
            self.best_valid_score, self.best_valid_result = score, result
            self._save_checkpoint(epoch)
        elif self._best_by_step is not None:
            self._save_best(self._best_by_step)
        if self.on_validation is not None:
            self.on_validation(epoch, float(score))

    def _put_aside_best(self, state: dict[str, Any]) -> None:
        """Keep the best weights by ``eval_step`` before they are replaced: a run with more epochs puts them back."""
        if self._best_by_step is None and self.best_epoch >= 0:
            self._best_by_step, _ = read_weights(self.output_dir / WEIGHTS)
            save_state(self.output_dir / STATE, {**state, "best_by_step": self._best_by_step})

    @property
    def is_best_last(self) -> bool:
        """Whether the last epoch of all that were asked for is the best one, so that more might be better.

        Never where the learning rate follows a schedule, which no resume makes longer.
        """
        over = self.config["MODEL_TYPE"] == ModelType.TRADITIONAL or self.schedule is not None
        validated = bool(self.history) and "valid_seconds" in self.history[-1]
        return validated and not over and self.best_epoch + 1 == len(self.history) == self.epochs

    def _after_validation(self, epoch: int, score: float) -> None:
        if self.scheduler is not None:
            self.scheduler.step(score)
        self._save_training_state(epoch)
        if self.on_validation is not None:
            self.on_validation(epoch, float(score))

    def _train_epoch(
        self, train_data: Any, epoch_idx: int, loss_func: Callable | None = None, show_progress: bool = False
    ) -> Any:
        self._epoch, self._step, self._n_steps, self._terms = epoch_idx, 0, len(train_data), Counter()
        if self.scheduler is not None and epoch_idx - 1 in self.plateau_scores:
            self.scheduler.step(self.plateau_scores[epoch_idx - 1])
        watch = Stopwatch()
        with PeakMemory(self.device) as memory:
            total = super()._train_epoch(  # type: ignore[misc]
                train_data, epoch_idx, self._observed(loss_func or self.model.calculate_loss), show_progress
            )
            self._average_step()
        give_back_freed()
        seconds = watch.seconds()
        self.seconds["train"] += seconds
        self.peak_memory["train"] = max(self.peak_memory["train"], memory.bytes)
        steps = max(1, self._step)
        row: dict[str, Any] = {"epoch": epoch_idx, "train_seconds": seconds}
        if self.scheduler is not None or self.schedule is not None:
            row["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        mean = tuple(part / steps for part in total) if isinstance(total, tuple) else float(total or 0.0) / steps
        row["train_loss"] = sum(mean) if isinstance(mean, tuple) else mean
        row.update({name: value / steps for name, value in self._terms.items()})
        if isinstance(self.model, HyperRecommender) and self.model.head.log_curvature is not None:
            row["curvature"] = self.model.head.curvature_value
        self.history.append(row)
        self._write_history()
        self._report(row, "train")
        return mean

    def _generate_train_loss_output(self, epoch_idx: int, s_time: float, e_time: float, losses: Any) -> Any:
        """Return what the log says of an epoch, with the seconds of train.csv."""
        seconds = self.history[-1]["train_seconds"]
        return super()._generate_train_loss_output(epoch_idx, 0.0, seconds, losses)  # type: ignore[misc]

    def _observed(self, loss_func: Callable) -> Callable:
        def observed(interaction: Any) -> Any:
            self._average_step()
            if self.schedule is not None:
                self.schedule.set_rates(self._epoch, self._step, self._n_steps)
            self._step += 1
            losses = loss_func(interaction)
            self._terms.update(getattr(self.model, "loss_terms", {}))
            return losses

        return observed

    def _average_step(self) -> None:
        """Take the weights behind the step of this epoch that was the last into the average, where there is one."""
        if self.average is not None and self._step:
            self.average.update()

    def _averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which the model holds its average, where there is one."""
        return contextlib.nullcontext() if self.average is None else self.average.applied()

    def _check_nan(self, loss: torch.Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            kept = f"The last good state is in {self.output_dir}" if self._has_state() else "No state was kept before"
            raise DivergedError(
                f"the training loss is {float(loss.detach())} at epoch {self._epoch}, step {self._step}; lower "
                f"learning_rate ({self.config['learning_rate']}) or set clip_grad_norm={{'max_norm': 5.0}}. {kept}"
            )

    def _has_state(self) -> bool:
        return (self.output_dir / STATE).is_file()

    def _valid_epoch(self, valid_data: Evaluation, show_progress: bool = False) -> Any:
        watch = Stopwatch()
        with PeakMemory(self.device) as memory, self._averaged():
            score, result = super()._valid_epoch(valid_data, show_progress)  # type: ignore[misc]
        found = {"seconds": watch.seconds(), **result}
        self.seconds["valid"] += found["seconds"]
        self.peak_memory["valid"] = max(self.peak_memory["valid"], memory.bytes)
        self.history[-1].update({f"valid_{name}": value for name, value in found.items()})
        self._write_history()
        self._report({"epoch": self.history[-1]["epoch"], **found}, "valid")
        return score, result

    def _report(self, row: Mapping[str, Any], head: str) -> None:
        for log in (self.tensorboard, self.wandblogger):
            log.log_row(row, head)

    def close_loggers(self, metrics: Mapping[str, float]) -> None:
        """End what is told beside train.csv; ``metrics`` are those of the test, {} for none."""
        self.tensorboard.close()
        self.wandblogger.close(metrics)

    def _write_history(self) -> None:
        write_csv(self.output_dir / "train.csv", self.history)

    # --- evaluation --------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def evaluate(
        self, eval_data: Any, load_best_model: bool = True, model_file: Any = None, show_progress: bool = False
    ) -> Any:
        """Rank ``eval_data`` and return RecBole's metrics; a RecBole loader is evaluated by RecBole itself."""
        if load_best_model:
            self.load_best()
        if not isinstance(eval_data, Evaluation):
            return super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)  # type: ignore[misc]
        self._ranks = self.rank(eval_data, show_progress)
        return self.metrics(eval_data, self._ranks)

    @torch.no_grad()
    def rank(self, evaluation: Evaluation, show_progress: bool = False) -> Ranks:
        """Rank the cases of ``evaluation`` with the model as it is."""
        self.model.eval()
        return rank_cases(
            make_scorer(self.model, self.config),
            evaluation.cases,
            n_items=evaluation.split.store.n_items,
            k=max(self.config["topk"]),
            exclude_seen=self.config["exclude_seen"],
            catalogue=evaluation.split.candidates(evaluation.name),
            memory_budget=self.config["ranking_memory_budget"],
            progress=f"Rank {evaluation.name}" if show_progress else None,
        )

    def metrics(self, evaluation: Evaluation, ranks: Ranks) -> dict[str, float]:
        """Return the configured metrics of ``ranks``."""
        catalogue = evaluation.split.candidates(evaluation.name)
        return compute_metrics(
            ranks,
            self.config["metrics"],
            self.config["topk"],
            self.config["metric_decimal_place"],
            n_items=evaluation.split.store.n_items - 1 if catalogue is None else int(catalogue.sum()),
            n_users=evaluation.split.store.n_rows,
            item_counts=evaluation.item_counts,
            user_counts=evaluation.user_counts,
            tail_ratio=self.config["tail_ratio"],
        )

    # --- checkpoints -------------------------------------------------------------------------------------------------
    def _save_checkpoint(self, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
        """RecBole calls this where the model is the best so far, and after every epoch without validation."""
        self.best_epoch, self.best_ranks = epoch, self._ranks
        # some models of RecBole keep what they learned in attributes that are no parameters
        self._best_other = dict(self.model.other_parameter())
        without_validation = self.history and "valid_seconds" not in self.history[-1]
        if not without_validation or epoch + 1 >= self.epochs:
            with self._averaged():
                self._save_best(learned_tensors(self.model))
        if without_validation:
            self._save_training_state(epoch)

    def _save_best(self, tensors: Mapping[str, torch.Tensor]) -> None:
        found = {"model": self.config["model"], "epoch": self.best_epoch, "valid_score": float(self.best_valid_score)}
        save_weights(self.output_dir / WEIGHTS, tensors, {**found, "data_fingerprint": self.data_fingerprint})

    def load_best(self) -> None:
        """Load the weights of the best epoch; CheckpointError for none, damaged ones, or those of another epoch."""
        path = self.output_dir / WEIGHTS
        epoch = load_weights(path, self.model).get("epoch")
        if epoch != self.best_epoch:
            raise CheckpointError(f"{path} is of epoch {epoch}, but the best one is {self.best_epoch}; train again")
        if self._best_other:
            self.model.load_other_parameter(self._best_other)

    def _save_training_state(self, epoch: int) -> None:
        if self.finished or not (epoch + 1) % int(self.config["checkpoint_step"]):
            save_state(self.output_dir / STATE, self._training_state(epoch))

    def _training_state(self, epoch: int) -> dict[str, Any]:
        return {
            # what is fitted in one step is fitted again
            "model": {} if self.config["MODEL_TYPE"] == ModelType.TRADITIONAL else self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "average": self.average.state_dict() if self.average is not None else None,
            "data_fingerprint": self.data_fingerprint,
            "best_other": {k: v for k, v in (self._best_other or {}).items() if isinstance(v, torch.Tensor)},
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_epoch": self.best_epoch,
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": dict(self.best_valid_result or {}),
            "history": [dict(row) for row in self.history],
            "seconds": dict(self.seconds),
            "peak_memory": dict(self.peak_memory),
            "random": random_state(self._loader),
        }

    def resume(self, train_data: Any) -> int:
        """Continue from ``checkpoint.pt``; returns the epoch that training goes on with, 0 where there is none yet.

        CheckpointError for a damaged one, other data, or a model of RecBole that cannot be continued exactly.
        """
        path = self.output_dir / STATE
        if not path.is_file():
            return 0
        state = load_state(path, {*RESTORED, "model", "optimizer", "epoch", "history", "random"})
        require_same_data(path, state, self.data_fingerprint)
        # a model that is fitted in one step is fitted again: not all of it is in the checkpoint
        if self.config["MODEL_TYPE"] == ModelType.TRADITIONAL:
            return 0
        # a run with more epochs may choose an earlier one, whose refit is shorter than the refit that is here
        if state["epoch"] >= self.epochs:
            return 0
        if self.config["model"] in NOT_RESUMABLE:
            raise CheckpointError(
                f"{path}: RecBole's {self.config['model']} cannot be continued exactly; start it in another output_dir"
            )
        with fitting(path):
            self._restore(state, train_data)
        self._restore_best(state.get("best_by_step"))
        return self.start_epoch

    def _restore(self, state: Mapping[str, Any], train_data: Any) -> None:
        # what the model computed from the best weights; the rest is computed anew from those
        self._best_other = {**self.model.other_parameter(), **state.get("best_other", {})}
        restore_training_state(self.model, self.optimizer, state)
        if self.scheduler is not None and state.get("scheduler"):
            self.scheduler.load_state_dict(state["scheduler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        for name in RESTORED:
            setattr(self, name, state[name])
        self.history = list(state["history"])
        self.start_epoch = state["epoch"] + 1
        # a run that was stopped early, or had run out of epochs, goes on if it now has more patience, or more epochs
        self.finished = self.cur_step > self.stopping_step or self.start_epoch >= self.epochs
        restore_random_state(state["random"], train_data)

    def _restore_best(self, best_by_step: dict[str, torch.Tensor] | None) -> None:
        """Make sure that the best weights so far are there: they may be asked for after much work."""
        if best_by_step is not None and not self.finished:
            self._save_best(best_by_step)
            return
        self._best_by_step = best_by_step
        if self.finished or any("valid_seconds" in row for row in self.history):
            read_weights(self.output_dir / WEIGHTS)
