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
from dataclasses import dataclass, field
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
RANGES = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "qlograndint")
KINDS = ("grid_search", "choice", *RANGES)


@dataclass(frozen=True)
class Space:
    """A search space: what varies, the keys with one value, and the mapping that it was read from.

    ``domains`` has a list of values for a grid, else the object of Ray Tune. ``unread`` has the keys that trials do not
    read, by the trials' parts.
    """

    domains: Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    unread: Mapping[tuple[Any, ...], frozenset[str]] = field(default_factory=dict)

    @property
    def of_ray(self) -> dict[str, Any]:
        """The objects of Ray Tune; a grid is a choice, as searches draw from it."""
        from ray import tune

        return {key: tune.choice(one) if isinstance(one, list) else one for key, one in self.domains.items()}

    def kept(self, settings: Settings) -> Settings:
        """Return ``settings`` without the keys that the parts of such a trial do not read."""
        left_out = self.unread.get(tuple(settings.get(key) for key in PARTS), frozenset())
        return {key: value for key, value in settings.items() if key not in left_out}

    def draw(self, generator: np.random.Generator) -> Settings:
        """Return a setting with a new draw of every key."""
        return self.kept({key: domain.sample(random_state=generator) for key, domain in self.of_ray.items()})

    def grid(self, generator: np.random.Generator) -> Iterator[Settings]:
        """Yield every combination of the grids, the last key fastest, with new draws of the other keys for each."""
        grids = {key: domain for key, domain in self.domains.items() if isinstance(domain, list)}
        for values in itertools.product(*grids.values()):
            chosen = dict(zip(grids, values, strict=True))
            drawn = {k: one.sample(random_state=generator) for k, one in self.domains.items() if k not in grids}
            yield self.kept({key: {**chosen, **drawn}[key] for key in self.domains})


def read_space(space: str | Path | Mapping[str, Any], budget: str = "full") -> Space:
    """Read a space from YAML, or from a RecBole hyper file (any suffix but .yaml and .yml).

    Args:
        space: path of a file, name of a file in properties/sweep, or the content of such a file.
        budget: "full", or "small" for the space below the key ``small``.

    Raises:
        ConfigError: there is no such file or budget, or the space cannot be understood.
    """
    content, name = space, "the space"
    if not isinstance(content, Mapping):
        name, file = str(space), properties_file(content, "sweep", "search space")
        content = read_yaml(file) if file.suffix in (".yaml", ".yml") else _read_recbole(file)
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    lines = {str(key): value for key, value in content.items() if key != "small"}
    if budget == "small":
        lines = content.get("small") or {}
        if not (isinstance(lines, dict) and lines):
            raise ConfigError(f"{name} has no small space; add one below the key small, or leave out --budget=small")
    domains = {key: _domain(value, f"{name}: {key}") for key, value in lines.items()}
    varied = {key: domain for key, domain in domains.items() if domain is not None}
    return Space(varied, {key: value for key, value in lines.items() if key not in varied}, lines)


def _domain(value: Any, where: str) -> Any:
    """Return the values of a grid or an object of Ray Tune, None for a value that is the same in every trial."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, values),) = value.items()
    if kind not in KINDS:
        if hint := did_you_mean(kind, KINDS, n=1, cutoff=0.75):
            raise ConfigError(f"{where}: {kind!r} is not a function of Ray Tune{hint}")
        return None
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{where}: {kind} needs a list, got {values!r}")
    if kind == "grid_search":
        return [*values]
    from ray import tune

    if kind == "choice":
        return tune.choice([*values])
    if len(values) < 2 or not all(map(is_number, values)) or values[0] >= values[1]:
        raise ConfigError(f"{where}: {kind} needs numbers, the lower bound first; got {values!r}")
    try:
        (domain := getattr(tune, kind)(*values)).sample(random_state=np.random.default_rng(0))  # refuses some bounds
        return domain
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(f"{where}: {kind}: {values!r}: {error}") from error


def _read_recbole(file: Path) -> dict[str, Any]:
    """Read ``key kind values`` lines; a choice becomes a grid, and the bounds of a loguniform are logarithms."""
    content: dict[str, Any] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.partition("#")[0].split(None, 2)
        try:
            if words:
                key, kind, text = words
                content[key] = _from_recbole(kind, text)
        except (ArithmeticError, KeyError, SyntaxError, TypeError, ValueError) as error:
            known = "'key choice|uniform|quniform|loguniform values' is expected"
            raise ConfigError(f"{file}, line {number}: {known}, got {line!r}: {error}") from error
    return content


def _from_recbole(kind: str, text: str) -> dict[str, Any]:
    values = list(ast.literal_eval(text if kind == "choice" else f"[{text.strip().strip('[]')}]"))
    if kind == "quniform" and all(isinstance(value, int) for value in values):
        # Ray's qrandint with a step of 1 leaves the upper bound out
        low, high, step = values
        return {"randint": [low, high + 1]} if step == 1 else {"qrandint": values}
    forms = {"choice": ("grid_search", parse_value), "loguniform": (kind, math.exp)}
    name, form = forms.get(kind) or {"uniform": (kind, float), "quniform": (kind, float)}[kind]
    return {name: [form(value) for value in values]}
