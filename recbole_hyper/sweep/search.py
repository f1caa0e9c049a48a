"""Which settings are tried: the grid, random draws, or what optuna proposes."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from recbole_hyper.config import ConfigError
from recbole_hyper.sweep.space import Domain, Settings, Space
from recbole_hyper.sweep.trial import Trial

# a random search of a finite space ends after so many draws in a row that repeat earlier ones
PATIENCE = 200


def list_trials(space: Space, search: str, num_samples: int | None, seed: int, base: Mapping[str, Any]) -> list[Trial]:
    """List the trials of a grid or random search; equal arguments give equal lists.

    The ``search`` "grid" tries every combination of grids, ``num_samples`` times (default 1) with other draws of the
    remaining keys; "random" draws ``num_samples`` settings (default 10) without repeating one. Conditions may refer to
    ``base``. ConfigError for fewer than one sample.
    """
    if num_samples is not None and num_samples < 1:
        raise ConfigError(f"num_samples={num_samples}: at least 1 is needed")
    generator = np.random.default_rng(seed)
    by_key: dict[str, Settings] = {}
    if search == "grid":
        for _ in range((num_samples or 1) if any(domain.is_drawn for domain in space.all_domains) else 1):
            for settings in space.grid(base, generator):
                by_key.setdefault(_key(settings), settings)
    else:
        stale = 0
        while len(by_key) < (num_samples or 10) and stale < PATIENCE:
            settings = space.settings(lambda _, domain: domain.draw(generator), base)
            stale = stale + 1 if _key(settings) in by_key else 0
            by_key.setdefault(_key(settings), settings)
    return [Trial(number, settings) for number, settings in enumerate(by_key.values())]


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


class Listed:
    """A fixed list of trials."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._left = iter(trials)

    def ask(self) -> Trial | None:
        """Return the next trial to run, None when there is none."""
        return next(self._left, None)

    def tell(self, trial: Trial, score: float | None) -> None:
        """Ignore the validation score of a trial: the list does not depend on it."""


class Optuna:
    """``num_samples`` settings that optuna's tree-structured Parzen estimator proposes; grids are choices here.

    A resume passes the trials of ``before``: the ended ones teach the estimator, the unfinished ones come first.
    Conditions may refer to ``base``.
    """

    def __init__(
        self,
        space: Space,
        num_samples: int,
        seed: int,
        base: Mapping[str, Any],
        *,
        bigger: bool,
        ended: list[Trial],
        unfinished: list[Trial],
    ) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError("--search=optuna needs optuna: pip install 'recbole-hyper[optuna]'") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._failed, self.space, self.base = optuna.trial.TrialState.FAIL, space, base
        # a resumed search does not repeat the draws of before
        sampler = optuna.samplers.TPESampler(seed=seed + len(ended))
        self.study = optuna.create_study(direction="maximize" if bigger else "minimize", sampler=sampler)
        self._running: dict[int, Any] = {}
        self._unfinished = list(unfinished)
        # another trial takes the number of one without a record
        taken = {trial.number for trial in (*ended, *unfinished)}
        self._numbers = iter([number for number in range(num_samples) if number not in taken])
        for trial in ended:
            if trial.score is not None:
                self._start(trial)
                self.tell(trial, trial.score)

    def ask(self) -> Trial | None:
        """Return an unfinished trial, else one that optuna proposes, None when all have been proposed."""
        if self._unfinished:
            trial = self._unfinished.pop(0)
            self._start(trial)
            return trial
        number = next(self._numbers, None)
        return None if number is None else Trial(number, self._propose(number))

    def tell(self, trial: Trial, score: float | None) -> None:
        """Pass a score on to optuna, which learns nothing from a failed trial."""
        self.study.tell(self._running.pop(trial.number), score, state=self._failed if score is None else None)

    def _start(self, trial: Trial) -> None:
        """Let optuna propose the settings of ``trial``."""
        parameters: dict[str, Any] = {}

        def note(key: str, domain: Domain) -> Any:
            value = trial.settings[key]
            parameters[self._name(key, domain)] = domain.values.index(value) if domain.is_finite else value
            return value

        self.space.settings(note, self.base)
        self.study.enqueue_trial(parameters)
        self._propose(trial.number)

    def _propose(self, number: int) -> Settings:
        proposed = self._running[number] = self.study.ask()

        def suggest(key: str, domain: Domain) -> Any:
            name = self._name(key, domain)
            if domain.is_finite:  # by index: optuna's categories must be plain scalars
                return domain.values[proposed.suggest_categorical(name, range(len(domain.values)))]
            (low, high), lattice = domain.ends, domain.kind == "quniform"
            step = domain.values[2] if lattice else None
            value = proposed.suggest_float(name, low, high, step=step, log=domain.kind == "loguniform")
            return domain.lattice(round((value - domain.values[0]) / domain.values[2])) if lattice else value

        return self.space.settings(suggest, self.base)

    def _name(self, key: str, domain: Domain) -> str:
        """Return optuna's name of a domain; alternatives of one key have different names."""
        alternatives = self.space.domains[key]
        return key if len(alternatives) == 1 else f"{key}#{alternatives.index(domain)}"


Search = Listed | Optuna
