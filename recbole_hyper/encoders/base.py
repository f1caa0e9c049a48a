"""Base of all encoders, and functions that they share. An encoder turns a history into one state per position."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.options import Option, Part, check_options, options_of

# activations of feed-forward parts, by RecBole's names
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}
# cost of one more call of an encoder, in positions; on a CPU 256 to 512 were fastest for filters and attention of
# width 8 to 128 and histories of 5 and 160 items
CALL_POSITIONS = 384
# widest histories whose positions a device keeps as a table, 2 MB
_WIDEST_TABLE = 512
# steps of a probability in dropout
_LEVELS = 1 << 16
#: the loss, 0-d, of states (n, d) with targets (n,) in batch rows (n,)
LossOf = Callable[[Tensor, Tensor, Tensor], Tensor]


class Places(NamedTuple):
    """Where the targets of a batch are: ``flat`` (n,) among its positions (B, width), in ``rows`` (n,)."""

    flat: Tensor
    rows: Tensor
    width: int


def known_places(loss_of: LossOf) -> Places | None:
    """Return where the targets of a batch are, if ``loss_of`` knows it: on a device, a search for them would wait."""
    return getattr(loss_of, "places", None)


class Encoder(Part, nn.Module, ABC):
    """Turns right-padded histories into states. Shares ``item_embedding`` (n_items, d) with the head; row 0 is padding.

    The state at position ``j`` depends on items ``0 .. j`` and on the length of the history, but not on padding or on
    other rows of the batch. The length matters because positions count from the newest item, as with left padding.

    The options of an encoder are those of its constructor, of its base's constructor if it takes ``**options``, and of
    the modules in ``made_of``. ConfigError for a value that an option does not allow.
    """

    kind = "encoders"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 64,
        "initializer": "xavier",
        "initializer_range": 0.02,
    }
    made_of: ClassVar[tuple[type[nn.Module], ...]] = ()
    # False: a state may depend on later items; the result then says so, and no check before training refuses it
    causal: ClassVar[bool] = True
    # whether training reads the items after a position, so that batches must be windows
    reads_future: ClassVar[bool] = False
    # whether trace can return attention weights
    has_maps: ClassVar[bool] = False
    # whether it is a TimedEncoder
    reads_times: ClassVar[bool] = False
    # whether no shape depends on values, so that steps can be CUDA graphs
    fixed_shapes: bool = True
    # fixed cost of a position, in rows, for encoders that compute positions one after another
    step_rows: ClassVar[int] = 0
    item_embedding: nn.Embedding

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Check the options before the constructor uses them."""
        check_options(cls.options(), options)
        return super().__new__(cls)

    def __init__(self, item_embedding: nn.Embedding) -> None:
        super().__init__()
        # the model registers the shared table; this keeps it out of the encoder's state_dict
        self.__dict__["item_embedding"] = item_embedding

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        if heads := options.get("n_heads"):
            check_heads(width, heads)

    @classmethod
    def least_weights(cls, width: int, **options: Any) -> int:
        """Return a lower bound on the number of weights for states of ``width``, without the item vectors."""
        layers, inner = options.get("n_layers") or 1, options.get("inner_size") or 0
        return (options.get("max_length") or 0) * width + layers * width * (width + 2 * inner)

    @classmethod
    @functools.cache
    def options(cls) -> Mapping[str, Option]:
        """Return the options by argument; the key of ``max_length`` is MAX_ITEM_LIST_LENGTH."""
        options: dict[str, Option] = {}
        for part in (cls, *cls.made_of):
            options = {**options, **_constructor_options(part), **options}
        if "max_length" in options:
            options["max_length"] = replace(options["max_length"], key="MAX_ITEM_LIST_LENGTH")
        return options

    @abstractmethod
    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Encode ``items`` (B, L), right-padded with 0, of ``lengths`` (B,), into states (B, L, d)."""

    def last(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (B, d) at the newest items. Override it if that costs less than all states.

        Export traces this method, and its graph must work for every batch and length: while
        ``torch.compiler.is_exporting()``, do not branch on values or lengths, and call no compiled kernel.
        """
        return newest(self(items, lengths), lengths)

    def trace(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return the states (B, L, d) and the outputs of the layers; by default one layer with one head, no maps."""
        states = self(items, lengths)
        return states, Trace(heads=[states.unsqueeze(2)])

    def training_loss(
        self, items: Tensor, targets: Tensor, lengths: Tensor, loss_of: LossOf, *times: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective of a batch of windows, and its detached, unweighted terms by name for the log.

        ``items`` and ``targets`` (B, L) are right-padded, 0 where there is no target. ``loss_of`` returns the loss,
        0-d, of states (n, d) with targets (n,) in batch rows (n,). A :class:`TimedEncoder` gets the ``times`` (B, L).
        """
        places = known_places(loss_of)
        return loss_of(*supervised_states(self, items, targets, lengths, *times, places=places)), {}

    def share_curvature(self, head: OutputHead) -> None:
        """Use the curvature that ``head`` learns; by default the encoder has none."""


class TimedEncoder(Encoder):
    """An encoder that reads the ``times`` of the items. A state should depend only on their differences.

    ``times`` (B, L) are float64, in the unit of the data, usually Unix seconds; 0 at padding. None means unknown: then
    all times are equal.
    """

    reads_times = True

    @abstractmethod
    def forward(self, items: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """Encode ``items`` (B, L), right-padded with 0, of ``lengths`` (B,), into states (B, L, d)."""

    def last(self, items: Tensor, lengths: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the states (B, d) at the newest items, see :meth:`Encoder.last`."""
        return newest(self(items, lengths, times), lengths)


def _constructor_options(cls: type) -> dict[str, Option]:
    """Return the options of the constructor, and of the base's while constructors pass on ``**options``."""
    options: dict[str, Option] = {}
    for constructor in [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]:
        options = {**options, **options_of(constructor), **options}
        if inspect.getfullargspec(constructor).varkw is None:
            break
    return options


@dataclass
class Trace:
    """The outputs of an encoder's layers.

    ``heads`` has the head outputs of each layer before they are mixed, (B, L, h, d/h), undefined at padding. ``maps``
    has its attention weights without dropout, (B, h, L, L).
    """

    heads: list[Tensor] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)


def at_places(states: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the states (n, d) at the places ``rows``, ``columns`` (n,) of (B, L, d).

    As index_select: the backward pass of states[rows, columns] sorts its indices on a GPU.
    """
    return states.flatten(0, 1).index_select(0, rows * states.shape[1] + columns)


def newest(states: Tensor, lengths: Tensor) -> Tensor:
    """Return the states (B, d) at the newest items of (B, L, d); of an empty row at its first position."""
    return at_places(states, torch.arange(states.shape[0], device=states.device), (lengths - 1).clamp(min=0))


def length_groups(lengths: Tensor, step_rows: int = 0) -> list[slice]:
    """Cut rows that are sorted by length into the groups that are cheapest to encode one after another.

    A group costs (rows + ``step_rows``) times its longest length, plus ``CALL_POSITIONS`` for the call. Unsorted rows
    are one group. So are rows on a GPU, where padding is cheaper than calls.
    """
    if lengths.device.type != "cpu" or bool((lengths[1:] < lengths[:-1]).any()):
        return [slice(0, len(lengths))]
    longest, counts = (tensor.numpy() for tensor in torch.unique_consecutive(lengths, return_counts=True))
    edges = np.concatenate(([0], np.cumsum(counts)))
    # least[j] is the least cost of all rows before edge j; their last group starts at edge start[j]
    least, start = np.zeros(len(edges)), np.zeros(len(edges), dtype=np.int64)
    for j in range(1, len(edges)):
        costs = least[:j] + (edges[j] - edges[:j] + step_rows) * longest[j - 1] + CALL_POSITIONS
        start[j] = costs.argmin()
        least[j] = costs[start[j]]
    groups, j = [], len(longest)
    while j:
        groups.append(slice(int(edges[start[j]]), int(edges[j])))
        j = start[j]
    return groups[::-1]


def groups_with_widths(items: Tensor, lengths: Tensor, step_rows: int = 0) -> list[tuple[slice, int]]:
    """Return the :func:`length_groups` of right-padded ``items`` (B, L), each with its longest length."""
    # reading the longest length would wait for the GPU
    if lengths.device.type != "cpu":
        return [(slice(0, len(lengths)), items.shape[1])]
    return [(group, int(lengths[group].max())) for group in length_groups(lengths, step_rows)]


def supervised_states(
    encoder: Encoder,
    items: Tensor,
    targets: Tensor,
    lengths: Tensor,
    *times: Tensor,
    places: Places | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Encode right-padded ``items`` (B, L) in length groups, or at once if the ``places`` of the targets are known.

    Returns the states (n, d) at the positions that have a target, these of the ``targets`` (n,), and their batch rows
    (n,).
    """
    if places is not None:
        states_of_all = encoder(items, lengths, *times).flatten(0, 1)
        return states_of_all.index_select(0, places.flat), targets.take(places.flat), places.rows
    states, answers, rows = [], [], []
    for group, width in groups_with_widths(items, lengths, encoder.step_rows):
        found = targets[group, :width].nonzero(as_tuple=True)
        more = (part[group, :width] for part in times)
        states.append(at_places(encoder(items[group, :width], lengths[group], *more), *found))
        answers.append(targets[group][found])
        rows.append(found[0] + group.start)
    return torch.cat(states), torch.cat(answers), torch.cat(rows)


def check_heads(width: int, n_heads: int, advice: str = "") -> None:
    """Raise ValueError, which ends with ``advice``, unless ``n_heads`` divides the width of the states."""
    if n_heads < 1 or width % n_heads:
        raise ValueError(f"n_heads={n_heads} does not divide hidden_size={width}{advice}")


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element of ``x`` with probability ``p``, and scale the others to keep the mean.

    One 64-bit draw decides four elements, 1.9 ns per element instead of torch's 8.2. ``p`` is rounded to 1/65536.
    """
    if x.device.type != "cpu":
        return nn.functional.dropout(x, p)
    levels_kept = max(1, _LEVELS - round(p * _LEVELS))
    if levels_kept == _LEVELS:
        return x
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    mask = bits.view(torch.int16)[: x.numel()].view(x.shape) < levels_kept - _LEVELS // 2
    return x * (mask * (_LEVELS / levels_kept)).to(x.dtype)


class Dropout(nn.Module):
    """:func:`dropout` in training, nothing in evaluation; ``p`` in [0, 1)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability {p} must be in [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training and self.p else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def check_length(length: int, max_length: int) -> None:
    """Raise ValueError for histories that are longer than the encoder's ``max_length``."""
    if length > max_length:
        raise ValueError(f"a history of {length} items exceeds MAX_ITEM_LIST_LENGTH={max_length}; drop the oldest")


def positions_from_end(lengths: Tensor, width: int) -> Tensor:
    """Return positions (B, width) that count back from 0 at the newest item; padding has 0 too."""
    if lengths.device.type != "cpu" and type(width) is int and width <= _WIDEST_TABLE:
        return _positions(width, lengths.device).index_select(0, lengths)
    return _from_end(lengths, width)


def _from_end(lengths: Tensor, width: int) -> Tensor:
    return (lengths[:, None] - 1 - torch.arange(width, device=lengths.device)).clamp_(min=0)


@functools.lru_cache(maxsize=64)
def _positions(width: int, device: torch.device) -> Tensor:
    """Return the positions (width + 1, width) of rows of 0 to ``width`` items, which a device keeps."""
    return _from_end(torch.arange(width + 1, device=device), width)


def initialize(module: nn.Module, *, rule: str, std: float = 0.02) -> None:
    """Initialise every matrix of ``module`` in place; vectors keep torch's defaults.

    ``rule`` is "xavier" (uniform; HSASRec and SCE code) or "normal" (standard deviation ``std``, biases 0; RecBole).
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            if rule == "xavier":
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.normal_(parameter, std=std)
        elif rule == "normal" and name.endswith("bias"):
            nn.init.zeros_(parameter)
