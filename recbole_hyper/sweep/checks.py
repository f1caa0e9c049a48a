"""What is checked before the first trial: every key and value of a space, so that a bad one ends the sweep early."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.parts import PARTS, part_keys
from recbole_hyper.data.download import with_data
from recbole_hyper.errors import near_hint
from recbole_hyper.options import SCORE
from recbole_hyper.settings import deciding, declared
from recbole_hyper.sweep.space import Domain, Settings, Space
from recbole_hyper.sweep.trial import Plan, quiet

logger = logging.getLogger("recbole_hyper")

# binding a configuration takes up to a tenth of a second: of more trials than these, only each value is bound
ALL_TRIALS = 50
# draws of the other keys that look for a setting in which a conditional value counts
DRAWS = 50
# settings that are bound with a value before it counts as one that cannot run
TRIES = 5


def bind_base(
    model: str, dataset: str, fixed: Mapping[str, Any], space: Space, of_files: Mapping[str, str] | None = None
) -> Config:
    """Bind the fixed keys alone, and check the keys of the space; ``of_files`` names the file of each key from one."""
    with quiet():
        base = with_data(lambda: Config(model, dataset, config_dict=dict(fixed), keys_of_files=of_files))
    for text in base.remarks:
        logger.warning("%s", text)
    if (base["num_workers"] or 1) > 1:
        raise ConfigError("num_workers: trials of a sweep are single processes; leave it out")
    # a condition may name the model, the data set and any key of the package; a domain only keys that a trial may have
    known = base.known_keys() | (set(declared()) - set(space.domains))
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
            raise ConfigError(f"the space names {key!r}, which is no key of a trial{hint}")
        if key in deciding(SCORE) and key in space.domains:
            raise ConfigError(f"the space varies {key}: scores of its trials could not be compared; give it one value")
    return base


def bind_values(plan: Plan, space: Space, trials: Sequence[Settings], base: Mapping[str, Any]) -> list[str]:
    """Bind the configuration of each value of a space, both ends of a range included, and of all ``trials`` if few.

    Return warnings: keys that some of these do not read, and trials that cannot run although each of their values can.
    ConfigError for a value with which no setting can run, or where no trial can.
    """
    errors: dict[str, ValueError | None] = {}
    given, unread = Counter[str](), Counter[str]()

    def why_not(settings: Settings) -> ValueError | None:
        """Bind ``settings`` once, count which of their keys are read, and return why they cannot run."""
        name = repr(settings)
        if name not in errors:
            try:
                config = plan.config(settings)
                given.update([*plan.fixed, *settings])
                unread.update(key for key in settings if config.ignores(key))
                unread.update(plan.fixed.keys() & config.unread_keys().keys())
                errors[name] = None
            except ValueError as error:
                errors[name] = error
        return errors[name]

    domains = ((key, domain) for key, alternatives in space.domains.items() for domain in alternatives)
    for key, domain, value in ((key, one, value) for key, one in domains for value in one.ends):
        why = None
        for settings in probes(space, base, key, domain, value):
            if (why := why_not(settings)) is None:
                break
        if why is not None:
            raise ConfigError(f"the space: {key}={value!r} cannot run: {why}") from why
    checked = trials if len(trials) <= ALL_TRIALS else ()
    bad = [(settings, why) for settings in checked if (why := why_not(settings)) is not None]
    never = [key for key, count in unread.items() if count == given[key]]
    seldom = [key for key in unread if key not in never and key not in plan.fixed]
    warnings = [f"no trial reads {key}: it has no effect" for key in never]
    warnings += [
        f"not every trial reads {key}, and those that do not may be equal; 'when' says where a key counts"
        for key in seldom
    ]
    if bad:
        settings, why = bad[0]
        text = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        warnings.append(f"{len(bad)} of {len(trials)} settings cannot run, such as {text}: {why}")
        if len(bad) == len(trials):
            raise ConfigError(f"the space: {warnings[-1]}") from why
    return warnings


def probes(space: Space, base: Mapping[str, Any], key: str, wanted: Domain, value: Any) -> Iterator[Settings]:
    """Yield at most ``TRIES`` settings in which ``key`` has ``value`` of the domain ``wanted``.

    The other keys have their first values first, then random ones. Nothing is yielded for a value whose condition is
    met in none of ``DRAWS`` draws.
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
