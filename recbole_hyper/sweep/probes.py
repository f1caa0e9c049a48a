"""Every value of a space bound before the first trial, so that a bad later one ends the sweep before any long work."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from recbole_hyper.config import ConfigError
from recbole_hyper.sweep.proposals import Settings
from recbole_hyper.sweep.space import Domain, Space
from recbole_hyper.sweep.trial import Plan

# a configuration takes up to a tenth of a second to bind: of more trials than these only each value is bound
ALL_TRIALS = 50
# draws of the other keys that look for a setting in which a conditional value counts
DRAWS = 50
# settings that are bound with a value before it counts as one that cannot run
TRIES = 5


def bind_values(plan: Plan, space: Space, trials: Sequence[Settings], base: Mapping[str, Any]) -> list[str]:
    """Bind the configuration of each value of a space, both ends of a range included, and of a few ``trials`` all.

    Return what to say of keys that some of these do not read, and of the trials that cannot run although each of their
    values can; ConfigError for a value with which no setting can run, or no trial that can.
    """
    found: dict[str, ValueError | None] = {}
    # by key: how many of the settings that have it do not read it
    given, vain = Counter[str](), Counter[str]()

    def error_of(settings: Settings) -> ValueError | None:
        """Return why ``settings`` cannot run, None where they can."""
        name = repr(settings)
        if name not in found:
            try:
                config = plan.config(settings)
                found[name] = None
                given.update([*plan.fixed, *settings])
                vain.update(key for key in settings if config.ignores(key))
                vain.update(plan.fixed.keys() & config.given_in_vain().keys())
            except ValueError as error:
                found[name] = error
        return found[name]

    for key, alternatives in space.domains.items():
        for domain in alternatives:
            for value in _values(domain):
                errors = []
                for settings in probes(space, base, key, domain, value):
                    errors.append(error_of(settings))
                    if errors[-1] is None:
                        break
                if errors and errors[-1] is not None:
                    raise ConfigError(f"the space: {key}={value!r} cannot run: {errors[0]}") from errors[0]
    bad = []
    if len(trials) <= ALL_TRIALS:
        bad = [(settings, error) for settings in trials if (error := error_of(settings)) is not None]
    said = [f"no trial reads {key}: it has no effect" for key, count in vain.items() if count == given[key]]
    said += [
        f"not every trial reads {key}, and those that do not may be equal; 'when' says where a key counts"
        for key, count in vain.items()
        if count < given[key] and key not in plan.fixed
    ]
    if bad:
        settings, error = bad[0]
        text = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        said.append(f"{len(bad)} of {len(trials)} settings cannot run, such as {text}: {error}")
        if len(bad) == len(trials):
            raise ConfigError(f"the space: {said[-1]}") from error
    return said


def probes(space: Space, base: Mapping[str, Any], key: str, wanted: Domain, value: Any) -> Iterator[Settings]:
    """Yield at most ``TRIES`` settings in which ``key`` has ``value`` of the domain ``wanted``.

    The others have their first value at first and are drawn then. A value whose condition holds in none of ``DRAWS``
    draws is left out.
    """
    generator = np.random.default_rng(0)
    found: list[Settings] = []
    for attempt in range(1 + DRAWS):

        def choose(_: str, domain: Domain, first: bool = attempt == 0) -> Any:
            if domain is wanted:
                return value
            values = _values(domain)
            return values[0 if first else int(generator.integers(len(values)))]

        settings = space.settings(choose, base)
        if key in settings and settings[key] == value and settings not in found:
            found.append(settings)
            yield settings
        if len(found) == TRIES:
            return


def _values(domain: Domain) -> tuple[Any, ...]:
    """Return every value of a finite domain, and both ends of a range."""
    if domain.is_finite:
        return domain.values
    if domain.kind == "quniform":
        return domain.lattice(0), domain.lattice(domain.lattice_size - 1)
    return float(domain.values[0]), float(domain.values[1])
