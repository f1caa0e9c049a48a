"""RecBole's trainer for a model of this package: its interface and its file, this package's training and ranking."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recbole.trainer.trainer as host
import torch

from recbole_hyper.bridge.data import CaseData, TrainingData
from recbole_hyper.bridge.patches.old_checkpoints import readable
from recbole_hyper.errors import ConfigError
from recbole_hyper.training.checkpoint import fitting
from recbole_hyper.training.riemannian import restore_training_state
from recbole_hyper.training.trainer import RunTrainer


@functools.cache
def bridge_trainer(base: type) -> type:
    """Return ``base``, a trainer of RecBole, with the behaviour of :class:`HostedTrainer`."""
    return type(f"Hosted{base.__name__}", (HostedTrainer, base), {})


class HostedTrainer(RunTrainer):
    """Mixin over a RecBole trainer: trains and ranks as a run does, and keeps RecBole's one file.

    ``saved_model_file`` in ``checkpoint_dir`` holds what RecBole writes: configuration, epoch, state of the model and
    of the optimizer, of the best epoch. ``load_data_and_model`` and ``resume_checkpoint`` read it. A run that goes on
    from it draws other random numbers than one that was not stopped; ``recbole_hyper.run`` continues exactly.
    """

    saved_model_file: str

    def __init__(self, config: Any, model: Any) -> None:
        super().__init__(config, model, Path(config["checkpoint_dir"]))
        self._saved = True

    def fit(  # type: ignore[override]
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Callable[[int, float], None] | None = None,
    ) -> Any:
        self._saved, self.on_validation = saved, callback_fn
        batches = train_data.batches(self.model) if isinstance(train_data, TrainingData) else train_data
        return super().fit(batches, _cases(valid_data), show_progress=show_progress, verbose=verbose, saved=saved)

    def evaluate(
        self, eval_data: Any, load_best_model: bool = True, model_file: Any = None, show_progress: bool = False
    ) -> Any:
        """Rank the cases of ``eval_data`` with the model as it is, or as ``saved_model_file`` or ``model_file`` has it.

        Returns RecBole's metrics by name, None where there is no case. Raises as :meth:`resume_checkpoint`.
        """
        if not eval_data:
            return None
        if load_best_model:
            self._load(model_file or self.saved_model_file)
        return super().evaluate(_cases(eval_data), load_best_model=False, show_progress=show_progress)

    def _load(self, file: str) -> dict[str, Any]:
        with readable(file) as path:
            content = torch.load(path, map_location=self.device, weights_only=True)
        with fitting(Path(file)):
            self.model.load_state_dict(content["state_dict"])
            self.model.load_other_parameter(content.get("other_parameter"))
        self.logger.info(f"Loading model structure and parameters from {file}")  # type: ignore[attr-defined]
        return content

    def resume_checkpoint(self, resume_file: Any) -> None:
        """Go on from a file that such a trainer wrote, with the epoch behind it.

        CheckpointError for a file that does not fit, torch's own errors for one that it refuses to read; ConfigError
        for training with ``ema_decay``, as the file holds averages and no raw weights.
        """
        if self.average is not None:
            raise ConfigError(
                "ema_decay: RecBole's file holds the averaged weights alone, from which training cannot go on; "
                "recbole_hyper.run keeps the raw ones too and resumes exactly"
            )
        file = self.saved_model_file = str(resume_file)
        content = self._load(file)
        with fitting(Path(file)):
            restore_training_state(self.model, self.optimizer, {**content, "model": content["state_dict"]})
            self.start_epoch = content["epoch"] + 1
            self.cur_step, self.best_valid_score = content["cur_step"], content["best_valid_score"]
        self.best_epoch = content["epoch"]

    # --- what a run keeps in its folder ------------------------------------------------------------------------------
    def _save_checkpoint(self, epoch: int, verbose: bool = True, **kwargs: Any) -> None:
        self.best_epoch = epoch
        with self._averaged():
            if self._saved:
                host.Trainer._save_checkpoint(self, epoch, verbose=verbose, **kwargs)

    def _put_aside_best(self, state: dict[str, Any]) -> None:
        """Nothing: a run that goes on from RecBole's file has its best weights alone."""

    def _save_training_state(self, epoch: int) -> None:
        """Nothing beside RecBole's file."""

    def _write_history(self) -> None:
        """Nothing: RecBole's log has the losses and metrics of the epochs."""

    def _has_state(self) -> bool:
        return Path(self.saved_model_file).is_file()


def _cases(data: Any) -> Any:
    """Return what a run's trainer ranks; a loader of RecBole is left to RecBole's evaluation."""
    return data.evaluation if isinstance(data, CaseData) else data
