"""Multinomial logistic regression on the Poincare ball, as one matrix product on the hyperboloid."""

import torch
from torch import Tensor

from recbole_hyper.geometry import _math
from recbole_hyper.geometry._lifts import lifted_items, lifted_states
from recbole_hyper.geometry.base import Geometry, ItemTerms, LiftedStates, Theta


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
        return _math.asinh(inner) if exponent is None else _math.scaled_asinh(inner, exponent)

    def link_(self, inner: Tensor, slope: Tensor, scratch: Tensor, exponent: Tensor | None = None) -> None:
        """Replace ``inner`` by asinh(inner * exp(exponent)); slope is its derivative by the old ``inner``.

        ``exponent`` is overwritten.
        """
        if exponent is None:
            _math.asinh_(inner, slope, scratch)
        else:
            _math.scaled_asinh_(inner, slope, exponent)

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
            return bool(2 * _root(theta) * largest > _math.exponent_limit(states.dtype))


def _root(c: Theta) -> Theta:
    return c.sqrt() if isinstance(c, Tensor) else float(c) ** 0.5
