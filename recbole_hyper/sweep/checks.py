"""Checks of the keys of a space and of its trials before the first one, so that a bad key ends the sweep early."""

import contextlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact
from recbole_hyper.config.parts import PARTS, part_keys
from recbole_hyper.data.tables.download import with_data
from recbole_hyper.errors import near_hint
from recbole_hyper.options import SCORE
from recbole_hyper.settings import deciding, declared
from recbole_hyper.sweep.space import Settings, Space
from recbole_hyper.sweep.trial import Plan, quiet

logger = logging.getLogger("recbole_hyper")

# binding a configuration takes up to a tenth of a second: of more trials only the first are bound
MOST_BOUND = 50


def bind_base(
    model: str, dataset: str, fixed: Mapping[str, Any], space: Space, file_of_key: Mapping[str, str] | None = None
) -> Config:
    """Return the configuration of the fixed keys alone, and check the keys of the space.

    ``file_of_key`` names the file of each key that comes from one.
    """
    try:
        with quiet():
            base = with_data(lambda: Config(model, dataset, config_dict=Exact(fixed), keys_of_files=file_of_key))
    except ConfigError as error:
        lists = [key for key, value in space.constants.items() if isinstance(value, list)]
        hint = f"; to try each value of {', '.join(lists)}, write {{grid_search: [...]}}" if lists else ""
        raise ConfigError(f"{error}{hint}") from error
    if (base["num_workers"] or 1) > 1:
        raise ConfigError("a trial runs in one process: remove num_workers")
    known = base.resolved.known_keys() | set(declared())
    for key in PARTS.keys() & space.domains.keys():
        for name in space.domains[key].values:
            with contextlib.suppress(ConfigError):  # an unknown name fails when it is bound
                known |= part_keys(key, str(name))
    set_here = {"output_dir", "resume", "epochs_done", "model", "dataset"}
    for key in space.domains:
        if key in fixed:
            raise ConfigError(f"{key} is in the space and fixed to {fixed[key]!r}; leave one of them out")
        if key in set_here or key not in known:
            hint = "; the sweep sets it" if key in set_here else near_hint(key, known)
            raise ConfigError(f"the space names {key!r}, which is not a key of a trial{hint}")
        if key in deciding(SCORE):
            raise ConfigError(f"the space varies {key}, so the scores of trials cannot be compared; give it one value")
    return base


def readable(plan: Plan, space: Space) -> Space:
    """Return the space of what the model reads, in which each trial has only the keys that its parts read."""
    parts = {key: space.domains[key].ends for key in PARTS if key in space.domains}
    unread: dict[tuple[Any, ...], frozenset[str]] = {}
    for values in itertools.product(*parts.values()):
        chosen = dict(zip(parts, values, strict=True))
        ignored: set[str] = set()
        # parts that do not fit together fail when they are bound
        with contextlib.suppress(ValueError):
            config = plan.config(chosen)
            known = config.resolved.known_keys()
            ignored = {key for key in space.domains if key not in known or config.ignores(key)}
        unread[tuple(chosen.get(key) for key in PARTS)] = frozenset(ignored)
    left = space.without(unread)
    if never := [key for key in space.domains if key not in left.domains]:
        if not left.domains:
            raise ConfigError(
                f"the space varies nothing that {plan.model} reads: {', '.join(never)}; 'recbole-hyper keys "
                f"{plan.model}' lists its keys"
            )
        print(f"{plan.model} does not read {', '.join(never)}: left out of the space")
    return left


def bind_trials(plan: Plan, trials: Sequence[Settings]) -> list[str]:
    """Bind the configurations of ``trials``, and return warnings about those that cannot run, which will fail.

    Fixed keys that none of them reads get a warning too. ConfigError if none can run.
    """
    unread, bad = set(plan.fixed), list[tuple[Settings, ValueError]]()
    for settings in trials[:MOST_BOUND]:
        try:
            unread.intersection_update(plan.config(settings).resolved.unread())
        except ValueError as error:
            bad.append((settings, error))
    warnings = [f"no trial reads {key}: it has no effect" for key in plan.fixed if key in unread]
    if bad:
        settings, why = bad[0]
        text = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        warnings.append(f"{len(bad)} of {len(trials[:MOST_BOUND])} settings cannot run, such as {text}: {why}")
        if len(bad) == len(trials[:MOST_BOUND]):
            raise ConfigError(f"the space: {warnings[-1]}") from why
    return warnings
