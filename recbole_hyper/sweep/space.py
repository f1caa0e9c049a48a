"""Search spaces: a YAML file that maps configuration keys to the search spaces of Ray Tune, and what it contains.

A search space names a function of ``ray.tune`` and its arguments; any other value is the same in every trial::

    train_batch_size: {grid_search: [64, 128]}     # tries every value
    hidden_dropout_prob: {choice: [0.2, 0.4]}      # draws one value
    learning_rate: {loguniform: [1e-5, 1e-2]}      # draws with a uniform logarithm
    n_layers: {randint: [1, 4]}                    # draws 1, 2 or 3
    epochs: 100
    small:                                         # with --budget=small, this space replaces the one above
      learning_rate: {grid_search: [0.001, 0.01]}

RecBole's hyper files (``key choice [...]``, ``uniform``, ``quniform``, ``loguniform``) are read too.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.config.binding import parse_value
from recbole_hyper.config.parts import PARTS
from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.values import is_number
from recbole_hyper.yaml_files import properties_file, read_yaml

Settings = dict[str, Any]

BUDGETS = ("full", "small")
FINITE = ("grid_search", "choice")
RANGES = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "qlograndint")
KINDS = (*FINITE, *RANGES)


@dataclass(frozen=True)
class Domain:
    """A search space of Ray Tune: the function that makes it, and its values or its bounds and step."""

    kind: str
    values: tuple[Any, ...]

    @property
    def is_grid(self) -> bool:
        """Whether a grid search tries every value instead of drawing one."""
        return self.kind == "grid_search"

    @property
    def of_ray(self) -> Any:
        """Ray's object; a grid is a choice, as other searches draw from it."""
        from ray import tune

        return tune.choice(list(self.values)) if self.kind in FINITE else getattr(tune, self.kind)(*self.values)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The lowest and the highest value of a range, or every value."""
        if self.kind in FINITE:
            return self.values
        # Ray's ranges of whole numbers end before the upper bound, except with a step
        return self.values[0], self.values[1] - (self.kind in ("randint", "lograndint"))

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw one value."""
        return self.of_ray.sample(random_state=generator)


@dataclass(frozen=True)
class Space:
    """A search space: what varies, the keys with one value, and the mapping that it was read from.

    ``unread`` has the keys that trials do not read, by the trials' parts.
    """

    domains: Mapping[str, Domain]
    constants: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    unread: Mapping[tuple[Any, ...], frozenset[str]] = field(default_factory=dict)

    def kept(self, settings: Settings) -> Settings:
        """Return ``settings`` without the keys that the parts of such a trial do not read."""
        left_out = self.unread.get(tuple(settings.get(key) for key in PARTS), frozenset())
        return {key: value for key, value in settings.items() if key not in left_out}

    def without(self, unread: Mapping[tuple[Any, ...], frozenset[str]]) -> Space:
        """Return the space of what some trials read, in which a trial has only the keys that it reads."""
        never = frozenset.intersection(*unread.values())
        domains = {key: domain for key, domain in self.domains.items() if key not in never}
        return replace(self, domains=domains, unread=unread)

    def draw(self, generator: np.random.Generator) -> Settings:
        """Return a setting with a new draw of every key."""
        return self.kept({key: domain.draw(generator) for key, domain in self.domains.items()})

    def grid(self, generator: np.random.Generator) -> Iterator[Settings]:
        """Yield every combination of the grids, the last key fastest, with new draws of the other keys for each."""
        grids = {key: domain.values for key, domain in self.domains.items() if domain.is_grid}
        for values in itertools.product(*grids.values()):
            chosen = dict(zip(grids, values, strict=True))
            drawn = {key: domain.draw(generator) for key, domain in self.domains.items() if key not in grids}
            yield self.kept({key: {**chosen, **drawn}[key] for key in self.domains})


def read_space(space: str | Path | Mapping[str, Any], budget: str = "full") -> Space:
    """Read a space from YAML, or from a RecBole hyper file (any suffix but .yaml and .yml).

    Args:
        space: path of a file, name of a file in properties/sweep, or the content of such a file.
        budget: "full", or "small" for the space below the key ``small``.

    Raises:
        ConfigError: there is no such file or budget, or the space cannot be understood.
    """
    if isinstance(space, Mapping):
        return parse_space(space, budget=budget)
    file = properties_file(space, "sweep", "search space")
    content = read_yaml(file) if file.suffix in (".yaml", ".yml") else _read_recbole(file)
    return parse_space(content, str(space), budget)


def parse_space(content: Mapping[str, Any], name: str = "the space", budget: str = "full") -> Space:
    """Return the space that the content of a space file describes; ``name`` is for errors. See :func:`read_space`."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{name} must contain 'key: search space' lines, but is a {type(content).__name__}")
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    lines = {str(key): value for key, value in content.items() if key != "small"}
    if budget == "small":
        lines = content.get("small") or {}
        if not (isinstance(lines, dict) and lines):
            raise ConfigError(f"{name} has no small space; add one below the key small, or leave out --budget=small")
    if not lines:
        raise ConfigError(f"{name} is empty: add a key, such as learning_rate: {{grid_search: [0.001, 0.01]}}")
    domains = {key: _domain(value, f"{name}: {key}") for key, value in lines.items()}
    varied = {key: domain for key, domain in domains.items() if domain is not None}
    return Space(varied, {key: value for key, value in lines.items() if key not in varied}, lines)


def _domain(value: Any, where: str) -> Domain | None:
    """Return a search space, None for a value that is the same in every trial."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, values),) = value.items()
    if kind not in KINDS:
        if hint := did_you_mean(kind, KINDS, n=1, cutoff=0.75):
            raise ConfigError(f"{where}: {kind!r} is not a function of Ray Tune{hint}")
        return None
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{where}: {kind} needs a list, got {values!r}")
    domain = Domain(kind, tuple(values))
    if kind not in FINITE:
        if not all(map(is_number, values)) or values[0] >= values[1]:
            raise ConfigError(f"{where}: {kind} needs numbers, the lower bound first; got {values!r}")
        try:
            _ = domain.of_ray
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError(f"{where}: {kind}: {values!r}: {error}") from error
    return domain


def _read_recbole(file: Path) -> dict[str, Any]:
    """Read ``key kind values`` lines; a choice becomes a grid, and the bounds of a loguniform are logarithms."""
    content: dict[str, Any] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split(None, 2)
        if not words:
            continue
        where = f"{file}, line {number}"
        if len(words) < 3 or words[1] not in ("choice", "uniform", "quniform", "loguniform"):
            raise ConfigError(f"{where}: 'key choice|uniform|quniform|loguniform values' is expected, got {line!r}")
        key, kind, text = words
        try:
            values = list(ast.literal_eval(text if kind == "choice" else f"[{text.strip().strip('[]')}]"))
            if kind == "choice":
                kind, values = "grid_search", [parse_value(value) for value in values]
            elif kind == "loguniform":
                values = [math.exp(value) for value in values]
            elif kind == "quniform" and all(isinstance(value, int) for value in values):
                # Ray's qrandint with a step of 1 leaves the upper bound out
                low, high, step = values
                kind, values = ("randint", [low, high + 1]) if step == 1 else ("qrandint", values)
        except (SyntaxError, TypeError, ValueError) as error:
            raise ConfigError(f"{where}: {text!r} cannot be read as values of {kind}: {error}") from error
        content[key] = {kind: values}
    return content
