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
    """The trials that Ray's OptunaSearch proposes, ``num_samples`` in all; a grid is a choice.

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
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.base = space, base
        self._settings: Settings = {}
        earlier = list(earlier)
        ended = [trial for trial in earlier if trial.status != UNFINISHED]
        scored = [trial for trial in ended if trial.score is not None]
        self._unfinished = [trial for trial in earlier if trial.status == UNFINISHED]
        # a number without a record is used again
        taken = {trial.number for trial in earlier}
        self._numbers = [number for number in range(num_samples) if number not in taken]
        self.search = OptunaSearch(
            self._define,
            metric="score",
            mode="max" if bigger else "min",
            points_to_evaluate=[self._parameters(trial) for trial in (*scored, *self._unfinished)],
            # a resumed search does not repeat its earlier draws
            seed=seed + len(ended),
        )
        for trial in scored:
            self._propose(trial.number)
            self.tell(trial)

    def __iter__(self) -> Iterator[Trial]:
        """Yield the unfinished trials, then the proposals; each is made when it is requested."""
        for trial in self._unfinished:
            self._propose(trial.number)
            yield trial
        for number in self._numbers:
            yield Trial(number, self._propose(number))

    def tell(self, trial: Trial) -> None:
        """Pass the score of a trial on to optuna, which learns nothing from a failed one."""
        result = None if trial.score is None else {"score": trial.score}
        self.search.on_trial_complete(str(trial.number), result, error=result is None)

    def _propose(self, number: int) -> Settings:
        self.search.suggest(str(number))
        return self._settings

    def _define(self, proposed: Any) -> None:
        """Let ``proposed``, a trial of optuna, choose the settings."""

        def suggest(key: str, domain: Domain) -> Any:
            name = self._name(key, domain)
            if domain.is_finite:  # by index, as optuna's categories must be plain scalars
                return domain.values[proposed.suggest_categorical(name, range(len(domain.values)))]
            low, high = map(float, domain.ends)
            if domain.kind != "quniform":
                return proposed.suggest_float(name, low, high, log=domain.kind == "loguniform")
            value = proposed.suggest_float(name, low, high, step=domain.values[2])
            return domain.of_ray.cast(round(value) if isinstance(domain.ends[0], int) else round(value, 12))

        self._settings = self.space.settings(suggest, self.base)

    def _parameters(self, trial: Trial) -> dict[str, Any]:
        """Return the settings of a trial by optuna's names."""
        parameters: dict[str, Any] = {}

        def note(key: str, domain: Domain) -> Any:
            value = trial.settings[key]
            parameters[self._name(key, domain)] = domain.values.index(value) if domain.is_finite else value
            return value

        self.space.settings(note, self.base)
        return parameters

    def _name(self, key: str, domain: Domain) -> str:
        """Return optuna's name of a domain; each alternative of a key has its own."""
        alternatives = self.space.domains[key]
        return key if len(alternatives) == 1 else f"{key}#{alternatives.index(domain)}"
