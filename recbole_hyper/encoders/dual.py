"""DualRec: two encoders over the same item vectors, one for the past of each position and one for its future.

Any causal encoder can be the backbone; its future version runs over the reversed sequence. A new pair is one line:
``class DualGRU(DualEncoder, backbone=GRUEncoder)``.
"""

import functools
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from recbole_hyper.encoders.base import Encoder, LossOf, Trace, at_places, groups_with_widths, known_places
from recbole_hyper.encoders.dual_transfer import transfer
from recbole_hyper.encoders.windowed_attention import WindowedAttentionEncoder
from recbole_hyper.options import Option
from recbole_hyper.values import NonNegativeFloat, Share

FutureDropout = Annotated[bool, Option("dropout in the layers of the future network; False: published code")]


class DualStates(NamedTuple):
    """States of both directions for sequences of n items; None for a direction or term that is off."""

    past: Tensor | None  # (B, L, d): position i has seen items 0..i and predicts item i + 1
    future: Tensor | None  # (B, L, d): position i has seen items i+1..n-1 and predicts item i
    transfer: Tensor | None  # the transfer term, 0-d


def reversal(lengths: Tensor, length: int) -> Tensor:
    """Return the index (B, length) that reverses the real part of each right-padded row; padding stays."""
    place = torch.arange(length, device=lengths.device)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def trace_reversed(
    encoder: Encoder, items: Tensor, lengths: Tensor, *, return_maps: bool = False
) -> tuple[Tensor, Trace]:
    """Run ``encoder`` over each reversed sequence; return states and trace in the order of ``items``."""
    index = reversal(lengths, items.shape[1])
    states, trace = encoder.trace(items.gather(1, index), lengths, return_maps=return_maps)
    heads = [_reordered(head, index) for head in trace.heads]
    maps = [
        one.gather(-2, index[:, None, :, None].expand_as(one)).gather(-1, index[:, None, None, :].expand_as(one))
        for one in trace.maps
    ]
    return _reordered(states, index), Trace(heads=heads, maps=maps)


def _reordered(states: Tensor, index: Tensor) -> Tensor:
    """Return the positions ``index`` (B, L) of each row of ``states`` (B, L, ...)."""
    rows = torch.arange(index.shape[0], device=index.device)[:, None].expand_as(index)
    return at_places(states, rows.flatten(), index.flatten()).view(states.shape)


def _transfers(directions: str, beta: float, transfer_form: str) -> bool:
    return directions in ("both", "shared") and beta > 0 and transfer_form != "none"


class DualEncoder(Encoder):
    r"""A past and a future encoder over one item embedding, trained together (DualRec, CIKM 2022).

    Training minimises :math:`\alpha L_{past} + (1 - \alpha) L_{future} + \beta T` with the term T of
    :func:`~recbole_hyper.encoders.dual_transfer.transfer`. The past state before item t and the future state after it
    both predict item t. Only the past encoder recommends. A backbone that takes ``direction`` is built in both
    directions; any other reads the reversed sequence.

    With ``dual_directions="shared"`` one network reads both directions (our reading of the ablation 'w/o DE'). With
    "past" or "future" one direction trains alone (Table 5), without alpha and beta. To recommend, "future" reads the
    history in reverse, nearest item first, so that each item keeps its distance to the predicted one (ours).
    """

    reads_future = True
    backbone: ClassVar[type[Encoder]]
    # whether the backbone's constructor takes direction and layer_dropout
    directed: ClassVar[bool]
    # options with another default and meaning than the backbone's
    backbone_defaults: ClassVar[Mapping[str, tuple[Any, str]]] = {}

    def __init_subclass__(cls, backbone: type[Encoder] | None = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if backbone is not None:
            if backbone.reads_times:
                raise TypeError(f"{cls.__name__}: {backbone.__name__} reads times, which dual encoders do not pass on")
            cls.backbone, cls.has_maps, cls.step_rows = backbone, backbone.has_maps, backbone.step_rows
            cls.directed = {"direction", "layer_dropout"} <= inspect.signature(backbone).parameters.keys()

    @classmethod
    @functools.cache
    def options(cls) -> Mapping[str, Option]:
        """Return the options of the pair and of its backbone."""
        backbone = dict(cls.backbone.options())
        for name, (default, about) in cls.backbone_defaults.items():
            backbone[name] = replace(backbone[name], default=default, about=about)
        options = {**super().options(), **backbone}
        return {name: replace(one, key=f"dual_{name}") if name == "windows" else one for name, one in options.items()}

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        names = ("dual_directions", "dual_beta", "dual_transfer", "dual_future_dropout")
        cls._check_backbone(*(options[name] for name in names))
        cls.backbone.check(width, **options)

    @classmethod
    def _check_backbone(cls, directions: str, beta: float, transfer_form: str, future_dropout: bool) -> None:
        """Raise ValueError for options that the backbone does not support."""
        if not future_dropout and not cls.directed:
            raise ValueError(
                f"dual_future_dropout=False needs a backbone with layer_dropout; {cls.backbone.__name__} has none"
            )
        if transfer_form == "attention" and _transfers(directions, beta, transfer_form) and not cls.has_maps:
            raise ValueError(
                f"dual_transfer='attention' needs attention maps; {cls.backbone.__name__} has none: use 'heads'"
            )

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        dual_directions: Annotated[
            Literal["both", "shared", "past", "future"], Option('shared: one net ("w/o DE")')
        ] = "both",
        dual_alpha: Annotated[Share, Option("share of the past loss; code: loss_ratio")] = 0.5,
        dual_beta: Annotated[NonNegativeFloat, Option("weight of the transfer term; code: aux_factor")] = 0.1,
        dual_transfer: Annotated[
            Literal["heads", "attention", "none"], Option('heads: code; none: "w/o BIT"')
        ] = "heads",
        dual_future_dropout: FutureDropout = True,
        **backbone_options: Any,
    ) -> None:
        super().__init__(item_embedding)
        self._check_backbone(dual_directions, dual_beta, dual_transfer, dual_future_dropout)
        backbone_options = {name: one for name, (one, _) in self.backbone_defaults.items()} | backbone_options
        self.alpha, self.beta = dual_alpha, dual_beta
        self.transfer_form, self.directions = dual_transfer, dual_directions
        self.past = None if dual_directions == "future" else self.backbone(item_embedding, **backbone_options)
        self.future: Encoder | None = None
        if dual_directions in ("both", "future"):
            extra: dict[str, Any] = {"direction": "future"} if self.directed else {}
            extra |= {} if dual_future_dropout else {"layer_dropout": False}
            self.future = self.backbone(item_embedding, **backbone_options, **extra)
        self._native_future = self.directed and dual_directions != "shared"

    @property
    def _transfers(self) -> bool:
        return _transfers(self.directions, self.beta, self.transfer_form)

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (B, L, d) that recommend: position i has seen items 0..i and predicts the next item."""
        if self.past is not None:
            return self.past(items, lengths)
        future = cast(Encoder, self.future)
        # the reversed history replaces the future that the network read in training
        return trace_reversed(future, items, lengths)[0] if self._native_future else future(items, lengths)

    def last(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (B, d) that recommend at the newest items."""
        return super().last(items, lengths) if self.past is None else self.past.last(items, lengths)

    def trace_past(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return states (B, L, d) and trace of the past direction: position i has seen items 0..i."""
        if self.past is None:
            raise ValueError("dual_directions='future' has no past direction")
        return self.past.trace(items, lengths, return_maps=return_maps)

    def trace_future(self, items: Tensor, lengths: Tensor, *, return_maps: bool = False) -> tuple[Tensor, Trace]:
        """Return states (B, L, d) and trace of the future direction: position i has seen items i..n-1."""
        if self.directions == "past":
            raise ValueError("dual_directions='past' has no future direction")
        network = cast(Encoder, self.past if self.future is None else self.future)
        if self._native_future:
            return network.trace(items, lengths, return_maps=return_maps)
        return trace_reversed(network, items, lengths, return_maps=return_maps)

    def both(self, items: Tensor, targets: Tensor, lengths: Tensor) -> DualStates:
        """Return the states over sequences of ``lengths`` (B,) + 1 items.

        ``items`` (B, L) lack the last item of a sequence, ``targets`` (B, L) the first.
        """
        return_maps = self._transfers and self.transfer_form == "attention"
        past = future = term = None
        if self.directions != "future":
            past, past_trace = self.trace_past(items, lengths, return_maps=return_maps)
        if self.directions != "past":
            future, future_trace = self.trace_future(targets, lengths, return_maps=return_maps)
        if self._transfers:
            term = transfer(past_trace, future_trace, lengths, self.transfer_form)
        return DualStates(past=past, future=future, transfer=term)

    def training_loss(
        self, items: Tensor, targets: Tensor, lengths: Tensor, loss_of: LossOf, *times: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective, and the terms that apply: ``past_loss``, ``future_loss`` and ``transfer_loss``.

        The past states predict ``targets``; the future states, which have read these, predict ``items``.
        """
        known = known_places(loss_of)
        past, future, shares, rows, columns = [], [], [], [], []
        for group, width in groups_with_widths(items, lengths, self.step_rows):
            states = self.both(items[group, :width], targets[group, :width], lengths[group])
            if known is None:
                real = (torch.arange(width, device=items.device) < lengths[group, None]).nonzero(as_tuple=True)
            else:
                real = (known.rows, known.flat % width)
            rows.append(real[0] + group.start)
            columns.append(real[1])
            if states.past is not None:
                past.append(at_places(states.past, *real))
            if states.future is not None:
                future.append(at_places(states.future, *real))
            if states.transfer is not None:
                shares.append(states.transfer * (lengths[group] > 0).sum())
        whole = torch.cat(rows), torch.cat(columns)
        losses = {}
        if past:
            losses["past_loss"] = loss_of(torch.cat(past), targets[whole], whole[0])
        if future:
            losses["future_loss"] = loss_of(torch.cat(future), items[whole], whole[0])
        if shares:
            losses["transfer_loss"] = torch.stack(shares).sum() / (lengths > 0).sum().clamp(min=1)
        if len(losses) == 1:
            total = next(iter(losses.values()))
        else:
            total = self.alpha * losses["past_loss"] + (1 - self.alpha) * losses["future_loss"]
            if shares:
                total = total + self.beta * losses["transfer_loss"]
        return total, {name: value.detach() for name, value in losses.items()}


class DualRecEncoder(DualEncoder, backbone=WindowedAttentionEncoder):
    """The encoder of DualRec: windowed multi-scale attention with relative positions in both directions."""

    model_defaults = WindowedAttentionEncoder.model_defaults

    def __init__(
        self, item_embedding: nn.Embedding, *, dual_future_dropout: FutureDropout = False, **options: Any
    ) -> None:
        super().__init__(item_embedding, dual_future_dropout=dual_future_dropout, **options)
