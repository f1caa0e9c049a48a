r"""The Moebius GRU recurrence over all steps as one differentiable function.

Forward, a step is three short chains in lifted coordinates (see ``_math``), features first and batch last, so that
every operation runs along contiguous memory even at width 5. Backward, all that does not depend on the incoming
gradient is computed for all steps at once. A Moebius sum :math:`\sigma = \sigma_1 \oplus \sigma_2`, with a scalar
function before or behind it, has a transposed Jacobian of the form

.. math:: J^T g = \alpha g + \sum_{i,j \in \{e, \sigma_1\}} b_i M_{ij} \langle b_j, g\rangle ,

identity plus rank two, whose scalars are computed in one go (``_Stage``). The loop over time only applies them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from recbole_hyper.hyperbolic._math import exp_factors, log_factors, max_rapidity, tiny

ACTIVATIONS = ("identity", "tanh")
RESETS = ("before", "after")


class _Stage(NamedTuple):
    """Transposed Jacobian: alpha (..., 1, B), matrix entries (..., 1, B) in the basis (e, sigma_1)."""

    alpha: Tensor
    ee: Tensor
    e1: Tensor
    se: Tensor
    s1: Tensor

    def after(
        self, gram: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor], f: Tensor, slope: Tensor
    ) -> _Stage:
        """Compose with a radial function f behind the sum; ``output`` are the coordinates of the sum."""
        ne, cross, n1 = gram
        a, b = output
        in_e, in_1 = ne * a + cross * b, cross * a + n1 * b
        left_e = slope * (self.alpha * a + self.ee * in_e + self.e1 * in_1)
        left_1 = slope * (self.alpha * b + self.se * in_e + self.s1 * in_1)
        return _Stage(
            self.alpha * f,
            torch.addcmul(left_e * a, self.ee, f),
            torch.addcmul(left_e * b, self.e1, f),
            torch.addcmul(left_1 * a, self.se, f),
            torch.addcmul(left_1 * b, self.s1, f),
        )

    def before(
        self, gram: tuple[Tensor, Tensor, Tensor], term: tuple[Tensor, Tensor], f: Tensor, slope: Tensor
    ) -> _Stage:
        """Compose with a radial function f before the sum; ``term`` are the coordinates of f's argument times f."""
        ne, cross, n1 = gram
        a, b = term
        weight = slope / f.square()
        row_e = weight * (self.alpha * a + (a * ne + b * cross) * self.ee + (a * cross + b * n1) * self.se)
        row_1 = weight * (self.alpha * b + (a * ne + b * cross) * self.e1 + (a * cross + b * n1) * self.s1)
        return _Stage(
            self.alpha * f,
            torch.addcmul(a * row_e, self.ee, f),
            torch.addcmul(a * row_1, self.e1, f),
            torch.addcmul(b * row_e, self.se, f),
            torch.addcmul(b * row_1, self.s1, f),
        )


class _Sum(NamedTuple):
    """The two transposed Jacobians of a Moebius sum and the coordinates of its vectors in the basis (e, sigma_1)."""

    gram: tuple[Tensor, Tensor, Tensor]
    output: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    left: _Stage
    right: _Stage


def _sum_stages(n2: Tensor, cross: Tensor, square_first: Tensor, c1: Tensor, c2: Tensor) -> _Sum:
    """Return the scalars of a sum with |e|^2 = n2, <e, sigma_1> = cross, |sigma_1|^2 and both cosh."""
    d = n2 + 1
    k = d.rsqrt() / c1
    k2 = k * c2
    p_e, p_1 = -k2 / d, k * (d + 1) / d  # twice the derivatives by n2
    rest = (n2 - c2 * cross) / c1.square()
    left = _Stage(
        k * n2 + k2 * c2,
        c2 * p_e,
        c2 * p_1,
        p_e * rest,
        torch.addcmul(p_1 * rest, k * n2 + k2 * c2, c1.square().reciprocal(), value=-1),
    )
    by_c2_e, by_c2_1 = (k + p_e * cross) / c1, (k2 + p_1 * cross) / c1
    right = _Stage(k2 * c1, c1 * p_e + by_c2_e / c2, c1 * p_1 + by_c2_1 / c2, -by_c2_e, -by_c2_1)
    return _Sum((n2, cross, square_first), (k2, k * n2), (1 / c1, -c2 / c1), left, right)


def _stack(*stages: _Stage) -> tuple[Tensor, Tensor, Tensor]:
    """Return alpha (L, O, ...), the column that multiplies <e, g> and that of <sigma_1, g>, (L, 2, O, ...)."""
    alpha = torch.stack([stage.alpha for stage in stages], 1)
    by_e = torch.stack([torch.stack([s.ee for s in stages], 1), torch.stack([s.se for s in stages], 1)], 1)
    by_1 = torch.stack([torch.stack([s.e1 for s in stages], 1), torch.stack([s.s1 for s in stages], 1)], 1)
    return alpha, by_e, by_1


def _apply(g: Tensor, e: Tensor, s: Tensor, alpha: Tensor, by_e: Tensor, by_1: Tensor) -> Tensor:
    """Apply stacked stages to g (G, d, B): returns (O, G, d, B)."""
    coefficients = by_e * (g * e).sum(-2, keepdim=True)
    coefficients.addcmul_(by_1, (g * s).sum(-2, keepdim=True))
    out = alpha * g
    return out.addcmul_(coefficients[0], e).addcmul_(coefficients[1], s)


def _apply_all(g: Tensor, e: Tensor, s: Tensor, stage: _Stage) -> Tensor:
    """Apply one stage to the gradients of all steps at once."""
    dot_e, dot_s = (g * e).sum(-2, keepdim=True), (g * s).sum(-2, keepdim=True)
    out = stage.alpha * g
    out.addcmul_(torch.addcmul(stage.ee * dot_e, stage.e1, dot_s), e)
    return out.addcmul_(torch.addcmul(stage.se * dot_e, stage.s1, dot_s), s)


class _Buffers:
    """Values of the forward pass that the backward pass reads, time first."""

    def __init__(self, length: int, width: int, batch: int, like: Tensor) -> None:
        def make(*shape: int) -> Tensor:
            return like.new_empty(length, *shape)

        # three gates in the order r, z, candidate
        self.tangent_square = make(3, 1, batch)
        self.lifted, self.lifted_cosh = make(3, width, batch), make(3, 1, batch)
        self.e1, self.n1 = make(3, width, batch), make(3, 1, batch)
        self.p1, self.p1_cosh = make(3, width, batch), make(3, 1, batch)
        self.e2, self.n2 = make(3, width, batch), make(3, 1, batch)
        self.gates = make(2, width, batch)
        self.state, self.state_cosh = make(width, batch), make(1, batch)  # minus the lifted previous state
        self.eq, self.nq, self.candidate_cosh = make(width, batch), make(1, batch), make(1, batch)
        self.w, self.move_square, self.move_cosh = make(width, batch), make(1, batch), make(1, batch)
        self.e3, self.n3 = make(width, batch), make(1, batch)


class MoebiusRecurrence(torch.autograd.Function):
    r"""All steps of the Moebius GRU in the ball of curvature 1.

    Inputs: ``inputs`` (L, 3, d, B) lifted points U(x)x for r, z, candidate; ``bias`` (3, d) lifted biases; ``weight``
    (3d, d) recurrent matrices; ``start`` (d, B) tangent initial states, norm at most max_rapidity; ``scale`` 0-d,
    :math:`1/\sqrt c`, by which gate arguments are multiplied; ``activation``, ``reset``. Output: tangent states
    (L, d, B), norm at most max_rapidity.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        bias: Tensor,
        weight: Tensor,
        start: Tensor,
        scale: Tensor,
        activation: str,
        reset: str,
    ) -> Tensor:
        length, _, width, batch = inputs.shape
        limit, guard = max_rapidity(inputs.dtype), tiny(inputs.dtype)
        tanh, after = activation == "tanh", reset == "after"
        rho = float(scale)
        save = _Buffers(length, width, batch, inputs)
        input_cosh = inputs.square().sum(2, keepdim=True).add_(1).sqrt_()
        b = bias[:, :, None]
        b_cosh = b.square().sum(1, keepdim=True).add_(1).sqrt_()
        gate_weight, last_weight = weight[: 2 * width], weight[2 * width :]
        states = inputs.new_empty(length + 1, width, batch)
        states[0] = start
        projected = inputs.new_empty(length if after else 0, width, batch)
        ratio, cosh, _ = exp_factors(start.square().sum(0, keepdim=True), limit)
        minus, h_cosh = start * -ratio, cosh

        def chain(argument: Tensor, part: slice, t: int) -> tuple[Tensor, Tensor]:
            """exp_0(argument) (+) input (+) bias: returns the vector of the sum times its cosh, and its cosh."""
            square = torch.sum(argument.square(), 1, keepdim=True, out=save.tangent_square[t, part])
            norm = (square + guard).sqrt_()
            sinh = norm.clamp(max=limit).sinh_()
            lifted = torch.mul(argument, sinh / norm, out=save.lifted[t, part])
            cosh = torch.sqrt(sinh.square_().add_(1), out=save.lifted_cosh[t, part])
            x, x_cosh = inputs[t, part], input_cosh[t, part]
            e1 = torch.mul(x, cosh, out=save.e1[t, part]).addcmul_(lifted, x_cosh)
            n1 = torch.sum(e1.square(), 1, keepdim=True, out=save.n1[t, part])
            c1 = torch.sqrt(n1 + 1, out=save.p1_cosh[t, part])
            k = (c1 * cosh).reciprocal_()
            p1 = torch.mul(e1, k * x_cosh, out=save.p1[t, part]).addcmul_(lifted, k.mul_(n1))
            bias_part, bias_cosh = b[part], b_cosh[part]
            e2 = torch.mul(p1, bias_cosh, out=save.e2[t, part]).addcmul_(bias_part, c1)
            n2 = torch.sum(e2.square(), 1, keepdim=True, out=save.n2[t, part])
            return (e2 * (bias_cosh / c1)).addcmul_(p1, n2 / c1), n2

        def log_ratio(n2: Tensor) -> tuple[Tensor, Tensor]:
            """Return asinh(n) / n and sqrt(1 + n^2)."""
            guarded = n2 + guard
            n, cosh = guarded.sqrt(), (n2 + 1).sqrt_()
            return guarded.div_(cosh + 1).add_(n).log1p_().div_(n), cosh

        for t in range(length):
            v = states[t]
            arguments = torch.mm(weight if after else gate_weight, v).view(-1, width, batch)
            vector, n2 = chain(arguments[:2], slice(0, 2), t)
            f, cosh = log_ratio(n2)
            gates = torch.sigmoid(vector.mul_(f.mul_(rho).div_(cosh)), out=save.gates[t])
            r, z = gates[0], gates[1]
            if after:
                projected[t] = arguments[2]
                argument = r * arguments[2]
            else:
                argument = torch.mm(last_weight, r * v)
            vector, n2 = chain(argument[None], slice(2, 3), t)
            if tanh:
                f, cosh = log_ratio(n2)
                tangent = torch.tanh(vector[0].mul_(f.mul_(rho).div_(cosh)[0])).div_(rho)
                norm = (tangent.square().sum(0, keepdim=True) + guard).sqrt_()
                sinh = norm.clamp(max=limit).sinh_()
                candidate = tangent.mul_(sinh / norm)
                c_cosh = torch.sqrt(sinh.square_().add_(1), out=save.candidate_cosh[t])
            else:
                c_cosh = torch.sqrt(n2[0] + 1, out=save.candidate_cosh[t])
                candidate = vector[0].div_(c_cosh)
            save.state[t], save.state_cosh[t] = minus, h_cosh
            # w = log_0(-h (+) candidate)
            eq = torch.mul(candidate, h_cosh, out=save.eq[t]).addcmul_(minus, c_cosh)
            nq = torch.sum(eq.square(), 0, keepdim=True, out=save.nq[t])
            f, cosh = log_ratio(nq)
            k = f.div_(cosh.mul_(h_cosh))
            w = torch.mul(eq, k * c_cosh, out=save.w[t]).addcmul_(minus, k.mul_(nq))
            # h' = h (+) exp_0(z w)
            move = z * w
            square = torch.sum(move.square(), 0, keepdim=True, out=save.move_square[t])
            norm = (square + guard).sqrt_()
            sinh = norm.sinh()
            m_cosh = torch.sqrt(sinh.square().add_(1), out=save.move_cosh[t])
            e3 = torch.mul(move, sinh.div_(norm).mul_(h_cosh), out=save.e3[t]).addcmul_(minus, m_cosh, value=-1)
            n3 = torch.sum(e3.square(), 0, keepdim=True, out=save.n3[t])
            guarded = n3 + guard
            n, cosh = guarded.sqrt(), (n3 + 1).sqrt_()
            k = (cosh * h_cosh).reciprocal_()
            lifted = (e3 * (k * m_cosh)).addcmul_(minus, k.mul_(n3), value=-1)
            s = guarded.div_(cosh + 1).add_(n).log1p_().clamp_(max=limit)
            torch.mul(lifted, s / n, out=states[t + 1])
            sinh = s.sinh()
            minus = lifted.mul_(sinh.div(n).neg_())
            h_cosh = sinh.square_().add_(1).sqrt_()
        ctx.save_for_backward(inputs, bias, weight, states, scale)
        ctx.values, ctx.options, ctx.projected, ctx.coshes = save, (tanh, after), projected, (input_cosh, b_cosh)
        return states[1:]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, _, weight, states, scale = ctx.saved_tensors
        save: _Buffers = ctx.values
        tanh, after = ctx.options
        input_cosh, b_cosh = ctx.coshes
        length, _, width, batch = inputs.shape
        limit, rho = max_rapidity(inputs.dtype), scale
        previous = states[:-1]

        # sums of the three gates: first exp_0(W v) (+) input, then (+) bias
        ratio, _, slope = exp_factors(save.tangent_square, limit)
        first = _sum_stages(
            save.n1,
            (save.e1 * save.lifted).sum(2, keepdim=True),
            save.lifted_cosh.square() - 1,
            save.lifted_cosh,
            input_cosh,
        )
        one, zero = torch.ones_like(save.n1), torch.zeros_like(save.n1)
        enter = first.left.before(first.gram, (zero, one), ratio, slope)
        second = _sum_stages(
            save.n2, (save.e2 * save.p1).sum(2, keepdim=True), save.n1, save.p1_cosh, b_cosh.expand_as(save.n2)
        )
        f, _, slope = log_factors(save.n2)
        if not tanh:  # the candidate is not taken back to the tangent space
            f, slope = f.clone(), slope.clone()
            f[:, 2], slope[:, 2] = 1, 0
        leave = second.left.after(second.gram, second.output, f, slope)
        leave_bias = second.right.after(second.gram, second.output, f, slope)

        # w = log_0(-h (+) candidate)
        fq, _, slope_q = log_factors(save.nq)
        cross = (save.eq * save.state).sum(1, keepdim=True)
        state_square = save.state_cosh.square() - 1
        between = _sum_stages(save.nq, cross, state_square, save.state_cosh, save.candidate_cosh)
        to_candidate = between.right.after(between.gram, between.output, fq, slope_q)
        to_minus = between.left.after(between.gram, between.output, fq, slope_q)
        activated = tangent = None
        if tanh:
            output = second.output
            tangent = f[:, 2] * (output[0][:, 2] * save.e2[:, 2] + output[1][:, 2] * save.p1[:, 2])
            activated = torch.tanh(tangent * rho)
            rc, _, slope_c = exp_factors((activated / rho).square().sum(1, keepdim=True), limit)
            to_candidate = to_candidate.before(between.gram, between.second, rc, slope_c)

        # h' = log_0(h (+) exp_0(z w)); the basis vector is -h, so odd entries change sign
        fm, _, slope_m = exp_factors(save.move_square, float("inf"))
        f3, _, slope_3 = log_factors(save.n3, limit)
        lifted_state = -save.state
        moved = _sum_stages(
            save.n3, (save.e3 * lifted_state).sum(1, keepdim=True), state_square, save.state_cosh, save.move_cosh
        )
        to_state = moved.left.after(moved.gram, moved.output, f3, slope_3)
        to_move = moved.right.after(moved.gram, moved.output, f3, slope_3).before(moved.gram, moved.second, fm, slope_m)

        rh, _, slope_h = exp_factors(previous.square().sum(1, keepdim=True), limit)
        gate_slope = save.gates * (1 - save.gates) * rho
        tanh_slope = (1 - activated.square()) if activated is not None else None

        move_a, move_e, move_s = (part.unbind(0) for part in _stack(to_move, to_state))
        between_a, between_e, between_s = (part.unbind(0) for part in _stack(to_candidate, to_minus))
        leave_a, leave_e, leave_s = (part.unbind(0) for part in _stack(leave))
        enter_a, enter_e, enter_s = (part.unbind(0) for part in _stack(enter))

        gate_adjoint = torch.empty_like(save.e2)  # at the tangent sums (candidate: at the lifted sum, or tangent)
        sum_adjoint = torch.empty_like(save.e2)  # at exp_0(W v) (+) input
        argument_adjoint = torch.empty_like(save.e2)  # at W v
        candidate_adjoint = torch.empty_like(previous) if tanh else None
        gate_weight, last_weight = weight[: 2 * width].t(), weight[2 * width :].t()
        whole_weight = weight.t()
        carry = torch.zeros_like(states[0])
        two, three = slice(0, 2), slice(2, 3)
        for t in reversed(range(length)):
            g = gradients[0][t] + carry
            to_u, g_h = _apply(g, save.e3[t], lifted_state[t], move_a[t], move_e[t], move_s[t])
            z, v = save.gates[t, 1], previous[t]
            torch.mul(to_u * save.w[t], gate_slope[t, 1], out=gate_adjoint[t, 1])
            g_c, g_m = _apply(to_u.mul_(z), save.eq[t], save.state[t], between_a[t], between_e[t], between_s[t])
            g_h.sub_(g_m)
            if candidate_adjoint is not None and tanh_slope is not None:
                candidate_adjoint[t] = g_c
                g_c = g_c.mul_(tanh_slope[t])
            gate_adjoint[t, 2] = g_c

            def chain(part: slice, t: int) -> Tensor:
                inner = _apply(
                    gate_adjoint[t, part],
                    save.e2[t, part],
                    save.p1[t, part],
                    leave_a[t][:, part],
                    leave_e[t][:, :, part],
                    leave_s[t][:, :, part],
                )[0]
                sum_adjoint[t, part] = inner
                outer = _apply(
                    inner,
                    save.e1[t, part],
                    save.lifted[t, part],
                    enter_a[t][:, part],
                    enter_e[t][:, :, part],
                    enter_s[t][:, :, part],
                )[0]
                argument_adjoint[t, part] = outer
                return outer

            g_a = chain(three, t)[0]
            carry = g_h * rh[t]
            carry.addcmul_(v, (g_h * v).sum(0, keepdim=True).mul_(slope_h[t]))
            if after:
                torch.mul(g_a * ctx.projected[t], gate_slope[t, 0], out=gate_adjoint[t, 0])
                argument_adjoint[t, 2].mul_(save.gates[t, 0])
                chain(two, t)
                carry.addmm_(whole_weight, argument_adjoint[t].view(3 * width, batch))
            else:
                g_rv = torch.mm(last_weight, g_a)
                torch.mul(g_rv * v, gate_slope[t, 0], out=gate_adjoint[t, 0])
                carry.addcmul_(g_rv, save.gates[t, 0])
                carry.addmm_(gate_weight, chain(two, t).view(2 * width, batch))

        grad_inputs = grad_bias = grad_weight = grad_scale = None
        if ctx.needs_input_grad[0]:
            grad_inputs = _apply_all(sum_adjoint, save.e1, save.lifted, first.right)
        if ctx.needs_input_grad[1]:
            grad_bias = _apply_all(gate_adjoint, save.e2, save.p1, leave_bias).sum((0, 3))
        if ctx.needs_input_grad[2]:
            flat = argument_adjoint.view(length, 3 * width, batch)
            right = previous.transpose(1, 2)
            if after:
                grad_weight = torch.bmm(flat, right).sum(0)
            else:
                gates_part = torch.bmm(flat[:, : 2 * width], right).sum(0)
                reset_states = (save.gates[:, 0] * previous).transpose(1, 2)
                grad_weight = torch.cat([gates_part, torch.bmm(flat[:, 2 * width :], reset_states).sum(0)])
        if ctx.needs_input_grad[4]:
            out_e, out_1 = second.output
            arguments = f * (out_e * save.e2 + out_1 * save.p1)
            grad_scale = (gate_adjoint[:, :2] * arguments[:, :2]).sum() / rho
            if candidate_adjoint is not None and activated is not None and tangent is not None:
                by_scale = tangent * (1 - activated.square()) / rho - activated / rho**2
                grad_scale = grad_scale + (candidate_adjoint * by_scale).sum()
        return grad_inputs, grad_bias, grad_weight, carry, grad_scale, None, None
