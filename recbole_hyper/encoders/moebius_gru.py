"""Moebius gated recurrent units (Ganea, Becigneul and Hofmann, 2018), with the interface of torch.nn.GRU."""

import math
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from recbole_hyper.encoders import options as opt
from recbole_hyper.encoders.base import Dropout, Encoder, newest
from recbole_hyper.encoders.gru import resolve_width
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.hyperbolic import _math as hyperbolic
from recbole_hyper.hyperbolic.manifold import SharedBall, ball_parameter, poincare_ball
from recbole_hyper.hyperbolic.recurrence import ACTIVATIONS, RESETS, recurrence
from recbole_hyper.options import Option
from recbole_hyper.values import Auto, PositiveFloat32

# allowed values
_WORDS = {"inputs": ("tangent", "ball"), "nonlinearity": ACTIVATIONS, "reset": RESETS}


class MoebiusGRU(nn.Module):
    r"""A multi-layer GRU whose states are points of the Poincare ball.

    With :math:`\oplus, \otimes` the Moebius sum and product in the ball of curvature c and
    :math:`f^\otimes(v) = \exp_0 f(\log_0 v)`, every layer computes (sums associate to the left)

    .. math::
        r &= \sigma(\log_0(W_r \otimes h \oplus U_r \otimes x \oplus b_r)) \\
        z &= \sigma(\log_0(W_z \otimes h \oplus U_z \otimes x \oplus b_z)) \\
        \tilde h &= \varphi^\otimes((W\,\mathrm{diag}(r)) \otimes h \oplus U \otimes x \oplus b) \\
        h' &= h \oplus \mathrm{diag}(z) \otimes (-h \oplus \tilde h)

    (Ganea et al. 2018, section 3.3, with the product by diag as corrected there). As c -> 0 it becomes the GRU
    h' = (1 - z) h + z h~. The limit of ``nonlinearity="tanh", reset="after"`` is ``torch.nn.GRU`` with b_hn = 0 and
    negated W_z, U_z, b_z.

    Each layer has ``weight_ih_l0`` (3 hidden, in) and ``weight_hh_l0`` (3 hidden, hidden), Euclidean, uniform in
    +-1/sqrt(hidden), and ``bias_l0`` (3, hidden), points of the ball near 0 (geoopt ManifoldParameter). The gates are
    in the order r, z, candidate.

    Inside, points have the form sinh(s) x/|x| with s = artanh(sqrt(c)|x|). So nothing computes 1 - c|x|^2, and float32
    suffices. W (x) h, U (x) x, biases and the new state are projected to s <= 7 (15 in float64), with the derivatives
    of the projected functions. Autocast does not apply. On a CPU in float32 numba compiles the recurrence (about 20
    seconds at the first call, then cached); elsewhere it is a loop of torch operations.

    Args:
        num_layers: a layer passes log_0 of its states to the next.
        batch_first: sequences are (B, L, .) instead of (L, B, .).
        dropout: rate on the tangent vectors between layers.
        curvature: c > 0; "learn" (one c for all layers, 1 at first and at least 1e-6, below which its float32 gradient
            would be noise); "auto" (wait for :meth:`set_curvature`).
        inputs: "tangent" (Euclidean vectors, read as tangent vectors at the origin) or "ball" (points).
        nonlinearity: phi of the candidate: "identity" (the paper) or "tanh".
        reset: "before" (W diag(r), the paper) or "after" the matrix (diag(r) (x) (W (x) h), as torch.nn.GRU).
        bias: train the three biases of a layer; False keeps them at 0.

    ValueError for an argument out of range.
    """

    weight_hh_l0: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        curvature: float | str = 1.0,
        inputs: str = "tangent",
        *,
        nonlinearity: str = "identity",
        reset: str = "before",
        bias: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if value < 1:
                raise ValueError(f"{name}={value} must be a whole number of at least 1")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} must be in [0, 1)")
        for name, word in (("inputs", inputs), ("nonlinearity", nonlinearity), ("reset", reset)):
            if word not in _WORDS[name]:
                raise ValueError(f"{name}={word!r} must be {' or '.join(_WORDS[name])}")
        if isinstance(curvature, str) and curvature not in ("auto", "learn"):
            raise ValueError(f"curvature={curvature!r} must be a number above 0, 'auto' or 'learn'")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.inputs = batch_first, dropout, inputs
        self.nonlinearity, self.reset = nonlinearity, reset
        self.learned = curvature == "learn"
        self.pending = curvature == "auto"
        self.fixed_curvature = 1.0 if isinstance(curvature, str) else float(curvature)
        self.ball = poincare_ball(self.fixed_curvature, learnable=self.learned)
        bound = 1 / math.sqrt(hidden_size)
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size
            for name, columns in (("ih", width), ("hh", hidden_size)):
                weight = nn.Parameter(torch.empty(3 * hidden_size, columns).uniform_(-bound, bound))
                self.register_parameter(f"weight_{name}_l{layer}", weight)
            points = hyperbolic.exp0(torch.randn(3, hidden_size) * (1e-5 if bias else 0), self.fixed_curvature)
            self.register_parameter(f"bias_l{layer}", ball_parameter(points, self.ball))
            getattr(self, f"bias_l{layer}").requires_grad_(bias)

    @property
    def curvature(self) -> float | Tensor:
        """The curvature c: a number, or a 0-d tensor with gradient if it is learned."""
        if self.pending:
            raise RuntimeError("curvature='auto' has no value yet: call set_curvature with an estimate from the data")
        return self.ball.c if self.learned else self.fixed_curvature

    def set_curvature(self, curvature: float) -> None:
        """Set the curvature, or with 'learn' its initial value; biases keep their tangent vectors."""
        tangents = {
            name: hyperbolic.log0(point.detach(), float(self.ball.c.detach()))
            for name, point in self.named_parameters()
            if name.startswith("bias_l")
        }
        fresh = poincare_ball(curvature, learnable=self.learned)
        with torch.no_grad():
            self.ball.isp_c.copy_(fresh.isp_c)
            for name, tangent in tangents.items():
                getattr(self, name).copy_(hyperbolic.exp0(tangent, curvature))
        self.fixed_curvature, self.pending = float(curvature), False

    def share_curvature(self, head: OutputHead) -> None:
        """Use the learned curvature of ``head`` from now on; biases stay."""
        self.learned, self.pending = True, False
        self.ball = SharedBall(head)
        for layer in range(self.num_layers):
            getattr(self, f"bias_l{layer}").manifold = self.ball

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, batch_first={self.batch_first}, "
            f"inputs={self.inputs}, nonlinearity={self.nonlinearity}, reset={self.reset}"
        )

    def forward(self, inputs: Tensor, h0: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return points of the ball, as torch.nn.GRU: all states of the last layer, and the last state of every layer.

        Args:
            inputs: (L, B, in), or (B, L, in) with ``batch_first``, or (L, in) without a batch; the output has its form.
            h0: points (num_layers, B, hidden), or (num_layers, hidden) without a batch; default 0.
            lengths: real steps (B,) of right-padded inputs, each in 1..L; later states are unspecified.

        ValueError for an empty batch, a length of 0 or above L, NaN, a point outside the ball, wrong widths.
        """
        if inputs.dim() == 2:
            states = self._run(inputs.unsqueeze(1), None if h0 is None else h0.unsqueeze(1), lengths)
            output, last = (part.squeeze(1) for part in states)
        else:
            output, last = self.tangent_states(inputs, h0, lengths)
        return hyperbolic.exp0(output, self.curvature), hyperbolic.exp0(last, self.curvature)

    def tangent_states(
        self, inputs: Tensor, h0: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the states of forward for a batch as tangent vectors log_0(h)."""
        output, last = self._run(inputs.transpose(0, 1) if self.batch_first else inputs, h0, lengths)
        return (output.transpose(0, 1) if self.batch_first else output), last

    def _run(self, inputs: Tensor, h0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the tangent states (L, B, hidden) and (num_layers, B, hidden) after ``inputs`` (L, B, in)."""
        # graph formats cannot store the end of autocast
        exporting = torch.compiler.is_exporting()
        with nullcontext() if exporting else torch.autocast(inputs.device.type, enabled=False):
            return self._run_layers(inputs.to(self.weight_hh_l0.dtype), h0, lengths)

    def _run_layers(self, inputs: Tensor, h0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        batch = self._check(inputs, lengths)
        curvature = self.curvature
        root = curvature**0.5 if isinstance(curvature, Tensor) else inputs.new_full((), curvature**0.5)
        if self.inputs == "ball":
            hyperbolic.check_points(inputs, float(root.detach()) ** 2, "inputs")
            tangent = hyperbolic.log0(inputs, curvature) * root
        else:
            hyperbolic.check_finite(inputs, "inputs")
            tangent = inputs * root
        if h0 is None:
            starts = inputs.new_zeros(self.num_layers, batch, self.hidden_size)
        else:
            expected = (self.num_layers, batch, self.hidden_size)
            if h0.shape != expected:
                raise ValueError(f"h0 {tuple(h0.shape)} must have shape (num_layers, batch, hidden_size) = {expected}")
            hyperbolic.check_points(h0, float(root.detach()) ** 2, "h0")
            starts = hyperbolic.log0(h0.to(inputs.dtype), curvature) * root
        last, states = [], tangent
        for layer in range(self.num_layers):
            if layer and self.dropout:
                states = nn.functional.dropout(states, self.dropout, self.training)
            weight_ih, weight_hh = getattr(self, f"weight_ih_l{layer}"), getattr(self, f"weight_hh_l{layer}")
            point = getattr(self, f"bias_l{layer}")
            # export replaces it by a plain tensor, and as_subclass would break the trace
            point = point if torch.compiler.is_exporting() else point.as_subclass(Tensor)
            bias = hyperbolic.lift_point(point, curvature)
            moved = nn.functional.linear(states, weight_ih)  # one product for all steps and gates: (L, B, 3d)
            states = recurrence(moved, bias, weight_hh, starts[layer], 1 / root, self.nonlinearity, self.reset)
            last.append(states[-1] if lengths is None else newest(states.transpose(0, 1), lengths.to(states.device)))
        return states / root, torch.stack(last) / root

    def _check(self, inputs: Tensor, lengths: Tensor | None) -> int:
        """Return the batch size; ValueError for impossible inputs or lengths."""
        if inputs.dim() != 3 or inputs.shape[2] != self.input_size:
            raise ValueError(f"inputs {tuple(inputs.shape)}: the last dimension must be {self.input_size}")
        length, batch, _ = inputs.shape
        if length == 0 or batch == 0:
            raise ValueError(f"inputs have {length} steps and {batch} rows; both must be at least 1")
        if lengths is not None:
            if lengths.shape != (batch,):
                raise ValueError(f"lengths {tuple(lengths.shape)} must have shape ({batch},)")
            low, high = int(lengths.min()), int(lengths.max())
            if low < 1 or high > length:
                raise ValueError(f"lengths {low} to {high} must be within 1 and {length}: drop empty sequences")
        return batch


class MoebiusGRUEncoder(Encoder):
    """Moebius GRU over item vectors, which it reads as tangent vectors at the origin.

    Its states are tangent vectors too, log_0 of the GRU's points; the Poincare head applies exp_0. ``dense`` maps
    tangent vectors, which is a Moebius matrix product of the points.
    """

    step_rows = 12  # measured: 12 to 13 at widths 32 to 128

    @classmethod
    def check(cls, width: int, **options: Any) -> None:
        resolve_width(options["gru_size"], width, dense=options["dense"])

    def __init__(
        self,
        item_embedding: nn.Embedding,
        *,
        gru_size: opt.GRUSize = None,
        n_layers: Annotated[opt.Layers, "layers; HNN code: argument default 1, README 2"] = 1,
        dropout_prob: Annotated[opt.GRUDropout, "of the item vectors and between layers; as gru"] = 0.3,
        curvature: Annotated[PositiveFloat32 | Literal["auto", "learn"], Option("c of the ball; HNN")] = 1.0,
        curvature_init: Annotated[
            PositiveFloat32 | Auto, Option("initial value of a learned curvature; auto: estimated before")
        ] = "auto",
        nonlinearity: Annotated[
            Literal["identity", "tanh"], Option("of the candidate state; Ganea et al.")
        ] = "identity",
        reset: Annotated[
            Literal["before", "after"], Option("gate before (Ganea) or after (torch) the matrix")
        ] = "before",
        dense: Annotated[opt.Dense, "linear map of the GRU's tangent vectors; as gru"] = True,
    ) -> None:
        super().__init__(item_embedding)
        width = item_embedding.embedding_dim
        gru_size = resolve_width(gru_size, width, dense=dense)
        self.dropout = Dropout(dropout_prob)
        self.gru = MoebiusGRU(
            width,
            gru_size,
            n_layers,
            True,
            dropout_prob if n_layers > 1 else 0.0,
            curvature,
            nonlinearity=nonlinearity,
            reset=reset,
        )
        if curvature == "learn" and curvature_init != "auto":
            self.gru.set_curvature(float(curvature_init))
        self.dense = nn.Linear(gru_size, width, bias=False) if dense else nn.Identity()

    def share_curvature(self, head: OutputHead) -> None:
        """If GRU and ``head`` both learn a curvature, use that of the head."""
        if self.gru.learned and head.log_curvature is not None:
            self.gru.share_curvature(head)

    def forward(self, items: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.gru.tangent_states(self.dropout(self.item_embedding(items)))
        return self.dense(states)
