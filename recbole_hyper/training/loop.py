"""The training loop of this package's models, on one page: epochs, steps, validation, early stopping, checkpoints."""

import itertools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from recbole_hyper.batches.device_windows import PackedBatch
from recbole_hyper.devices import half_precision, moved
from recbole_hyper.kernels.clock import Stopwatch
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.random_numbers import order_state
from recbole_hyper.training.graphs import StepGraphs, why_no_graphs
from recbole_hyper.training.memory import PeakMemory, give_back_freed
from recbole_hyper.training.optim import build_optimizer
from recbole_hyper.training.progress import Training
from recbole_hyper.training.validation import Evaluation

logger = logging.getLogger("recbole_hyper")

# on a GPU, the host reads the losses of this many steps at once
STEPS_BETWEEN_READS = 64


@dataclass
class UnderWay:
    """An unfinished epoch."""

    step: int = 0  # steps so far
    sums: dict[str, float] = field(default_factory=dict)  # summed losses by name
    seconds: float = 0.0
    scaler: dict[str, Any] = field(default_factory=dict)  # state of the gradient scaler


class Loop(Training):
    """Trains ``model`` by gradient steps on the scalar ``loss_of(batch)``; RecBole's keys have RecBole's meaning."""

    def set_up(self) -> None:
        """Make the optimizer and what a step needs."""
        self._use_optimizer(build_optimizer(self.model, self.optimizing))
        self._half = half_precision(self.device)
        scales = self.settings.enable_scaler or (self.settings.enable_amp and self._half == torch.float16)
        self.scales = bool(scales) and self.device.type != "cpu"
        self.graphs: StepGraphs | None = None
        self._one = torch.ones((), device=self.device)  # the gradient of a loss by itself
        self._unread: list[dict[str, Tensor | float]] = []  # losses of the last steps, by name
        self._n_read = 0  # steps of the epoch with losses already read
        self._steps_between_reads = 1 if self.device.type == "cpu" else STEPS_BETWEEN_READS
        self.under_way = UnderWay()
        self._bar: Any = tqdm(disable=True)
        self._order: Any = None  # state of the loader's generator at the start of the epoch

    def fit(self, batches: Any, valid: Evaluation | None = None, show_progress: bool = False) -> None:
        """Train on ``batches``, a loader, until the epochs or the patience are used up.

        The model ends with its last weights, or with their average (``ema_decay``); see :meth:`load_best`.
        DivergedError for a loss that is not finite.
        """
        self.batches = batches
        self.use_graphs(batches)
        valid = valid if valid is not None and len(valid) else None
        if self.epochs == 0:
            self._take_best(-1)
            self._save_state()
        total = 0 if self.finished else (self.epochs - len(self.history)) * len(batches)
        # the mean over all steps, so that the time left includes validation
        self._bar = tqdm(total=total, desc="Train", unit="step", smoothing=0, disable=not show_progress, leave=False)
        with self._bar:
            self._train(valid, show_progress)
        if self.average is not None:
            self.average.enter()

    def _train(self, valid: Evaluation | None, show_progress: bool) -> None:
        while not self.finished:
            epoch = len(self.history)
            self._bar.set_description(f"Epoch {epoch} of 0 to {self.epochs - 1}")
            self.train_epoch(show_progress)
            score = self.plateau_scores.get(epoch)
            if valid is not None and self.is_validated(epoch):
                score = self.validate(valid, show_progress)
            elif valid is None or self.eval_step <= 0:
                self._take_best(epoch)
            if self.scheduler is not None and score is not None:
                self.scheduler.step(score)
            self._save_state()
            if self.on_validation is not None and self._last_is_validated:
                self.on_validation(epoch, self.history[-1][f"valid_{self.valid_metric}"])
            self.log_epoch()

    def train_epoch(self, show_progress: bool = False) -> None:
        """Train an epoch, or the rest of it after a resume."""
        now, watch, epoch = self.under_way, Stopwatch(), len(self.history)
        n_steps, spent, self._order = len(self.batches), now.seconds, order_state(self.batches)
        scaler = torch.amp.GradScaler(self.device.type, enabled=self.scales)
        if now.scaler:
            scaler.load_state_dict(now.scaler)
        self._n_read = now.step
        self.model.train()
        with PeakMemory(self.device) as memory:
            # a resume draws the batches of the earlier steps again, for the same state of the loader's generator
            for batch in itertools.islice(iter(self.batches), now.step, None):
                if self.schedule is not None:
                    self.schedule.set_rates(epoch, now.step, n_steps)
                self.train_step(batch, scaler)
                now.step += 1
                self._bar.update()
                if now.step % self._steps_between_reads:
                    continue
                if monotonic() - self._saved_at >= self._seconds_between_saves and now.step < n_steps:
                    self._read_losses()
                    now.seconds, now.scaler = spent + watch.seconds(), scaler.state_dict()
                    self._write_state()
            self._read_losses()
        give_back_freed()
        self.under_way = UnderWay()
        means = {name: value / max(1, now.step) for name, value in now.sums.items()}
        if isinstance(self.model, HyperRecommender):
            means |= self.model.head.learned
        self._note_epoch({"train_loss": 0.0, **means}, spent + watch.seconds(), memory.bytes)
        self.tensorboard.add_scalar("Loss/Train", self.history[-1]["train_loss"], epoch)

    def use_graphs(self, batches: Any) -> None:
        """Take the steps as CUDA graphs if ``cuda_graphs`` is auto and the model allows it."""
        self.graphs = None
        if not self.settings.cuda_graphs or self.device.type != "cuda":
            return
        reason = why_no_graphs(self, batches)
        if reason is None:
            self.graphs = StepGraphs(self.device)
        logger.info("cuda_graphs: %s", "steps are replayed" if reason is None else f"not used, {reason}")

    def train_step(self, batch: Any, scaler: torch.amp.GradScaler) -> None:
        """Take one step of the optimizer."""
        if self.average is not None:
            self.average.count()
        if self.graphs is None or not isinstance(batch, PackedBatch):
            self._step(batch if self.device.type == "cpu" else moved(batch, self.device), scaler, self._note_losses)
            return
        self._note_losses(self.graphs.run(batch, lambda made: self._step(made, scaler)))

    def _step(
        self, batch: Any, scaler: torch.amp.GradScaler, note: Callable[[dict[str, Tensor]], None] | None = None
    ) -> dict[str, Tensor]:
        """Compute losses and gradients, and update the weights; call ``note`` with the losses in between."""
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, self._half, enabled=bool(self.settings.enable_amp)):
            loss = self.loss_of(batch)
        losses = {"train_loss": loss.detach(), **getattr(self.model, "loss_terms", {})}
        if note is not None:
            note(losses)
        scaler.scale(loss).backward(self._one)
        if self.settings.clip_grad_norm:
            scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), **self.settings.clip_grad_norm)
        scaler.step(self.optimizer)
        scaler.update()
        if self.average is not None:
            self.average.add()
        return losses

    def _note_losses(self, losses: dict[str, Tensor]) -> None:
        """Keep the losses of a step until they are read."""
        self._unread.append(dict(losses))
        if len(self._unread) >= self._steps_between_reads:
            self._read_losses()

    def _read_losses(self) -> None:
        """Sum the losses of the last steps, waiting for the GPU once; DivergedError for one that is not finite."""
        losses = [(step, name, loss) for step, terms in enumerate(self._unread) for name, loss in terms.items()]
        if not losses:
            return
        values = torch.stack([torch.as_tensor(loss, device=self.device).double() for *_, loss in losses]).tolist()
        first, self._unread = self._n_read + 1, []
        for (step, name, _), value in zip(losses, values, strict=True):
            if name == "train_loss":
                self.require_finite(value, first + step)
            self.under_way.sums[name] = self.under_way.sums.get(name, 0.0) + value
        self._n_read = first + losses[-1][0]

    def require_finite(self, loss: float, step: int) -> None:
        """Raise DivergedError for a loss that is NaN or infinite; ``step`` counts from 1."""
        if not math.isfinite(loss):  # a batch enters few files
            super().require_finite(loss, step)

    def _state(self) -> dict[str, Any]:
        state = super()._state()
        if self.under_way.step:
            state["under_way"] = vars(self.under_way)
            for random in state["random"]:
                random["loader"] = self._order
        return state

    def _restore(self, state: Mapping[str, Any], batches: Any) -> None:
        super()._restore(state, batches)
        self.under_way = UnderWay(**state.get("under_way", {}))
