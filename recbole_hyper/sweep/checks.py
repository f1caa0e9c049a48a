"""Checks of every key and value of a space before the first trial, so that a bad one ends the sweep early."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact
from recbole_hyper.config.parts import PARTS, part_keys
from recbole_hyper.data.download import with_data
from recbole_hyper.errors import near_hint
from recbole_hyper.options import SCORE
from recbole_hyper.settings import deciding, declared
from recbole_hyper.sweep.space import Domain, Settings, Space
from recbole_hyper.sweep.trial import Plan, quiet

logger = logging.getLogger("recbole_hyper")

# binding a configuration takes up to a tenth of a second: with more trials, only each value is bound
ALL_TRIALS = 50
# random draws of the other keys, in search of a setting in which a conditional value applies
DRAWS = 50
# settings that are bound with a value before the value is rejected
TRIES = 5


def bind_base(
    model: str, dataset: str, fixed: Mapping[str, Any], space: Space, file_of_key: Mapping[str, str] | None = None
) -> Config:
    """Return the configuration of the fixed keys alone, and check the keys of the space.

    ``file_of_key`` names the file of each key that comes from one.
    """
    with quiet():
        base = with_data(lambda: Config(model, dataset, config_dict=Exact(fixed), keys_of_files=file_of_key))
    for text in base.remarks:
        logger.warning("%s", text)
    if (base["num_workers"] or 1) > 1:
        raise ConfigError("a trial runs in one process: remove num_workers")
    # a condition may name the model, the data set and any key of the package; a domain only keys of a trial
    known = base.resolved.known_keys() | (set(declared()) - set(space.domains))
    for key in PARTS.keys() & space.domains.keys():
        for name in (name for domain in space.domains[key] for name in domain.values):
            with contextlib.suppress(ConfigError):  # an unknown name fails when it is bound
                known |= part_keys(key, str(name))
    set_here = {"output_dir", "resume", "epochs_done"} | ({"model", "dataset"} & set(space.domains))
    for key in space.keys:
        if key in fixed and key in space.domains:
            raise ConfigError(f"{key} is in the space and fixed to {fixed[key]!r}; leave one of them out")
        if key in set_here or key not in known:
            hint = "; the sweep sets it" if key in known else near_hint(key, known)
            raise ConfigError(f"the space names {key!r}, which is not a key of a trial{hint}")
        if key in deciding(SCORE) and key in space.domains:
            raise ConfigError(f"the space varies {key}, so the scores of trials cannot be compared; give it one value")
    return base


def bind_values(plan: Plan, space: Space, trials: Sequence[Settings], base: Mapping[str, Any]) -> list[str]:
    """Bind a configuration with each value and both ends of each range of a space, and all ``trials`` if they are few.

    Returns warnings about keys that some of these configurations do not read, and about trials that cannot run although
    each of their values can.

    Raises:
        ConfigError: no setting with some value can run, or no trial can.
    """
    errors: dict[str, ValueError | None] = {}
    bound, unread = Counter[str](), Counter[str]()

    def why_not(settings: Settings) -> ValueError | None:
        """Return why ``settings`` cannot run; they are bound once, and the keys that they leave unread are counted."""
        name = repr(settings)
        if name not in errors:
            try:
                config = plan.config(settings)
                bound.update([*plan.fixed, *settings])
                unread.update(key for key in settings if config.ignores(key))
                unread.update(plan.fixed.keys() & config.resolved.unread().keys())
                errors[name] = None
            except ValueError as error:
                errors[name] = error
        return errors[name]

    for key, alternatives in space.domains.items():
        for domain, value in ((one, value) for one in alternatives for value in one.ends):
            why = None
            for settings in probes(space, base, key, domain, value):
                if (why := why_not(settings)) is None:
                    break
            if why is not None:
                raise ConfigError(f"the space: {key}={value!r} cannot run: {why}") from why
    checked = trials if len(trials) <= ALL_TRIALS else ()
    bad = [(settings, why) for settings in checked if (why := why_not(settings)) is not None]
    never = [key for key, count in unread.items() if count == bound[key]]
    seldom = [key for key in unread if key not in never and key not in plan.fixed]
    warnings = [f"no trial reads {key}: it has no effect" for key in never]
    warnings += [f"some trials do not read {key}, and may be equal; restrict it with 'when'" for key in seldom]
    if bad:
        settings, why = bad[0]
        text = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        warnings.append(f"{len(bad)} of {len(trials)} settings cannot run, such as {text}: {why}")
        if len(bad) == len(trials):
            raise ConfigError(f"the space: {warnings[-1]}") from why
    return warnings


def probes(space: Space, base: Mapping[str, Any], key: str, wanted: Domain, value: Any) -> Iterator[Settings]:
    """Yield at most ``TRIES`` settings in which ``key`` has ``value`` of the domain ``wanted``.

    The other keys have their first values, then random ones. Nothing is yielded if no draw meets the condition.
    """
    generator = np.random.default_rng(0)
    yielded: list[Settings] = []
    for attempt in range(1 + DRAWS):

        def choose(_: str, domain: Domain, first: bool = attempt == 0) -> Any:
            if domain is wanted:
                return value
            return domain.ends[0 if first else int(generator.integers(len(domain.ends)))]

        settings = space.settings(choose, base)
        if key in settings and settings[key] == value and settings not in yielded:
            yielded.append(settings)
            yield settings
        if len(yielded) == TRIES:
            return
