"""The Moebius GRU recurrence on CPU in float32, compiled: all steps of a tile of rows stay in the cache.

Formulas as in ``_recurrence`` (which serves every other device and precision, and is the reference in the tests).
Arrays are features first; the innermost loops run over the rows of a tile, so that the compiler turns them into vector
instructions. exp and log are polynomials for the same reason: a call into libm would not be vectorised.
"""

from __future__ import annotations

import numpy as np
from numba import njit

F, I = np.float32, np.int32
ZERO, ONE, TWO, HALF, TINY = F(0), F(1), F(2), F(0.5), F(1e-30)
LOG2E, LN2_HIGH, LN2_LOW = F(1.44269504088896341), F(0.693359375), F(-2.12194440e-4)
MANTISSA, HALF_BITS, SQRT_HALF = I(0x7FFFFF), I(0x3F000000), F(0.707106781186547524)
LOW, HIGH, SMALL = F(-87), F(88), F(0.5)
FAR = F(1e30)
compiled = njit(fastmath={"contract"}, error_model="numpy", nogil=True, cache=True)


@compiled
def exp(x):
    """Return e^x, relative error 8e-8, for x cut to [-87, 88] (Cephes expf)."""
    x = min(max(x, LOW), HIGH)
    k = np.floor(x * LOG2E + HALF)
    r = x - k * LN2_HIGH - k * LN2_LOW
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    y = p * r * r + r + ONE
    return y * I((I(k) + I(127)) << I(23)).view(np.float32)


@compiled
def log(x):
    """Return log(x) of a positive normal x, error 2e-7 (Cephes logf)."""
    bits = F(x).view(np.int32)
    m = I((bits & MANTISSA) | HALF_BITS).view(np.float32)
    low = m < SQRT_HALF
    e = F((bits >> I(23)) - I(126)) - (ONE if low else ZERO)
    m = (m + m - ONE) if low else (m - ONE)
    z = m * m
    p = F(7.0376836292e-2)
    p = p * m + F(-1.1514610310e-1)
    p = p * m + F(1.1676998740e-1)
    p = p * m + F(-1.2420140846e-1)
    p = p * m + F(1.4249322787e-1)
    p = p * m + F(-1.6668057665e-1)
    p = p * m + F(2.0000714765e-1)
    p = p * m + F(-2.4999993993e-1)
    p = p * m + F(3.3333331174e-1)
    return m + (p * m * z + e * LN2_LOW - HALF * z) + e * LN2_HIGH


@compiled
def exp_radial(a, limit, ratio, cosh, slope):
    """S = sinh(min(s, limit)) / s, C = cosh(min(s, limit)), (dS/ds) / s of the columns of a (d, w), s their norm."""
    width, columns = a.shape
    for j in range(columns):
        ratio[j] = ZERO
    for i in range(width):
        for j in range(columns):
            ratio[j] += a[i, j] * a[i, j]
    for j in range(columns):
        square = ratio[j] + TINY
        s = np.sqrt(square)
        clipped = min(s, limit)
        up = exp(clipped)
        down = ONE / up
        c = HALF * (up + down)
        series = ONE + square * (F(1 / 6) + square * (F(1 / 120) + square * (F(1 / 5040) + square * F(1 / 362880))))
        r = series if square < SMALL else HALF * (up - down) / s
        ratio[j], cosh[j] = r, c
        exact = ((c if s <= limit else ZERO) - r) / square
        near = F(1 / 3) + square * (F(1 / 30) + square * (F(1 / 840) + square * F(1 / 45360)))
        slope[j] = near if square < SMALL else exact


@compiled
def log_radial(square, limit, ratio, slope):
    """f = min(asinh(n), limit) / n and (df/dn) / n of square = n^2 (w,)."""
    for j in range(square.shape[0]):
        guarded = square[j] + TINY
        n = np.sqrt(guarded)
        c = np.sqrt(square[j] + ONE)
        u = n + guarded / (c + ONE)
        one_more = ONE + u
        # log1p(u): the second term gives back what 1 + u has rounded away
        s = log(one_more) + (u - (one_more - ONE)) / one_more
        inside = s <= limit
        r = min(s, limit) / n
        near = ONE - square[j] * F(1 / 6)
        r = near if square[j] < F(1e-4) else r
        ratio[j] = r
        exact = ((ONE / c if inside else ZERO) - r) / guarded
        slope[j] = F(-1 / 3) + square[j] * F(0.3) if square[j] < F(1e-2) else exact


@compiled
def scaled(a, factor, out):
    """Write out = a * factor, columns (w,) of (d, w)."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] * factor[j]


@compiled
def radial_backward(g, a, ratio, slope, out):
    """Write out = ratio g + slope <g, a> a, the transposed Jacobian of a radial function at a."""
    width, columns = a.shape
    dot = np.zeros(columns, np.float32)
    for i in range(width):
        for j in range(columns):
            dot[j] += g[i, j] * a[i, j]
    for j in range(columns):
        dot[j] *= slope[j]
    for i in range(width):
        for j in range(columns):
            out[i, j] = ratio[j] * g[i, j] + dot[j] * a[i, j]


@compiled
def moebius_sum(first, c1, second, c2, e, n2, out):
    """Write e, |e|^2 and the sum of lifted points (d, w) with their cosh (w,)."""
    width, columns = first.shape
    for j in range(columns):
        n2[j] = ZERO
    for i in range(width):
        for j in range(columns):
            value = c2[j] * first[i, j] + c1[j] * second[i, j]
            e[i, j] = value
            n2[j] += value * value
    for i in range(width):
        for j in range(columns):
            out[i, j] = (c2[j] * e[i, j] + n2[j] * first[i, j]) / (c1[j] * np.sqrt(ONE + n2[j]))


@compiled
def moebius_sum_backward(g, e, first, n2, c1, c2, g_first, g_second):
    """Write the gradients of both lifted points (d, w) from that of their sum."""
    width, columns = g.shape
    d_e, d_1, cross = np.zeros(columns, F), np.zeros(columns, F), np.zeros(columns, F)
    for i in range(width):
        for j in range(columns):
            d_e[j] += g[i, j] * e[i, j]
            d_1[j] += g[i, j] * first[i, j]
            cross[j] += e[i, j] * first[i, j]
    a1, b1, s1 = np.empty(columns, F), np.empty(columns, F), np.empty(columns, F)
    a2, b2, s2 = np.empty(columns, F), np.empty(columns, F), np.empty(columns, F)
    for j in range(columns):
        d = ONE + n2[j]
        k = ONE / (c1[j] * np.sqrt(d))
        out = k * (c2[j] * d_e[j] + n2[j] * d_1[j])
        twice = TWO * k * d_1[j] - out / d  # twice the derivative by n2
        e_first = c2[j] * k * d_1[j] + twice * cross[j]
        e_second = (c2[j] * k * d_e[j] + twice * n2[j] - c2[j] * e_first) / c1[j]
        by_c1, by_c2 = e_second - out / c1[j], k * d_e[j] + e_first
        a1[j], b1[j], s1[j] = k * (n2[j] + c2[j] * c2[j]), c2[j] * twice, by_c1 / c1[j]
        a2[j], b2[j], s2[j] = c1[j] * c2[j] * k, c1[j] * twice + by_c2 / (c1[j] * c2[j]), -by_c2 / c1[j]
    for i in range(width):
        for j in range(columns):
            g_first[i, j] = a1[j] * g[i, j] + b1[j] * e[i, j] + s1[j] * first[i, j]
            g_second[i, j] = a2[j] * g[i, j] + b2[j] * e[i, j] + s2[j] * first[i, j]


@compiled
def product(matrix, v, out, add):
    """Write out = matrix (m, k) times v (k, w), or add it to out."""
    rows, inner = matrix.shape
    columns = v.shape[1]
    whole = inner - inner % 4
    for o in range(rows):
        if not add:
            for j in range(columns):
                out[o, j] = ZERO
        for k in range(0, whole, 4):
            m0, m1, m2, m3 = matrix[o, k], matrix[o, k + 1], matrix[o, k + 2], matrix[o, k + 3]
            for j in range(columns):
                out[o, j] += m0 * v[k, j] + m1 * v[k + 1, j] + m2 * v[k + 2, j] + m3 * v[k + 3, j]
        for k in range(whole, inner):
            m0 = matrix[o, k]
            for j in range(columns):
                out[o, j] += m0 * v[k, j]


@compiled
def cosh_of(a, out):
    """Write sqrt(1 + |a|^2) of the columns of lifted points (d, w)."""
    for j in range(a.shape[1]):
        out[j] = ONE
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j] * a[i, j]
    for j in range(a.shape[1]):
        out[j] = np.sqrt(out[j])


@compiled
def cosh_of_square(n2, out):
    """Write sqrt(1 + n2)."""
    for j in range(n2.shape[0]):
        out[j] = np.sqrt(ONE + n2[j])


@compiled
def load(source, begin, out):
    """Copy the columns from ``begin`` of source (d, B) to out (d, w)."""
    columns = out.shape[1]
    for i in range(out.shape[0]):
        row = source[i, begin : begin + columns]
        for j in range(columns):
            out[i, j] = row[j]


@compiled
def store(values, target, begin):
    """Copy values (d, w) to the columns from ``begin`` of target (d, B)."""
    columns = values.shape[1]
    for i in range(values.shape[0]):
        row = target[i, begin : begin + columns]
        for j in range(columns):
            row[j] = values[i, j]


@compiled
def chain(argument, x, bias, bias_cosh, limit, work, line):
    """exp_0(argument) (+) x (+) bias. ``work`` (6, d, w): lifted, e1, p1, e2, sum, bias; ``line`` (10, w), see below."""
    exp_radial(argument, limit, line[0], line[1], line[2])
    scaled(argument, line[0], work[0])
    cosh_of(x, line[3])
    moebius_sum(work[0], line[1], x, line[3], work[1], line[4], work[2])
    cosh_of_square(line[4], line[5])
    for i in range(argument.shape[0]):
        for j in range(argument.shape[1]):
            work[5, i, j] = bias[i]
    for j in range(argument.shape[1]):
        line[6, j] = bias_cosh
    moebius_sum(work[2], line[5], work[5], line[6], work[3], line[7], work[4])


@compiled
def chain_backward(g, argument, work, line, g_argument, g_x, bias_sum, spare):
    """Backward of ``chain`` from the gradient g (d, w) of its lifted sum; adds the bias's gradient to bias_sum (d,)."""
    moebius_sum_backward(g, work[3], work[2], line[7], line[5], line[6], spare[0], spare[1])
    for i in range(g.shape[0]):
        total = ZERO
        for j in range(g.shape[1]):
            total += spare[1, i, j]
        bias_sum[i] += total
    moebius_sum_backward(spare[0], work[1], work[0], line[4], line[1], line[3], spare[1], g_x)
    radial_backward(spare[1], argument, line[0], line[2], g_argument)


@compiled
def forward_tiles(
    inputs, bias, weight, rho, limit, tanh, after, states, arguments, projected, gates, candidates, begin, end, tile
):
    """Run all steps for the columns begin..end; states[0] is given, the other outputs are written."""
    length, width = inputs.shape[0], inputs.shape[2]
    bias_cosh = np.empty(3, F)
    for q in range(3):
        total = ONE
        for i in range(width):
            total += bias[q, i] * bias[q, i]
        bias_cosh[q] = np.sqrt(total)
    for first in range(begin, end, tile):
        w = min(tile, end - first)
        block1 = np.empty((5, width, w), F)
        v, x, h, minus, step = block1[0], block1[1], block1[2], block1[3], block1[4]
        a = np.empty((3 * width, w), F)
        work, line = np.empty((6, width, w), F), np.empty((10, w), F)
        block2 = np.empty((6, width, w), F)
        e, total, move, r, z, cand = block2[0], block2[1], block2[2], block2[3], block2[4], block2[5]
        lines = np.empty((6, w), F)
        hc, cc, n2, f, slope, mc = lines[0], lines[1], lines[2], lines[3], lines[4], lines[5]
        for t in range(length):
            load(states[t], first, v)
            exp_radial(v, limit, f, hc, slope)
            scaled(v, f, h)
            product(weight if after else weight[: 2 * width], v, a, False)
            for q in range(2):
                argument = a[q * width : (q + 1) * width]
                store(argument, arguments[t, q], first)
                load(inputs[t, q], first, x)
                chain(argument, x, bias[q], bias_cosh[q], limit, work, line)
                log_radial(line[7], FAR, f, slope)
                gate = r if q == 0 else z
                for i in range(width):
                    for j in range(w):
                        gate[i, j] = ONE / (ONE + exp(-rho * f[j] * work[4, i, j]))
                store(gate, gates[t, q], first)
            last = a[2 * width :]
            if after:
                store(last, projected[t], first)
                for i in range(width):
                    for j in range(w):
                        last[i, j] *= r[i, j]
            else:
                for i in range(width):
                    for j in range(w):
                        step[i, j] = r[i, j] * v[i, j]
                product(weight[2 * width :], step, last, False)
            store(last, arguments[t, 2], first)
            load(inputs[t, 2], first, x)
            chain(last, x, bias[2], bias_cosh[2], limit, work, line)
            if tanh:
                log_radial(line[7], FAR, f, slope)
                for i in range(width):
                    for j in range(w):
                        step[i, j] = (ONE - TWO / (ONE + exp(TWO * rho * f[j] * work[4, i, j]))) / rho
                exp_radial(step, limit, f, cc, slope)
                scaled(step, f, cand)
            else:
                cosh_of_square(line[7], cc)
                for i in range(width):
                    for j in range(w):
                        cand[i, j] = work[4, i, j]
            store(cand, candidates[t], first)
            for i in range(width):
                for j in range(w):
                    minus[i, j] = -h[i, j]
            moebius_sum(minus, hc, cand, cc, e, n2, total)
            log_radial(n2, FAR, f, slope)
            for i in range(width):
                for j in range(w):
                    move[i, j] = z[i, j] * f[j] * total[i, j]
            exp_radial(move, FAR, f, mc, slope)
            scaled(move, f, step)
            moebius_sum(h, hc, step, mc, e, n2, total)
            log_radial(n2, limit, f, slope)
            scaled(total, f, v)
            store(v, states[t + 1], first)


@compiled
def backward_tiles(
    gradients,
    inputs,
    bias,
    weight_gates,
    weight_last,
    rho,
    limit,
    tanh,
    after,
    states,
    arguments,
    projected,
    gates,
    candidates,
    g_inputs,
    g_arguments,
    g_start,
    g_bias,
    begin,
    end,
    tile,
):
    """Backward of ``forward_tiles``; ``weight_gates``, ``weight_last`` are transposed; adds to g_bias (3, d)."""
    length, width = inputs.shape[0], inputs.shape[2]
    bias_cosh = np.empty(3, F)
    for q in range(3):
        square = ONE
        for i in range(width):
            square += bias[q, i] * bias[q, i]
        bias_cosh[q] = np.sqrt(square)
    for first in range(begin, end, tile):
        w = min(tile, end - first)
        block2 = np.empty((5, width, w), F)
        v, x, h, minus, cand = block2[0], block2[1], block2[2], block2[3], block2[4]
        block3 = np.empty((5, width, w), F)
        eq, sq, wv, move, lifted = block3[0], block3[1], block3[2], block3[3], block3[4]
        block4 = np.empty((5, width, w), F)
        e3, s3, r, z, argument = block4[0], block4[1], block4[2], block4[3], block4[4]
        block5 = np.empty((5, width, w), F)
        g, g1, gh, gu, gc = block5[0], block5[1], block5[2], block5[3], block5[4]
        block6 = np.empty((4, width, w), F)
        gx, g_last, step, carry = block6[0], block6[1], block6[2], block6[3]
        ga = np.empty((3 * width, w), F)
        work, spare, line = np.empty((6, width, w), F), np.empty((2, width, w), F), np.empty((10, w), F)
        block7 = np.empty((7, w), F)
        hr, hc, hs, cc, nq, fq, slope_q = block7[0], block7[1], block7[2], block7[3], block7[4], block7[5], block7[6]
        block8 = np.empty((8, w), F)
        mr, mc, ms, n3, f3, slope_3, f, slope = (
            block8[0],
            block8[1],
            block8[2],
            block8[3],
            block8[4],
            block8[5],
            block8[6],
            block8[7],
        )
        carry[:] = ZERO
        for t in range(length - 1, -1, -1):
            # what the forward step had
            load(states[t], first, v)
            load(candidates[t], first, cand)
            load(gates[t, 0], first, r)
            load(gates[t, 1], first, z)
            exp_radial(v, limit, hr, hc, hs)
            scaled(v, hr, h)
            for i in range(width):
                for j in range(w):
                    minus[i, j] = -h[i, j]
            cosh_of(cand, cc)
            moebius_sum(minus, hc, cand, cc, eq, nq, sq)
            log_radial(nq, FAR, fq, slope_q)
            scaled(sq, fq, wv)
            for i in range(width):
                for j in range(w):
                    move[i, j] = z[i, j] * wv[i, j]
            exp_radial(move, FAR, mr, mc, ms)
            scaled(move, mr, lifted)
            moebius_sum(h, hc, lifted, mc, e3, n3, s3)
            log_radial(n3, limit, f3, slope_3)
            # h' = log_0(h (+) exp_0(z w)), w = log_0(-h (+) candidate)
            load(gradients[t], first, g)
            for i in range(width):
                for j in range(w):
                    g[i, j] += carry[i, j]
            radial_backward(g, s3, f3, slope_3, g1)
            moebius_sum_backward(g1, e3, h, n3, hc, mc, gh, step)
            radial_backward(step, move, mr, ms, gu)
            for i in range(width):
                for j in range(w):
                    g[i, j] = gu[i, j] * z[i, j]
            radial_backward(g, sq, fq, slope_q, g1)
            moebius_sum_backward(g1, eq, minus, nq, hc, cc, step, gc)
            for i in range(width):
                for j in range(w):
                    gh[i, j] -= step[i, j]
            radial_backward(gh, v, hr, hs, carry)
            # candidate
            load(arguments[t, 2], first, argument)
            load(inputs[t, 2], first, x)
            chain(argument, x, bias[2], bias_cosh[2], limit, work, line)
            if tanh:
                log_radial(line[7], FAR, f, slope)
                for i in range(width):
                    for j in range(w):
                        step[i, j] = (ONE - TWO / (ONE + exp(TWO * rho * f[j] * work[4, i, j]))) / rho
                exp_radial(step, limit, fq, cc, slope_q)
                radial_backward(gc, step, fq, slope_q, g1)
                for i in range(width):
                    for j in range(w):
                        g1[i, j] *= ONE - rho * rho * step[i, j] * step[i, j]
                radial_backward(g1, work[4], f, slope, gc)
            chain_backward(gc, argument, work, line, g_last, gx, g_bias[2], spare)
            store(gx, g_inputs[t, 2], first)
            if after:
                load(projected[t], first, step)
                for i in range(width):
                    for j in range(w):
                        g[i, j] = g_last[i, j] * step[i, j]
                        ga[2 * width + i, j] = g_last[i, j] * r[i, j]
                store(ga[2 * width :], g_arguments[t, 2], first)
            else:
                store(g_last, g_arguments[t, 2], first)
                product(weight_last, g_last, step, False)
                for i in range(width):
                    for j in range(w):
                        g[i, j] = step[i, j] * v[i, j]
                        carry[i, j] += step[i, j] * r[i, j]
            # gates: g is the gradient of r, gu * w that of z
            for q in range(2):
                for i in range(width):
                    for j in range(w):
                        if q == 0:
                            g1[i, j] = g[i, j] * r[i, j] * (ONE - r[i, j]) * rho
                        else:
                            g1[i, j] = gu[i, j] * wv[i, j] * z[i, j] * (ONE - z[i, j]) * rho
                load(arguments[t, q], first, argument)
                load(inputs[t, q], first, x)
                chain(argument, x, bias[q], bias_cosh[q], limit, work, line)
                log_radial(line[7], FAR, f, slope)
                radial_backward(g1, work[4], f, slope, step)
                chain_backward(step, argument, work, line, ga[q * width : (q + 1) * width], gx, g_bias[q], spare)
                store(gx, g_inputs[t, q], first)
                store(ga[q * width : (q + 1) * width], g_arguments[t, q], first)
            product(weight_gates, ga if after else ga[: 2 * width], carry, True)
        store(carry, g_start, first)
