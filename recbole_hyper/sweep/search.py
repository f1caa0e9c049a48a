"""Which settings a sweep tries: a grid, random draws, or what optuna proposes."""

from collections.abc import Iterable, Iterator

import numpy as np

from recbole_hyper.config import ConfigError
from recbole_hyper.files import digest
from recbole_hyper.sweep.space import Settings, Space
from recbole_hyper.sweep.trial import UNFINISHED, Trial

# a random search of a finite space ends after this many draws in a row that repeat earlier ones
PATIENCE = 200


def list_trials(space: Space, search: str, num_samples: int | None, seed: int) -> list[Trial]:
    """Return the trials of a grid or a random search; equal arguments give equal lists, and no setting is there twice.

    A "grid" has every combination of the grids, ``num_samples`` times (default 1) with new draws of the other keys. Any
    other ``search`` draws ``num_samples`` different settings (default 10).
    """
    generator = np.random.default_rng(seed)
    by_key: dict[str, Settings] = {}
    if search == "grid":
        for _ in range(num_samples or 1):
            by_key |= {digest(settings, 64): settings for settings in space.grid(generator)}
    else:
        stale = 0
        while len(by_key) < (num_samples or 10) and stale < PATIENCE:
            settings, before = space.draw(generator), len(by_key)
            by_key[digest(settings, 64)] = settings
            stale = stale + 1 if len(by_key) == before else 0
    return [Trial(number, settings) for number, settings in enumerate(by_key.values())]


class Optuna:
    """The trials that Ray's OptunaSearch proposes, ``num_samples`` in all; a grid is a choice.

    A resumed sweep passes its trials as ``earlier``: optuna learns from those that have a score, and the unfinished
    ones come first.
    """

    def __init__(self, space: Space, num_samples: int, seed: int, *, bigger: bool, earlier: Iterable[Trial]) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError("--search=optuna needs optuna: pip install 'recbole-hyper[optuna]'") from error
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        earlier = list(earlier)
        ended = [trial for trial in earlier if trial.status != UNFINISHED]
        self._unfinished = [trial for trial in earlier if trial.status == UNFINISHED]
        # a number without a record is used again
        taken = {trial.number for trial in earlier}
        self._numbers = [number for number in range(num_samples) if number not in taken]
        # optuna wants a value of every key, also of those that a trial did not read
        whole = {key: domain.sample(random_state=0) for key, domain in space.of_ray.items()}
        self.search = OptunaSearch(
            OptunaSearch.convert_search_space(space.of_ray),
            metric="score",
            mode="max" if bigger else "min",
            points_to_evaluate=[whole | trial.settings for trial in self._unfinished],
            # a resumed search does not repeat its earlier draws
            seed=seed + len(ended),
        )
        for trial in ended:
            if trial.score is not None:
                self.search.add_evaluated_point(whole | trial.settings, trial.score)

    def __iter__(self) -> Iterator[Trial]:
        """Yield the unfinished trials, then the proposals; each is made when it is requested."""
        for trial in self._unfinished:
            self.search.suggest(str(trial.number))
            yield trial
        for number in self._numbers:
            yield Trial(number, self.space.kept(dict(self.search.suggest(str(number)) or {})))

    def tell(self, trial: Trial) -> None:
        """Pass the score of a trial on to optuna, which learns nothing from a failed one."""
        result = None if trial.score is None else {"score": trial.score}
        self.search.on_trial_complete(str(trial.number), result, error=result is None)
