"""Checks of the keys of a space before the first trial, so that a bad key ends the sweep early."""

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import Exact
from recbole_hyper.config.parts import PARTS
from recbole_hyper.data.tables.download import with_data
from recbole_hyper.errors import near_hint
from recbole_hyper.options import SCORE
from recbole_hyper.settings import deciding
from recbole_hyper.sweep.space import Space
from recbole_hyper.sweep.trial import Plan, quiet

_SET_HERE = ("output_dir", "resume", "epochs_done", "model", "dataset")


def bind_base(
    model: str | None, dataset: str | None, fixed: Mapping[str, Any], space: Space, file_of_key: Mapping[str, str]
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
    for key in space.domains:
        if key in fixed:
            raise ConfigError(f"{key} is in the space and fixed to {fixed[key]!r}; leave one of them out")
        if key in _SET_HERE:
            raise ConfigError(f"the space names {key!r}, which is not a key of a trial; the sweep sets it")
        if key in deciding(SCORE):
            raise ConfigError(f"the space varies {key}, so the scores of trials cannot be compared; give it one value")
    return base


def readable(plan: Plan, space: Space) -> Space:
    """Return the space of what the model reads, in which each trial has only the keys that its parts read."""
    varied = {key: space.domains[key] for key in PARTS if key in space.domains}
    parts = {key: one if isinstance(one, list) else one.categories for key, one in varied.items()}
    unread: dict[tuple[Any, ...], frozenset[str]] = {}
    known = set[str]()
    for values in itertools.product(*parts.values()):
        chosen = dict(zip(parts, values, strict=True))
        ignored: set[str] = set()
        # parts that do not fit together fail when they are bound
        with contextlib.suppress(ValueError):
            config = plan.config(chosen)
            here = config.resolved.known_keys()
            ignored = {key for key in space.domains if key not in here or config.ignores(key)}
            known |= here
        unread[tuple(chosen.get(key) for key in PARTS)] = frozenset(ignored)
    for key in space.domains if known else ():
        if key not in known:
            raise ConfigError(f"the space names {key!r}, which is not a key of a trial{near_hint(key, known)}")
    never = frozenset.intersection(*unread.values())
    domains = {key: domain for key, domain in space.domains.items() if key not in never}
    if not domains:
        raise ConfigError(
            f"the space varies nothing that {plan.model} reads: {', '.join(space.domains)}; 'recbole-hyper keys "
            f"{plan.model}' lists its keys"
        )
    if never:
        print(f"{plan.model} does not read {', '.join(sorted(never))}: left out of the space")
    return replace(space, domains=domains, unread=unread)
