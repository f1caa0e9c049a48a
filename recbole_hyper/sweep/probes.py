"""Every value of a space bound before the first trial, so that a bad later one ends the sweep before any long work."""

from __future__ import annotations

import logging
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


def bind_values(plan: Plan, space: Space, trials: Sequence[Settings], base: Mapping[str, Any]) -> str:
    """Bind the configuration of each value of a space, both ends of a range included, and of a few ``trials`` all.

    Return what to say of the trials that cannot run although each of their values can, "" for nothing; ConfigError
    for a value with which no setting can run, or no trial that can.
    """
    binder = _Binder(plan)
    binder.error(trials[0])
    for key, alternatives in space.domains.items():
        for domain in alternatives:
            for value in _values(domain):
                errors = []
                for settings in probes(space, base, key, domain, value):
                    errors.append(binder.error(settings))
                    if errors[-1] is None:
                        break
                if errors and errors[-1] is not None:
                    raise ConfigError(f"the space: {key}={value!r} cannot run: {errors[0]}") from errors[0]
    if len(trials) > ALL_TRIALS:
        return ""
    bad = [(settings, error) for settings in trials if (error := binder.error(settings)) is not None]
    if not bad:
        return ""
    settings, error = bad[0]
    text = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    text = f"{len(bad)} of {len(trials)} settings cannot run, such as {text}: {error}"
    if len(bad) == len(trials):
        raise ConfigError(f"the space: {text}") from error
    return text


class _Binder:
    """Binds settings, each once; keys without effect are logged for the first alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.errors: dict[str, ValueError | None] = {}

    def error(self, settings: Settings) -> ValueError | None:
        """Return why ``settings`` cannot run, None where they can."""
        name = repr(settings)
        if name in self.errors:
            return self.errors[name]
        before = logging.root.manager.disable
        logging.disable(max(before, logging.WARNING if self.errors else logging.NOTSET))
        try:
            self.plan.config(settings)
            self.errors[name] = None
        except ValueError as error:
            self.errors[name] = error
        finally:
            logging.disable(before)
        return self.errors[name]


def probes(space: Space, base: Mapping[str, Any], key: str, wanted: Domain, value: Any) -> Iterator[Settings]:
    """Yield at most ``TRIES`` settings in which ``key`` has ``value`` of the domain ``wanted``.

    The others have their first value at first and are drawn then. A value whose condition holds in none of ``DRAWS``
    draws is left out.
    """
    generator = np.random.default_rng(0)
    found: list[Settings] = []
    for attempt in range(1 + DRAWS):
        met: list[bool] = []

        def choose(name: str, domain: Domain, attempt: int = attempt, met: list[bool] = met) -> Any:
            if name == key and domain is wanted:
                met.append(True)
                return value
            values = _values(domain)
            return values[0 if attempt == 0 else int(generator.integers(len(values)))]

        settings = space.settings(choose, base)
        # a domain of the kind "value" is not asked for
        met += [True] if wanted.kind == "value" and key in settings and settings[key] == value else []
        if met and settings not in found:
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
