"""Search spaces: how a YAML file spells them, and the settings that a space contains.

A space maps configuration keys to domains, which are those of Ray Tune::

    train_batch_size: {grid: [64, 128]}            # tries every value
    hidden_dropout_prob: {choice: [0.2, 0.4]}      # draws one value
    weight_decay: {uniform: [0.0, 0.1]}            # draws between the bounds
    learning_rate: {loguniform: [1e-5, 1e-2]}      # draws with a uniform logarithm
    n_layers: {quniform: [1, 4, 1]}                # draws a multiple of the step, between the bounds
    n_heads: [1, 2]                                # a plain list is a grid, unless the key itself takes a list
    n_negatives: {grid: [1, 256], when: {loss_type: [bce_plus, gbce]}}
    hidden_size:                                   # the first alternative whose condition is met
      - {grid: [32, 64], when: {geometry: poincare}}
      - {grid: [256, 512]}
    epochs: 100                                    # the same in every trial
    topk: [5, 10]                                  # the same in every trial, as this key takes a list
    curvature: {value: auto, when: {geometry: poincare}}
    small:                                         # with --budget=small, this space replaces the one above
      learning_rate: {grid: [0.001, 0.01]}

A condition names keys of the space or of the configuration. If no condition of a key is met, the key keeps its default.
For ``encoder``, ``geometry`` and ``loss_type`` a condition may also name a key that the part must read:
``when: {encoder: {reads: dropout_prob}}``. RecBole's hyper files (``key choice [...]``, ``uniform``, ``quniform``,
``loguniform``) are supported too. In Python, a domain may be Ray's object: ``{"learning_rate": tune.loguniform(1e-4,
1e-2), "n_layers": tune.grid_search([1, 2])}``.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.config.binding import parse_value
from recbole_hyper.config.parts import PARTS, part_keys
from recbole_hyper.config.resolve import RECBOLE_PROPERTIES, recbole_values
from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.settings import declared
from recbole_hyper.values import is_number, takes
from recbole_hyper.yaml_files import properties_file, read_yaml

Settings = dict[str, Any]
Choose = Callable[[str, "Domain"], Any]

BUDGETS = ("full", "small")
# in a condition on a part: the part must read this key
READS = "reads"
# the kinds of domains that are ranges, with their bounds
RANGES = {"uniform": "[low, high]", "loguniform": "[low, high]", "quniform": "[low, high, step]"}
KINDS = ("grid", "choice", *RANGES, "value")


@dataclass(frozen=True)
class Domain:
    """The values of one key, and when they apply.

    ``values`` lists the values of a grid, a choice or a value (a single one), else the arguments of the function of Ray
    Tune that ``kind`` names. ``when`` maps other keys to the values that they must have.
    """

    kind: str
    values: tuple[Any, ...]
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        """Whether ``values`` lists every value."""
        return self.kind not in RANGES

    @property
    def is_drawn(self) -> bool:
        """Whether a grid search draws a value instead of trying all."""
        return self.kind not in ("grid", "value")

    @property
    def of_ray(self) -> Any:
        """The domain of Ray Tune. A quniform of whole numbers has whole numbers."""
        from ray import tune

        if self.is_finite:
            return tune.choice(list(self.values))
        if self.kind == "quniform" and all(isinstance(value, int) for value in self.values):
            low, high, step = self.values
            # Ray's qrandint with a step of 1 leaves the upper bound out
            return tune.randint(low, high + 1) if step == 1 else tune.qrandint(low, high, step)
        return getattr(tune, self.kind)(*self.values)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The lowest and the highest value of a range, or every value of another domain."""
        if self.is_finite:
            return self.values
        low, high = self.values[:2]
        return (low, high) if isinstance(self.values[-1], int) else (float(low), float(high))

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw one value."""
        return self.of_ray.sample(random_state=generator)

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Return whether ``settings`` meet the condition."""

        def meets(key: str, wanted: Any) -> bool:
            value = settings.get(key)
            if isinstance(wanted, dict):  # the part must read a key
                return value is not None and wanted[READS] in part_keys(key, value)
            return bool(value == wanted)

        return all(any(meets(key, one) for one in allowed) for key, allowed in self.when.items())


@dataclass(frozen=True)
class Space:
    """A search space: for each key its domains, of which the first one that applies is used.

    ``content`` is the mapping that the space was read from.
    """

    domains: Mapping[str, tuple[Domain, ...]]
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_domains(self) -> list[Domain]:
        """The domains of all keys."""
        return [domain for alternatives in self.domains.values() for domain in alternatives]

    @property
    def keys(self) -> list[str]:
        """Every key that a domain or a condition names."""
        names = [*self.domains]
        for domain in self.all_domains:
            for key, allowed in domain.when.items():
                names += [key, *(one[READS] for one in allowed if isinstance(one, dict))]
        return list(dict.fromkeys(names))

    def split_constants(self) -> tuple[Settings, Space]:
        """Return the keys with one value and no condition, and the space without them."""
        constants = {
            key: first.values[0]
            for key, (first, *_) in self.domains.items()
            if first.kind == "value" and not first.when
        }
        varied = {key: value for key, value in self.domains.items() if key not in constants}
        return constants, Space(varied, self.content)

    def settings(self, choose: Choose, base: Mapping[str, Any]) -> Settings:
        """Return one setting, in which ``choose(key, domain)`` picks each value.

        ``base`` has the keys outside the space that conditions name.
        """
        return next(self._walk(lambda key, domain: (choose(key, domain),), base, self.order(self.domains), {}))

    def grid(self, base: Mapping[str, Any], generator: np.random.Generator) -> Iterator[Settings]:
        """Yield every combination of the grids, the last key fastest, with new draws of the other keys for each.

        The values of a grid whose condition names a drawn key share one draw of that key.
        """

        def options(_: str, domain: Domain) -> Sequence[Any]:
            return domain.values if domain.kind == "grid" else (domain.draw(generator),)

        drawn_last = sorted(self.domains, key=lambda key: any(domain.is_drawn for domain in self.domains[key]))
        return self._walk(options, base, self.order(drawn_last), {})

    def _walk(
        self,
        options: Callable[[str, Domain], Sequence[Any]],
        base: Mapping[str, Any],
        order: Sequence[str],
        chosen: Settings,
    ) -> Iterator[Settings]:
        """Yield ``chosen`` with every combination of what ``options`` returns for the keys in ``order``."""
        if not order:
            yield {key: chosen[key] for key in self.domains if key in chosen}
            return
        (key, *rest), settings = order, {**base, **chosen}
        domain = next((domain for domain in self.domains[key] if domain.applies(settings)), None)
        if domain is None:
            yield from self._walk(options, base, rest, chosen)
            return
        for value in domain.values if domain.kind == "value" else options(key, domain):
            yield from self._walk(options, base, rest, {**chosen, key: value})

    def order(self, keys: Iterable[str]) -> list[str]:
        """Return ``keys`` in their order, but each after the keys of its conditions; ConfigError for a circle."""
        order: list[str] = []

        def visit(key: str, path: tuple[str, ...]) -> None:
            if key in path:
                raise ConfigError(f"the conditions of {' -> '.join([*path, key])} go round in a circle")
            if key in order or key not in self.domains:
                return
            for domain in self.domains[key]:
                for condition in domain.when:
                    visit(condition, (*path, key))
            order.append(key)

        for key in keys:
            visit(key, ())
        return order


def read_space(space: str | Path | Mapping[str, Any], model: str | None = None, budget: str = "full") -> Space:
    """Read a space from YAML, or from a RecBole hyper file (any suffix but .yaml and .yml).

    Args:
        space: path of a file, name of a file in properties/sweep, or the content of such a file.
        model: its defaults decide which keys take a list as one value.
        budget: "full", or "small" for the space below the key ``small``.

    Raises:
        ConfigError: there is no such file or budget, or the space cannot be understood.
    """
    if isinstance(space, Mapping):
        return parse_space(space, model=model, budget=budget)
    file = properties_file(space, "sweep", "search space")
    content = read_yaml(file) if file.suffix in (".yaml", ".yml") else _read_recbole(file)
    return parse_space(content, str(space), model, budget)


def parse_space(
    content: Mapping[str, Any], name: str = "the space", model: str | None = None, budget: str = "full"
) -> Space:
    """Return the space that the content of a space file describes; ``name`` is for errors. See :func:`read_space`."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{name} must contain 'key: domain' lines, but is a {type(content).__name__}")
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    small = content.get("small")
    if budget == "small" and not (isinstance(small, Mapping) and small):
        raise ConfigError(f"{name} has no small space; add one below the key small, or leave out --budget=small")
    content = {key: spelled(value) for key, value in content.items()}
    lines = small if budget == "small" else {key: value for key, value in content.items() if key != "small"}
    if not lines:
        raise ConfigError(f"{name} is empty: add at least one key, such as learning_rate: {{grid: [0.001, 0.01]}}")
    domains = {}
    for key, value in lines.items():
        entries = [value]
        if isinstance(value, list):
            if value and all(isinstance(entry, dict) and not entry.keys().isdisjoint(KINDS) for entry in value):
                entries = value
            elif key not in list_keys(model):
                entries = [{"grid": value}]
        domains[str(key)] = tuple(_domain(entry, f"{name}: {key}") for entry in entries)
    space = Space(domains, lines)
    space.order(domains)
    return space


@functools.cache
def list_keys(model: str | None = None) -> frozenset[str]:
    """Return the keys that take a list as one value; in a space a plain list is one value for these, else a grid.

    Their declaration decides, else RecBole's defaults, else the file of ``model``: reg_weight is a number for most
    models and a list for two.
    """
    options = declared()
    names = {key for key, option in options.items() if takes(option.kind, list)}
    for key, values in recbole_values().items():
        # RecBole leaves keys such as unload_col open everywhere: they take a list
        if key not in options and (any(isinstance(one, list) for one in values) or all(one is None for one in values)):
            names.add(key)
    file = RECBOLE_PROPERTIES / "model" / f"{model}.yaml"
    own = {key: value for key, value in (read_yaml(file) if file.is_file() else {}).items() if value is not None}
    return frozenset(names - own.keys() | {key for key, value in own.items() if isinstance(value, list)})


def spelled(value: Any) -> Any:
    """Return a domain of Ray Tune as a space file spells it; anything else as it is.

    ConfigError for a domain that has no such spelling, such as tune.sample_from: 'when' has its conditions.
    """
    if isinstance(value, dict) and [*value] == ["grid_search"]:
        return {"grid": list(value["grid_search"])}
    if not type(value).__module__.startswith("ray."):
        return value
    from ray.tune.search import sample

    sampler: Any = value.get_sampler()
    step: tuple[Any, ...] = ()
    if isinstance(sampler, sample.Quantized):
        step, sampler = (sampler.q,), sampler.sampler
    if isinstance(value, sample.Categorical):
        return {"choice": list(value.categories)}
    if isinstance(value, sample.Float) and isinstance(sampler, sample.LogUniform) and not step:
        return {"loguniform": [value.lower, value.upper]}
    if isinstance(value, sample.Float) and isinstance(sampler, sample.Uniform):
        return {"quniform" if step else "uniform": [value.lower, value.upper, *step]}
    if isinstance(value, sample.Integer) and isinstance(sampler, sample.Uniform):
        return {"quniform": [value.lower, value.upper - (not step or step == (1,)), *(step or (1,))]}
    known = "choice, uniform, quniform, loguniform, randint, qrandint and grid_search"
    raise ConfigError(f"a space cannot have {type(value).__name__}({sampler}) of Ray Tune; it can have {known}")


def _domain(value: Any, where: str) -> Domain:
    if not isinstance(value, dict) or value.keys().isdisjoint({*KINDS, "when"}):
        for key in value if isinstance(value, dict) else ():
            if hint := did_you_mean(key, KINDS, n=1, cutoff=0.75):
                raise ConfigError(f"{where}: {key!r} is not a kind of domain{hint}")
        return Domain("value", (value,))
    kinds = [key for key in value if key != "when"]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        raise ConfigError(f"{where}: one of {', '.join(KINDS)} (and 'when') is expected; got {[*value]}")
    (kind,) = kinds
    values = [value[kind]] if kind == "value" else value[kind]
    if problem := _problem(kind, values):
        raise ConfigError(f"{where}: {problem}")
    return Domain(kind, tuple(values), _when(value.get("when"), where))


def _problem(kind: str, values: Any) -> str:
    """Return what is wrong with the values of a domain, "" if nothing is."""
    if not isinstance(values, list | tuple):
        return f"{kind} needs a list, got {values!r}"
    if not values:
        return f"the {kind} is empty; add at least one value"
    if kind not in RANGES:
        return f"{kind} {list(values)} has a value twice" if len({*map(repr, values)}) < len(values) else ""
    bounds = RANGES[kind]
    if len(values) != bounds.count(",") + 1 or not all(map(is_number, values)):
        return f"{kind} needs {bounds}, all finite numbers; got {list(values)}"
    if values[0] >= values[1]:
        return f"{kind} needs the lower bound first; got {list(values)}"
    if kind == "loguniform" and values[0] <= 0:
        return f"loguniform needs bounds above 0; got {list(values)}"
    if kind == "quniform" and values[2] <= 0:
        return f"the step of quniform must be above 0; got {values[2]}"
    if kind == "quniform" and any(not math.isclose(one / values[2], round(one / values[2])) for one in values[:2]):
        return f"the bounds of quniform must be multiples of its step; got {list(values)}"
    return ""


def _when(condition: Any, where: str) -> dict[str, tuple[Any, ...]]:
    if condition is None:
        return {}
    if not isinstance(condition, dict) or not condition:
        raise ConfigError(f"{where}: 'when' needs {{key: value}} or {{key: [values]}}, got {condition!r}")
    when = {str(key): tuple(value) if isinstance(value, list) else (value,) for key, value in condition.items()}
    for key, one in ((key, one) for key, allowed in when.items() for one in allowed if isinstance(one, dict)):
        if key not in PARTS or set(one) != {READS} or not isinstance(one[READS], str):
            raise ConfigError(
                f"{where}: 'when' has {key}: {one!r}; {{{READS}: KEY}} is expected, and only for {', '.join(PARTS)}"
            )
    return when


def _read_recbole(file: Path) -> dict[str, Any]:
    """Read ``key kind values`` lines; a choice becomes a grid, and the bounds of a loguniform are logarithms."""
    content: dict[str, Any] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split(None, 2)
        if not words:
            continue
        where = f"{file}, line {number}"
        if len(words) < 3:
            raise ConfigError(f"{where}: 'key kind values' is expected, got {line!r}")
        key, kind, text = words
        if kind not in ("choice", *RANGES):
            raise ConfigError(f"{where}: {kind!r} is unknown; allowed: {', '.join(['choice', *RANGES])}")
        try:
            values = list(ast.literal_eval(text if kind == "choice" else f"[{text.strip().strip('[]')}]"))
            if kind == "choice":
                content[key] = {"grid": [parse_value(value) for value in values]}
            else:
                content[key] = {kind: [math.exp(value) for value in values] if kind == "loguniform" else values}
        except (SyntaxError, TypeError, ValueError) as error:
            raise ConfigError(f"{where}: {text!r} cannot be read as values of {kind}: {error}") from error
    return content
