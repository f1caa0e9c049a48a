"""Which settings a sweep tries: a grid, random draws, or what optuna proposes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from recbole_hyper.config import ConfigError
from recbole_hyper.sweep.space import Domain, Settings, Space
from recbole_hyper.sweep.trial import UNFINISHED, Trial

# a random search of a finite space ends after this many draws in a row that repeat earlier ones
PATIENCE = 200


def list_trials(space: Space, search: str, num_samples: int | None, seed: int, base: Mapping[str, Any]) -> list[Trial]:
    """Return the trials of a grid or a random search; equal arguments give equal lists.

    A "grid" has every combination of the grids, ``num_samples`` times (default 1) with new draws of the other keys. Any
    other ``search`` draws ``num_samples`` different settings (default 10). Conditions may name keys of ``base``.

    Raises:
        ConfigError: ``num_samples`` is less than 1.
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


class Optuna:
    """The trials that optuna's tree-structured Parzen estimator proposes, ``num_samples`` in all; a grid is a choice.

    A resumed sweep passes its trials as ``earlier``: optuna learns from those that ended, and the unfinished ones come
    first. Conditions may name keys of ``base``.
    """

    def __init__(
        self,
        space: Space,
        num_samples: int,
        seed: int,
        base: Mapping[str, Any],
        *,
        bigger: bool,
        earlier: Iterable[Trial] = (),
    ) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError("--search=optuna needs optuna: pip install 'recbole-hyper[optuna]'") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._failed, self.space, self.base = optuna.trial.TrialState.FAIL, space, base
        earlier = list(earlier)
        ended = [trial for trial in earlier if trial.status != UNFINISHED]
        # a resumed search does not repeat its earlier draws
        sampler = optuna.samplers.TPESampler(seed=seed + len(ended))
        self.study = optuna.create_study(direction="maximize" if bigger else "minimize", sampler=sampler)
        self._running: dict[int, Any] = {}
        self._unfinished = [trial for trial in earlier if trial.status == UNFINISHED]
        # a number without a record is used again
        taken = {trial.number for trial in earlier}
        self._numbers = [number for number in range(num_samples) if number not in taken]
        for trial in ended:
            if trial.score is not None:
                self._start(trial)
                self.tell(trial)

    def __iter__(self) -> Iterator[Trial]:
        """Yield the unfinished trials, then the proposals; each is made when it is requested."""
        for trial in self._unfinished:
            self._start(trial)
            yield trial
        for number in self._numbers:
            yield Trial(number, self._propose(number))

    def tell(self, trial: Trial) -> None:
        """Pass the score of a trial on to optuna, which learns nothing from a failed one."""
        state = self._failed if trial.score is None else None
        self.study.tell(self._running.pop(trial.number), trial.score, state=state)

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
            if domain.is_finite:  # by index, as optuna's categories must be plain scalars
                return domain.values[proposed.suggest_categorical(name, range(len(domain.values)))]
            low, high = domain.ends
            if domain.kind != "quniform":
                return proposed.suggest_float(name, low, high, log=domain.kind == "loguniform")
            step = domain.values[2]
            return domain.lattice(round((proposed.suggest_float(name, low, high, step=step) - low) / step))

        return self.space.settings(suggest, self.base)

    def _name(self, key: str, domain: Domain) -> str:
        """Return optuna's name of a domain; each alternative of a key has its own."""
        alternatives = self.space.domains[key]
        return key if len(alternatives) == 1 else f"{key}#{alternatives.index(domain)}"
