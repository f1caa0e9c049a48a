"""Which settings are tried: the grid, random draws, or what optuna proposes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_hyper.config import ConfigError
from recbole_hyper.files import digest
from recbole_hyper.sweep.space import Domain, Settings, Space

# a random search of a finite space ends after so many draws in a row that repeat earlier ones
PATIENCE = 200


@dataclass(frozen=True)
class Trial:
    """One setting to be tried: its number in the sweep, from 0, and the values of the keys of the space."""

    number: int
    settings: Settings

    @property
    def name(self) -> str:
        """Name of the trial's folder: its number and a digest of its settings."""
        return f"{self.number:04d}-{digest(self.settings)}"


class Listed:
    """A fixed list of trials."""

    def __init__(self, trials: list[Trial]) -> None:
        self._left = list(reversed(trials))

    def ask(self) -> Trial | None:
        """Return the next trial to run, None when there is none."""
        return self._left.pop() if self._left else None

    def tell(self, trial: Trial, score: float | None) -> None:
        """Ignore the validation score of a trial: the list does not depend on it."""


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
        for _ in range((num_samples or 1) if space.draws else 1):
            for settings in space.grid(base, generator):
                by_key.setdefault(_key(settings), settings)
    else:
        stale = 0
        while len(by_key) < (num_samples or 10) and stale < PATIENCE:
            settings = space.sample(base, generator)
            stale = stale + 1 if _key(settings) in by_key else 0
            by_key.setdefault(_key(settings), settings)
    return [Trial(number, settings) for number, settings in enumerate(by_key.values())]


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


class Optuna:
    """``num_samples`` settings that optuna's tree-structured Parzen estimator proposes; grids are choices here.

    A resume starts with the ``past`` trials and their scores (None where there is none). The trials that began and did
    not end, ``pending``, come first. Conditions may refer to ``base``.
    """

    def __init__(
        self,
        space: Space,
        num_samples: int,
        seed: int,
        base: Mapping[str, Any],
        *,
        bigger: bool,
        past: list[tuple[Trial, float | None]],
        pending: list[Trial],
    ) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError("--search=optuna needs optuna: pip install 'recbole-hyper[optuna]'") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.space, self.base = optuna, space, base
        # a resumed search does not repeat the draws of before
        sampler = optuna.samplers.TPESampler(seed=seed + len(past))
        self.study = optuna.create_study(direction="maximize" if bigger else "minimize", sampler=sampler)
        self._running: dict[int, Any] = {}
        self._pending = list(pending)
        # another trial takes the number of one without a record
        taken = {trial.number for trial, _ in past} | {trial.number for trial in pending}
        self._numbers = iter([number for number in range(num_samples) if number not in taken])
        for trial, score in past:
            self._add(trial, score)

    def ask(self) -> Trial | None:
        """Return an unfinished trial, else one that optuna proposes, None when all have been proposed."""
        if self._pending:
            return self._pending.pop(0)
        number = next(self._numbers, None)
        if number is None:
            return None
        proposed = self.study.ask()
        trial = Trial(number, self.space.settings(lambda key, domain: self._suggest(proposed, key, domain), self.base))
        self._running[trial.number] = proposed
        return trial

    def tell(self, trial: Trial, score: float | None) -> None:
        """Pass a score on to optuna, which learns nothing from a failed trial."""
        proposed = self._running.pop(trial.number, None)
        if proposed is None:
            self._add(trial, score)
        elif score is None:
            self.study.tell(proposed, state=self._optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(proposed, score)

    def _add(self, trial: Trial, score: float | None) -> None:
        if score is None:
            return
        distributions, parameters = {}, {}

        def replay(key: str, domain: Domain) -> Any:
            value = trial.settings[key]
            name, distribution = self._distribution(key, domain)
            distributions[name] = distribution
            parameters[name] = domain.values.index(value) if domain.is_finite else value
            return value

        self.space.settings(replay, self.base)
        self.study.add_trial(
            self._optuna.trial.create_trial(params=parameters, distributions=distributions, value=score)
        )

    def _suggest(self, proposed: Any, key: str, domain: Domain) -> Any:
        name, one = self._distribution(key, domain)
        if domain.is_finite:
            return domain.values[proposed.suggest_categorical(name, one.choices)]
        value = proposed.suggest_float(name, one.low, one.high, step=one.step, log=one.log)
        if domain.kind == "quniform":
            return domain.lattice(round((value - domain.values[0]) / domain.values[2]))
        return value

    def _distribution(self, key: str, domain: Domain) -> tuple[str, Any]:
        """Return optuna's name and distribution; alternatives of one key have different names."""
        kinds, alternatives = self._optuna.distributions, self.space.domains[key]
        name = key if len(alternatives) == 1 else f"{key}#{alternatives.index(domain)}"
        if domain.is_finite:
            # by index: optuna's categories must be plain scalars
            return name, kinds.CategoricalDistribution(tuple(range(len(domain.values))))
        low, high = domain.ends
        step = domain.values[2] if domain.kind == "quniform" else None
        return name, kinds.FloatDistribution(float(low), float(high), log=domain.kind == "loguniform", step=step)


Proposals = Listed | Optuna
