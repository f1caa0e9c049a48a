"""Multinomial logistic regression on the Poincare ball, as one matrix product on the hyperboloid.

The lifts have their gradients in closed form: ten operations each, not a hundred.

With c the curvature, x = 2 sqrt(c) |F| and b = 2 sqrt(c) r, and all but the scale times exp(-exponent):

    states   A = [k F, -C],   k = 2 sqrt(c) sinh(x) / x,   C = cosh(x)                    exponent x
    items    multiplier = cosh(b) / |z|,   extra = sinh(b),   scale = 2 |z| / sqrt(c)       exponent |b|

An exponent is a constant, so exp(-exponent) is a factor of each derivative. The backward passes use inputs and outputs
of the forward passes alone, so they are differentiable themselves.

The link asinh neither overflows nor loses digits, and has a compiled kernel on a CPU.
"""

from typing import Any

import torch
from torch import Tensor

from recbole_hyper.geometry.base import EXPONENT_LIMIT, Geometry, ItemTerms, LiftedStates, Theta

# |F| and |z| are at least this: far below any trained norm, its square still a normal float32
NORM_FLOOR = 1e-15
PARALLEL = 64  # roundings of a product that may hide a state's side of a hyperplane
KERNEL_FROM = 1 << 22  # torch takes 30 ms for fewer numbers, a kernel is compiled in seconds


class Poincare(Geometry):
    r"""The hyperbolic head of HSASRec (Ganea et al. 2018, eq. 25), without ball arithmetic; theta is the curvature c.

    State F goes to the ball by exp_0; item j is the hyperplane with tangent vector z_j (its embedding) and scalar
    offset r_j. With :math:`s=\sqrt c|F|`, :math:`b=2\sqrt c\,r`, :math:`\hat z=z/|z|` the published score is exactly

    .. math:: \frac{2|z|}{\sqrt c}\,\mathrm{asinh}\big(\sinh 2s\cosh b\,\langle\hat F,\hat z\rangle-\cosh 2s\sinh b\big)

    so A = [sinh(2s) F/|F|, -cosh(2s)], B = [cosh(b) z/|z|, sinh(b)], scale = 2|z|/sqrt(c), link = asinh. As c -> 0 it
    tends to 4(<z, F> - r|z|). Without offsets there is no last column.

    Where exp(2s + |b|) squared overflows (above 43 in float32), exp(2s) and exp(|b|) are taken out as exponents. The
    product <A, B> then has an absolute error of about eps * exp(2s + |b|), as much as rounding the states causes.

    At z = 0 the score has no gradient; |z| is at least 1e-15, which gives the limit of small |z| instead.
    """

    curved = has_link = asinh_link = True
    # the HSASRec paper's data sets have 0.012 to 0.041
    model_defaults = {"curvature": 0.02}

    def lift_states(self, states: Tensor, *, theta: Theta, offset: bool, factored: bool = False) -> LiftedStates:
        """Return A (n, d + 1), or (n, d) without offsets; with ``factored`` times exp(-exponent), exponent = 2s."""
        return LiftedStates(*lifted_states(states, theta, offset=offset, factored=factored))

    def lift_items(self, weight: Tensor, offset: Tensor | None, *, theta: Theta, factored: bool = False) -> ItemTerms:
        """Return the terms of B; with ``factored`` times exp(-exponent), exponent = |b|."""
        multiplier, extra, scale, exponent = lifted_items(weight, offset, theta, factored=factored)
        return ItemTerms(multiplier, None if extra is None else extra.unsqueeze(-1), scale, exponent)

    def link(self, inner: Tensor, exponent: Tensor | None = None) -> Tensor:
        """Return asinh(inner * exp(exponent))."""
        return asinh(inner) if exponent is None else scaled_asinh(inner, exponent)

    def link_(self, inner: Tensor, slope: Tensor, scratch: Tensor, exponent: Tensor | None = None) -> None:
        """Replace ``inner`` by asinh(inner * exp(exponent)); slope is its derivative by the old ``inner``.

        ``exponent`` is overwritten.
        """
        if exponent is None:
            asinh_(inner, slope, scratch)
        else:
            scaled_asinh_(inner, slope, exponent)

    def combine(self, lifted: LiftedStates, terms: ItemTerms, vectors: Tensor) -> Tensor:
        """Return the logits; on a CPU also those whose product has no digit left, as F is far out and parallel to z."""
        logits = super().combine(lifted, terms, vectors)
        scale, plain = terms.scale, logits.device.type != "cpu" or torch.compiler.is_exporting()
        if plain or terms.extra is None or scale is None or not logits.numel():
            return logits
        with torch.no_grad():
            index, exact = parallel_links(lifted, terms, vectors)
            if not len(exact):
                return logits
            exact = exact.to(logits.dtype) * scale[(*index[:-2], index[-1])]
            known = logits.detach()
            # the gradient stays as it is: it has the digits of the product
            more = known.index_put(index, exact) - known
        return logits + more

    @torch.no_grad()
    def search_items(self, weight: Tensor, offset: Tensor | None = None, *, theta: Theta = 1.0) -> Tensor:
        r"""Return :math:`scale_j B_j / |B_j|` (m, width), which sort items nearly, not exactly, as the logits do.

        At a large curvature they find more of the true top logits than the lift or the scaled lift; as c -> 0 they and
        the scaled lift are exact (recall in tests/losses/test_bucket_recall.py).
        """
        terms = self.lift_items(weight, offset, theta=theta, factored=True)
        vectors = terms.vectors(weight)
        assert terms.scale is not None
        return vectors * (terms.scale / vectors.norm(dim=-1)).unsqueeze(-1)

    search_score = "scale * asinh(gain * <q, vector>)"

    def search_query(self, *, offset: bool) -> str:
        query = "[sinh(2s) F/|F|, -cosh(2s)]" if offset else "sinh(2s) F/|F|"
        return f"{query} with s = sqrt(curvature) |F| (any positive multiple of q gives the same order)"

    @torch.no_grad()
    def search_factors(self, weight: Tensor, offset: Tensor | None, *, theta: Theta) -> dict[str, Tensor]:
        # in float64: cosh and sinh of large offsets
        weight, offset = weight.double(), None if offset is None else offset.double()
        terms = self.lift_items(weight, offset, theta=theta)
        assert terms.scale is not None
        return {"scale": terms.scale, "gain": terms.vectors(weight).norm(dim=-1) / terms.scale}

    measure = "minus the geodesic distance on the ball"

    def similarity(self, queries: Tensor, weight: Tensor, *, theta: Theta = 1.0) -> Tensor:
        r"""Return minus the geodesic distance of exp_0(z_i) and exp_0(z_j) on the ball of curvature -c.

        With :math:`a=2\sqrt c|z_i|`, :math:`b=2\sqrt c|z_j|` and the angle between them, the law of cosines is
        :math:`\cosh(\sqrt c\,d)=\cosh(a-b)+\sinh a\sinh b\,(1-\cos)`: no difference of large numbers. In float64.
        """
        root = 2 * _root(theta)
        first, second = queries.double(), weight.double()
        a, b = root * first.norm(dim=-1, keepdim=True), root * second.norm(dim=-1)
        apart = (1 - super().similarity(first, second)).clamp_min(0)
        # cosh(x) - 1 = 2 sinh(x / 2)^2 and acosh(1 + y) = 2 asinh(sqrt(y / 2)) keep small distances
        above = 2 * torch.sinh((a - b) / 2) ** 2 + torch.sinh(a) * torch.sinh(b) * apart
        return -2 * torch.asinh(torch.sqrt(above / 2)) / (root / 2)

    def factored(self, states: Tensor, offset: Tensor | None, theta: Theta) -> bool:
        """Return True if 2s + |b| could exceed the range of the dtype (one reduction and one read of the result).

        Always True on a GPU, which would have to wait for that read; factored lifts are right in every range.
        """
        if states.device.type != "cpu":
            return True
        with torch.no_grad():
            largest = states.square().sum(-1).amax().sqrt() if states.numel() else states.new_zeros(())
            if offset is not None and offset.numel():
                largest = largest + offset.abs().amax().to(largest.dtype)
            # a NaN compares False: it takes the plain path and stays visible
            return bool(2 * _root(theta) * largest > EXPONENT_LIMIT[states.dtype])


def parallel_links(lifted: LiftedStates, terms: ItemTerms, vectors: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the places (k,) of products that are not larger than their rounding, and what their links are (k,).

    With t = 1 - <F, z> / (|F| |z|), the argument of asinh is sinh(x - b) - t sinh(x) cosh(b), here with its order of
    magnitude exp(top) taken out. An angle below the rounding of the lifts counts as 0.
    """
    cosh, extra = -lifted.vectors[..., -1], vectors[..., -1]
    eps = torch.finfo(cosh.dtype).eps
    lost = PARALLEL * eps
    if lifted.exponent is None and float(cosh.amax() * extra.abs().amax()) * lost < 1:
        return (), extra[:0]
    products = lifted.vectors @ vectors.transpose(-1, -2)
    index = (products.abs() < lost * cosh.unsqueeze(-1) * extra.abs().unsqueeze(-2)).nonzero(as_tuple=True)
    state, item = index[:-1], (*index[:-2], index[-1])
    x = torch.acosh(cosh[state].double()) if lifted.exponent is None else lifted.exponent[state].double()
    b = torch.asinh(extra[item].double()) if terms.exponent is None else terms.exponent[item].double()
    b = torch.copysign(b, extra[item].double())
    directions = [one[..., :-1].double() for one in (lifted.vectors[state], vectors[item])]
    first, second = (one / one.norm(dim=-1, keepdim=True) for one in directions)
    t = (first - second).square().sum(-1) / 2
    t.masked_fill_(t < (4 * eps) ** 2, 0)
    size = t.log() + x + b.abs()
    top = torch.maximum((x - b).abs(), size)
    apart = torch.expm1(-2 * x) * (1 + torch.exp(-2 * b.abs())) * torch.exp(size - top) / 4
    total = (torch.exp(x - b - top) - torch.exp(b - x - top)) / 2 + apart
    return index, torch.sign(total) * (top + torch.log(total.abs() + torch.hypot(total, torch.exp(-top))))


def _root(theta: Theta) -> Theta:
    return theta.sqrt() if isinstance(theta, Tensor) else float(theta) ** 0.5


def lifted_states(states: Tensor, theta: Theta, *, offset: bool, factored: bool) -> tuple[Tensor, Tensor | None]:
    """Return A (..., d + 1), or (..., d) without ``offset``, of states (..., d), and the exponents (...) or None."""
    # a graph is exported from plain operations
    lift = _states if torch.compiler.is_exporting() else _LiftedStates.apply
    vectors, _, _, x, *_ = lift(states, theta, offset, factored)
    return vectors, x if factored else None


def lifted_items(
    weight: Tensor, offset: Tensor | None, theta: Theta, *, factored: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Return multiplier, extra column (None without offsets), scale and exponent (None: 0) of items, (...) each."""
    return _LiftedItems.apply(weight, offset, theta, factored)


def _cosh(decay: Tensor) -> Tensor:
    """Return cosh(x) exp(-x) of decay = exp(-2 x) - 1; sinh(x) exp(-x) is -decay / 2."""
    return 1 + decay * 0.5


def _states(states: Tensor, theta: Theta, offset: bool, factored: bool) -> tuple[Tensor, ...]:
    """Return A, k, C, x and |F|."""
    root = 2 * _root(theta)
    norm = torch.linalg.vector_norm(states, dim=-1).clamp_min(NORM_FLOOR)
    x = norm * root
    if factored:
        decay = torch.expm1(x * -2)
        rate, cosh = decay / (norm * -2), _cosh(decay)
    else:
        rate, cosh = torch.sinh(x) / norm, torch.cosh(x)
    space = states * rate.unsqueeze(-1)
    vectors = torch.cat((space, -cosh.unsqueeze(-1)), dim=-1) if offset else space
    return vectors, rate, cosh, x, norm


class _LiftedStates(torch.autograd.Function):
    """(F, c) to (A, k, C, x); k and C are outputs so that the backward pass can be differentiated by them."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, theta: Theta, offset: bool, factored: bool) -> tuple[Tensor, ...]:
        vectors, rate, cosh, x, norm = _states(states, theta, offset, factored)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(x)
        ctx.constant = None if isinstance(theta, Tensor) else theta
        ctx.save_for_backward(states, theta if isinstance(theta, Tensor) else None, rate, cosh, norm)
        return vectors, rate, cosh, x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        by_vectors, by_rate, by_cosh, _ = gradients
        states, theta, rate, cosh, norm = ctx.saved_tensors
        c = ctx.constant if theta is None else theta
        root, width = 2 * _root(c), states.shape[-1]
        square = norm * norm
        if torch.is_grad_enabled():  # for a second derivative
            square = states.square().sum(-1).clamp_min(NORM_FLOOR**2)
        if by_vectors is not None:
            by_space = by_vectors[..., :width]
            along = torch.linalg.vecdot(by_space, states)
            by_rate = along if by_rate is None else by_rate + along
            if by_vectors.shape[-1] > width:
                column = by_vectors[..., width]
                by_cosh = -column if by_cosh is None else by_cosh - column
        # dk/dF = (root C - k) F / |F|^2 and dC/dF = root k F; at small |F| the difference loses what A's rounding hides
        slope: Tensor | None = None
        if by_rate is not None:
            slope = by_rate * ((cosh * root - rate) / square)
        if by_cosh is not None:
            more = by_cosh * (rate * root)
            slope = more if slope is None else slope + more
        if slope is None:
            return None, None, None, None
        by_states = states * slope.unsqueeze(-1)
        if by_vectors is not None:
            by_states = torch.addcmul(by_states, by_space, rate.unsqueeze(-1))
        by_theta = None
        if theta is not None and ctx.needs_input_grad[1]:
            # k grows with sqrt(c) as with |F|, and by itself
            total = (slope * square).sum()
            if by_rate is not None:
                total = total + (by_rate * rate).sum()
            by_theta = total / (2 * c)
        return by_states, by_theta, None, None


class _LiftedItems(torch.autograd.Function):
    """(z, r, c) to (multiplier, extra, scale, exponent)."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, offset: Tensor | None, theta: Theta, factored: bool
    ) -> tuple[Tensor | None, ...]:
        root = _root(theta)
        norm = torch.linalg.vector_norm(weight, dim=-1).clamp_min_(NORM_FLOOR)
        scale, extra, exponent = norm * (2 / root), None, None
        if offset is None:
            multiplier = norm.reciprocal()
            exponent = torch.zeros_like(norm) if factored else None
        elif factored:
            exponent = (offset * (2 * root)).abs_()
            decay = torch.expm1(exponent * -2)
            extra = torch.copysign(decay * -0.5, offset)
            multiplier = _cosh(decay).div_(norm)
        else:
            b = offset * (2 * root)
            extra, multiplier = torch.sinh(b), torch.cosh(b).div_(norm)
        ctx.set_materialize_grads(False)
        if exponent is not None:
            ctx.mark_non_differentiable(exponent)
        ctx.constant = None if isinstance(theta, Tensor) else theta
        learned = theta if isinstance(theta, Tensor) else None
        ctx.save_for_backward(weight, offset, learned, multiplier, extra, scale)
        return multiplier, extra, scale, exponent

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        by_multiplier, by_extra, by_scale, _ = gradients
        weight, offset, theta, multiplier, extra, scale = ctx.saved_tensors
        c = ctx.constant if theta is None else theta
        root = _root(c)
        norm = scale * (root / 2)
        by_norm: Tensor | None = None if by_scale is None else by_scale * (2 / root)
        by_b: Tensor | None = None
        if by_multiplier is not None:
            share = by_multiplier / norm
            by_norm = -share * multiplier if by_norm is None else torch.addcmul(by_norm, share, multiplier, value=-1)
            by_b = None if extra is None else share * extra
        if by_extra is not None:
            cosh = multiplier * norm
            by_b = by_extra * cosh if by_b is None else torch.addcmul(by_b, by_extra, cosh)
        by_weight = None if by_norm is None else weight * (by_norm / norm).unsqueeze(-1)
        by_offset = None if by_b is None else by_b * (2 * root)
        by_theta = None
        if theta is not None and ctx.needs_input_grad[2]:
            total = torch.zeros_like(c)
            if by_offset is not None:
                total = total + (by_offset * offset).sum()
            if by_scale is not None:
                total = total - (by_scale * scale).sum()
            by_theta = total / (2 * c)
        return by_weight, by_offset, by_theta, None


def asinh_(u: Tensor, slope: Tensor, scratch: Tensor) -> None:
    r"""Replace ``u`` by asinh(u) in place and write the derivative :math:`1/\sqrt{1+u^2}` into ``slope``.

    ``slope`` and ``scratch`` are buffers of u's shape and dtype. |u| must stay below exp(EXPONENT_LIMIT[dtype]).
    Accurate to a few units in the last place for every u, tiny ones included; more than ten times faster than
    torch.asinh on CPU, which is not vectorised there. Much float32 on a CPU takes one pass, in a compiled kernel.
    """
    large = u.numel() >= KERNEL_FROM and u.device.type == "cpu" and u.dtype == torch.float32
    if large and u.is_contiguous() and slope.is_contiguous():
        from recbole_hyper.kernels.softmax import asinh_slope  # numba is imported when a loss is computed

        asinh_slope(u.detach().view(-1).numpy(), slope.detach().view(-1).numpy())
        return
    one = torch.ones((), dtype=u.dtype, device=u.device)
    torch.addcmul(one, u, u, out=scratch)  # 1 + u^2
    torch.rsqrt(scratch, out=slope)
    torch.addcmul(one, scratch, slope, out=scratch)  # 1 + sqrt(1 + u^2)
    # asinh(w) = log1p(w + w^2 / (1 + sqrt(1 + w^2))) for w = |u|, the form that keeps tiny w exact
    torch.div(u, scratch, out=scratch)
    torch.addcmul(u, u, scratch.abs_(), out=scratch)
    scratch.abs_().log1p_()
    # the sign bit by integer arithmetic: twice as fast as copysign
    bits = torch.int64 if u.dtype == torch.float64 else torch.int32
    u.view(bits).bitwise_and_(torch.iinfo(bits).min).bitwise_or_(scratch.view(bits))


class _Asinh(torch.autograd.Function):
    """asinh with the same formula as ``asinh_``; differentiable twice."""

    @staticmethod
    def forward(ctx, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        if torch.compiler.is_exporting():  # a graph has no kernel and no change in place
            w = u.abs()
            return torch.sign(u) * torch.log1p(w + w * (w / (1 + torch.sqrt(1 + w * w))))
        if u.device.type != "cpu":
            return torch.asinh(u)
        value = u.clone()
        asinh_(value, torch.empty_like(u), torch.empty_like(u))
        return value

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return gradient * torch.rsqrt(1 + u * u)


def asinh(u: Tensor) -> Tensor:
    """Return asinh(u) elementwise, for |u| below exp(EXPONENT_LIMIT[dtype]); fast on CPU, any float dtype."""
    return _Asinh.apply(u)


def scaled_asinh_(v: Tensor, slope: Tensor, exponent: Tensor) -> None:
    r"""Replace ``v`` by :math:`asinh(v e^E)`, and write its derivative :math:`1/\sqrt{e^{-2E}+v^2}` into ``slope``.

    For any size of E >= 0. With :math:`f = e^{-E}` and :math:`w = |v|` the value is
    :math:`\log(1 + w (1 + w / (f + \sqrt{f^2 + w^2})) / f)`: tiny w stay exact. f is cut at e^-41 (float32; e^-351 in
    float64), below all rounding, so that the derivative is finite. ``exponent`` is overwritten.
    """
    limit = EXPONENT_LIMIT[v.dtype] - 2
    floor, w = torch.clamp(exponent, max=limit).neg_().exp_(), v.abs()
    root = torch.hypot(floor, w)
    torch.reciprocal(root, out=slope)
    w.addcdiv_(v * v, root.add_(floor))
    w.div_(floor).log1p_().add_(exponent.sub_(limit).relu_())
    torch.copysign(w, v, out=v)


def scaled_asinh_values(v: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`scaled_asinh_` computes, (value, derivative)."""
    value, slope = v.clone(), torch.empty_like(v)
    scaled_asinh_(value, slope, exponent.clone())
    return value, slope


class _ScaledAsinh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v: Tensor, exponent: Tensor) -> Tensor:
        value, slope = scaled_asinh_values(v, exponent)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def scaled_asinh(v: Tensor, exponent: Tensor) -> Tensor:
    """Return asinh(v * exp(exponent)) without overflow; ``exponent`` (>= 0, v's shape) is a constant."""
    if not torch.compiler.is_exporting():
        return _ScaledAsinh.apply(v, exponent)
    # a graph is exported from plain operations, none in place
    limit = EXPONENT_LIMIT[v.dtype] - 2
    floor, w = torch.exp(-exponent.clamp(max=limit)), v.abs()
    ratio = w * (1 + w / (floor + torch.sqrt(floor * floor + w * w))) / floor
    return torch.sign(v) * (torch.log1p(ratio) + torch.relu(exponent - limit))
