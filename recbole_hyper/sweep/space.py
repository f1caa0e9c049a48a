"""The grammar of search spaces, and the settings in a space.

A space is a YAML mapping from configuration keys to domains::

    train_batch_size: {grid: [64, 128]}            # every value is tried
    hidden_dropout_prob: {choice: [0.2, 0.4]}      # one is drawn
    weight_decay: {uniform: [0.0, 0.1]}            # drawn between the bounds
    learning_rate: {loguniform: [1e-5, 1e-2]}      # drawn with a uniform logarithm
    n_heads: [1, 2]                                # a plain list is a grid, unless the key's value is a list itself
    n_layers: {quniform: [1, 4, 1]}                # drawn on a lattice of the third number, which starts at the first
    n_negatives: {grid: [1, 256], when: {loss_type: [bce_plus, gbce]}}
    hidden_size:                                   # the first alternative whose condition holds
      - {grid: [32, 64], when: {geometry: poincare}}
      - {grid: [256, 512]}
    epochs: 100                                    # the same in every trial
    topk: [5, 10]                                  # so is this one: the key's value is a list itself
    curvature: {value: auto, when: {geometry: poincare}}
    small:                                         # replaces all of the above with --budget=small
      learning_rate: {grid: [0.001, 0.01]}

A condition names keys of the space or of the configuration; a key whose condition fails keeps its default. For
``encoder``, ``geometry`` and ``loss_type`` a condition may name a key that the part reads: ``when: {encoder: {reads:
dropout_prob}}``.
RecBole's hyper files (``key choice [...]``, ``uniform``, ``quniform``, ``loguniform``) are read as well.
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

from recbole_hyper.config.binding import RECBOLE_PROPERTIES, parse_value, recbole_values
from recbole_hyper.config.parts import PARTS, part_keys
from recbole_hyper.errors import ConfigError, did_you_mean
from recbole_hyper.options import is_number
from recbole_hyper.settings import declared
from recbole_hyper.yaml_files import properties_file, read_yaml

Settings = dict[str, Any]
Choose = Callable[[str, "Domain"], Any]

# which space of a file is searched: the whole file, or what it holds under "small"
BUDGETS = ("full", "small")
# in a condition on a part: a key that it reads
READS = "reads"
# the kinds of domains, and the bounds of each
KINDS = {
    **{"grid": "", "choice": "", "uniform": "[low, high]", "loguniform": "[low, high]"},
    **{"quniform": "[low, high, step]", "value": ""},
}


@dataclass(frozen=True)
class Domain:
    """What one key may be.

    ``values`` are those of grid, choice and value (one), or the bounds of the other kinds; ``when`` has the allowed
    values of other keys.
    """

    kind: str
    values: tuple[Any, ...]
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        """Whether the values can be listed."""
        return self.kind in ("grid", "choice", "value")

    @property
    def is_drawn(self) -> bool:
        """Whether a grid search draws from it."""
        return self.kind not in ("grid", "value")

    @property
    def ends(self) -> tuple[Any, ...]:
        """The lowest and the highest value of a range, or every value of a finite domain."""
        if self.is_finite:
            return self.values
        if self.kind == "quniform":
            return self.lattice(0), self.lattice(self._steps)
        return float(self.values[0]), float(self.values[1])

    @property
    def _steps(self) -> int:
        low, high, step = self.values
        return math.floor((high - low) / step + 1e-9)

    def lattice(self, index: int) -> Any:
        """Return the value of quniform number ``index``: an int where bounds and step are ints."""
        low, _, step = self.values
        value = low + index * step
        return value if isinstance(value, int) else round(float(value), 12)

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw one value."""
        if self.is_finite:
            return self.values[int(generator.integers(len(self.values)))]
        if self.kind == "quniform":
            return self.lattice(int(generator.integers(self._steps + 1)))
        low, high = self.values
        if self.kind == "uniform":
            return float(generator.uniform(low, high))
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether ``settings`` meet the condition."""

        def meets(key: str, wanted: Any) -> bool:
            value = settings.get(key)
            if isinstance(wanted, dict):  # a part that reads a key
                return value is not None and wanted[READS] in part_keys(key, value)
            return bool(value == wanted)

        return all(any(meets(key, one) for one in allowed) for key, allowed in self.when.items())


@dataclass(frozen=True)
class Space:
    """A search space: the domains of every key, of which the first counts whose condition holds.

    ``content`` is the mapping that it was read from.
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
        for key, allowed in ((key, allowed) for domain in self.all_domains for key, allowed in domain.when.items()):
            names += [key, *(one[READS] for one in allowed if isinstance(one, dict))]
        return list(dict.fromkeys(names))

    def split_constants(self) -> tuple[Settings, Space]:
        """Return the keys that have one value whatever the others are, and the space without them."""
        constants = {
            key: alternatives[0].values[0]
            for key, alternatives in self.domains.items()
            if alternatives[0].kind == "value" and not alternatives[0].when
        }
        varied = {key: value for key, value in self.domains.items() if key not in constants}
        return constants, Space(varied, self.content)

    def settings(self, choose: Choose, base: Mapping[str, Any]) -> Settings:
        """Return one setting: the keys in turn, conditions first, with what ``choose(key, domain)`` picks.

        ``base`` has the keys that conditions name beside the space's.
        """
        return next(self._walk(lambda key, domain: (choose(key, domain),), base, self._order(self.domains), {}))

    def grid(self, base: Mapping[str, Any], generator: np.random.Generator) -> Iterator[Settings]:
        """Yield every combination of the grids, the last key fastest; all else is drawn anew for each.

        Where a grid has a condition on a drawn key, its values share one draw of that key.
        """

        def options(key: str, domain: Domain) -> Sequence[Any]:
            return domain.values if domain.kind == "grid" else (domain.draw(generator),)

        drawn_last = sorted(self.domains, key=lambda key: any(domain.is_drawn for domain in self.domains[key]))
        return self._walk(options, base, self._order(drawn_last), {})

    def _walk(
        self,
        options: Callable[[str, Domain], Sequence[Any]],
        base: Mapping[str, Any],
        order: Sequence[str],
        chosen: Settings,
    ) -> Iterator[Settings]:
        """Yield a setting for every combination of ``chosen`` and what ``options`` gives for (key, domain)."""
        if not order:
            yield {key: chosen[key] for key in self.domains if key in chosen}
            return
        key, settings = order[0], {**base, **chosen}
        domain = next((domain for domain in self.domains[key] if domain.holds(settings)), None)
        if domain is None:
            yield from self._walk(options, base, order[1:], chosen)
            return
        for value in domain.values if domain.kind == "value" else options(key, domain):
            yield from self._walk(options, base, order[1:], {**chosen, key: value})

    def _order(self, keys: Iterable[str]) -> list[str]:
        """Return the keys so that every condition comes before what depends on it, else in the order of ``keys``."""
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
    """Read a space from YAML, or from one of RecBole's hyper files (any other suffix than .yaml and .yml).

    ``space`` may be the bare name of a file in properties/sweep, or the content of such a file. The defaults of
    ``model`` decide which keys take a list as one value. ``budget`` is "full", or "small" for the space under
    ``small``. ConfigError for no such file or budget, and for a space, domain or condition that has no meaning.
    """
    if isinstance(space, Mapping):
        return parse_space(space, model=model, budget=budget)
    file = properties_file(space, "sweep", "search space")
    content = read_yaml(file) if file.suffix in (".yaml", ".yml") else _read_recbole(file)
    return parse_space(content, str(space), model, budget)


def parse_space(
    content: Mapping[str, Any], name: str = "the space", model: str | None = None, budget: str = "full"
) -> Space:
    """Turn the mapping of a space file into a :class:`Space`; arguments and errors as for :func:`read_space`."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{name} must hold 'key: domain' lines, but holds a {type(content).__name__}")
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    small = content.get("small")
    if budget == "small" and not (isinstance(small, Mapping) and small):
        raise ConfigError(f"{name} has no small space; give it one below the key small, or leave out --budget=small")
    lines = small if budget == "small" else {key: value for key, value in content.items() if key != "small"}
    if not lines:
        raise ConfigError(f"{name} is empty: give at least one key, such as learning_rate: {{grid: [0.001, 0.01]}}")
    domains, one_value = {}, None
    for key, value in lines.items():
        where = f"{name}: {key}"
        entries = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not (
            value and all(isinstance(entry, dict) and entry.keys() & KINDS.keys() for entry in value)
        ):
            one_value = list_keys(model) if one_value is None else one_value
            entries = [value if key in one_value else {"grid": value}]
        domains[str(key)] = tuple(_domain(entry, where) for entry in entries)
    space = Space(domains, lines)
    space._order(space.domains)
    return space


@functools.cache
def list_keys(model: str | None = None) -> frozenset[str]:
    """Return the keys that take a list as one value, by their declaration or by RecBole's defaults.

    For these a plain list in a space is one value, for others a grid. The file of ``model`` decides about its own keys:
    reg_weight is a number for most models and a list for two.
    """
    options = declared()
    names = {key for key, option in options.items() if option.takes_list}
    # what RecBole leaves open everywhere, such as unload_col, is a list
    for key, values in recbole_values().items():
        if key not in options and (
            any(isinstance(value, list) for value in values) or set(map(repr, values)) == {"None"}
        ):
            names.add(key)
    file = RECBOLE_PROPERTIES / "model" / f"{model}.yaml"
    for key, value in read_yaml(file).items() if file.is_file() else ():
        if isinstance(value, list):
            names.add(key)
        elif value is not None:
            names.discard(key)
    return frozenset(names)


def _domain(value: Any, where: str) -> Domain:
    if not isinstance(value, dict) or not set(value) & {*KINDS, "when"}:
        if isinstance(value, dict):
            for key in value:
                if hint := did_you_mean(key, KINDS, n=1, cutoff=0.75):
                    raise ConfigError(f"{where}: {key!r} is no kind of domain{hint}")
        return Domain("value", (value,))
    kinds = [key for key in value if key != "when"]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        raise ConfigError(f"{where}: one of {', '.join(KINDS)} (and 'when') is expected; got {[*value]}")
    kind = kinds[0]
    if kind == "value":
        return Domain(kind, (value[kind],), _when(value.get("when"), where))
    values = value[kind]
    if not isinstance(values, list | tuple):
        raise ConfigError(f"{where}: {kind} needs a list, got {values!r}")
    if not values:
        raise ConfigError(f"{where}: the {kind} is empty; give at least one value")
    if KINDS[kind]:
        _check_bounds(kind, values, where)
    elif len({repr(entry) for entry in values}) < len(values):
        raise ConfigError(f"{where}: {kind} {list(values)} names a value twice")
    return Domain(kind, tuple(values), _when(value.get("when"), where))


def _check_bounds(kind: str, values: Any, where: str) -> None:
    shape = KINDS[kind]
    if len(values) != shape.count(",") + 1 or not all(map(is_number, values)):
        raise ConfigError(f"{where}: {kind} needs {shape}, all finite numbers; got {list(values)}")
    if values[0] >= values[1]:
        raise ConfigError(f"{where}: {kind} needs the lower bound first; got {list(values)}")
    if kind == "loguniform" and values[0] <= 0:
        raise ConfigError(f"{where}: loguniform needs bounds above 0; got {list(values)}")
    if kind == "quniform" and values[2] <= 0:
        raise ConfigError(f"{where}: the step of quniform must be above 0; got {values[2]}")


def _when(condition: Any, where: str) -> dict[str, tuple[Any, ...]]:
    if condition is None:
        return {}
    if not isinstance(condition, dict) or not condition:
        raise ConfigError(f"{where}: 'when' needs {{key: value}} or {{key: [values]}}, got {condition!r}")
    when = {str(key): tuple(value) if isinstance(value, list) else (value,) for key, value in condition.items()}
    for key, allowed in when.items():
        for one in (one for one in allowed if isinstance(one, dict)):
            if key not in PARTS or set(one) != {READS} or not isinstance(one[READS], str):
                parts = ", ".join(PARTS)
                raise ConfigError(f"{where}: 'when' has {key}: {one!r}; {{{READS}: KEY}} is expected, of {parts} alone")
    return when


def _read_recbole(file: Path) -> dict[str, Any]:
    """Read ``key kind values`` lines; RecBole's bounds of loguniform are logarithms, its choices a grid."""
    content: dict[str, Any] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split(None, 2)
        if not words:
            continue
        where = f"{file}, line {number}"
        if len(words) < 3:
            raise ConfigError(f"{where}: 'key kind values' is expected, got {line!r}")
        key, kind, text = words
        if kind not in ("choice", "uniform", "quniform", "loguniform"):
            raise ConfigError(f"{where}: {kind!r} is none of choice, uniform, quniform, loguniform")
        try:
            values = list(ast.literal_eval(text if kind == "choice" else f"[{text.strip().strip('[]')}]"))
            if kind == "choice":
                content[key] = {"grid": [parse_value(value) for value in values]}
            else:
                content[key] = {kind: [math.exp(value) for value in values] if kind == "loguniform" else values}
        except (SyntaxError, TypeError, ValueError) as error:
            raise ConfigError(f"{where}: {text!r} are no values of {kind}: {error}") from error
    return content
