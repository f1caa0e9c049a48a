"""The Moebius GRU recurrence on CPU in float32, compiled: all steps of a tile of rows stay in the cache.

Plain twin: ``hyperbolic.recurrence.plain_recurrence``, which runs on all other devices and in other precisions.
Kept for: a training step of HGRU4Rec (d 64, L 50, B 128) in 0.42 of the twin's time, of the prefix task in 0.29.

Arrays have features first. The innermost loops run over the rows of a tile, so that the compiler vectorises them. exp
and log are polynomials for the same reason: it would not vectorise a call into libm.
"""

from typing import Any

import numpy as np
from numba import njit

from recbole_hyper.kernels import floats
from recbole_hyper.kernels.compiled import compiled

F = np.float32
ZERO, ONE, TWO, HALF, TINY = F(0), F(1), F(2), F(0.5), F(1e-30)
HIGH, SMALL, FAR = F(88), F(0.5), F(1e30)
_compiled: Any = compiled(fastmath={"contract"}, error_model="numpy", nogil=True)


@njit(inline="always")
def exp(x):
    """Return e^x, for x cut to [-87, 88]."""
    return floats.exp(HIGH if x > HIGH else x)


@_compiled
def exp_radial(a, limit, ratio, cosh, slope):
    """Write S = sinh(min(s, limit)) / s, cosh(min(s, limit)) and (dS/ds) / s of the columns of a (d, w) with norm s."""
    width, columns = a.shape
    ratio[:] = ZERO
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


@_compiled
def log_radial(square, limit, ratio, slope):
    """Write f = min(asinh(n), limit) / n and (df/dn) / n of square = n^2 (w,)."""
    for j in range(square.shape[0]):
        guarded = square[j] + TINY
        n = np.sqrt(guarded)
        c = np.sqrt(square[j] + ONE)
        s = floats.log1p_nonnegative(n + guarded / (c + ONE))
        inside = s <= limit
        r = min(s, limit) / n
        near = ONE - square[j] * F(1 / 6)
        r = near if square[j] < F(1e-4) else r
        ratio[j] = r
        exact = ((ONE / c if inside else ZERO) - r) / guarded
        slope[j] = F(-1 / 3) + square[j] * F(0.3) if square[j] < F(1e-2) else exact


@_compiled
def radial_backward(g, a, ratio, slope, out):
    """Write out = ratio g + slope <g, a> a, the transposed Jacobian of a radial function at a."""
    width, columns = a.shape
    dot = np.zeros(columns, np.float32)
    for i in range(width):
        for j in range(columns):
            dot[j] += g[i, j] * a[i, j]
    dot *= slope
    for i in range(width):
        for j in range(columns):
            out[i, j] = ratio[j] * g[i, j] + dot[j] * a[i, j]


@_compiled
def moebius_sum(sign, first, c1, second, c2, e, n2, out):
    """Write e, |e|^2 and the sum of two lifted points (d, w) with cosh (w,), the first times ``sign``."""
    width, columns = first.shape
    n2[:] = ZERO
    for i in range(width):
        for j in range(columns):
            value = c2[j] * (sign * first[i, j]) + c1[j] * second[i, j]
            e[i, j] = value
            n2[j] += value * value
    for i in range(width):
        for j in range(columns):
            out[i, j] = (c2[j] * e[i, j] + n2[j] * (sign * first[i, j])) / (c1[j] * np.sqrt(ONE + n2[j]))


@_compiled
def moebius_sum_backward(sign, g, e, first, n2, c1, c2, g_first, g_second):
    """Write the gradients of both lifted points (d, w) from the gradient of their sum, the first times ``sign``."""
    width, columns = g.shape
    d_e, d_1, cross = np.zeros(columns, F), np.zeros(columns, F), np.zeros(columns, F)
    for i in range(width):
        for j in range(columns):
            d_e[j] += g[i, j] * e[i, j]
            d_1[j] += g[i, j] * (sign * first[i, j])
            cross[j] += e[i, j] * (sign * first[i, j])
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
            point = sign * first[i, j]
            g_first[i, j] = sign * (a1[j] * g[i, j] + b1[j] * e[i, j] + s1[j] * point)
            g_second[i, j] = a2[j] * g[i, j] + b2[j] * e[i, j] + s2[j] * point


@_compiled
def product(matrix, v, out, add):
    """Write out = matrix (m, k) times v (k, w), or add it to out."""
    rows, inner = matrix.shape
    columns = v.shape[1]
    fours = inner - inner % 4
    for o in range(rows):
        if not add:
            out[o] = ZERO
        for k in range(0, fours, 4):
            m0, m1, m2, m3 = matrix[o, k], matrix[o, k + 1], matrix[o, k + 2], matrix[o, k + 3]
            for j in range(columns):
                out[o, j] += m0 * v[k, j] + m1 * v[k + 1, j] + m2 * v[k + 2, j] + m3 * v[k + 3, j]
        for k in range(fours, inner):
            m0 = matrix[o, k]
            for j in range(columns):
                out[o, j] += m0 * v[k, j]


@_compiled
def cosh_of(a, out):
    """Write sqrt(1 + |a|^2) of the columns of lifted points (d, w)."""
    out[:] = ONE
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j] * a[i, j]
    out[:] = np.sqrt(out)


@_compiled
def load(source, begin, feature, out):
    """Copy rows from ``begin`` and features from ``feature`` of source (B, .) to columns of out (d, w); pad with 0."""
    present = min(out.shape[1], source.shape[0] - begin)
    out[:, :present] = source[begin : begin + present, feature : feature + out.shape[0]].T
    out[:, present:] = ZERO


@_compiled
def store(values, target, begin, feature):
    """Copy the columns of values (d, w) to rows from ``begin`` and features from ``feature`` of target (B, .)."""
    present = min(values.shape[1], target.shape[0] - begin)
    target[begin : begin + present, feature : feature + values.shape[0]] = values[:, :present].T


@_compiled
def chain(argument, x, bias, bias_cosh, limit, work, line):
    """Compute exp_0(argument) (+) exp_0(x) (+) bias.

    Written to ``work`` (7, d, w): lifted argument, e1, first sum, e2, sum, bias, lifted x. Written to ``line`` (10, w):
    the argument's ratio, cosh and slope (0, 1, 2), cosh of x (3), |e1|^2 (4), cosh of the first sum (5) and of the bias
    (6), |e2|^2 (7), ratio and slope of x (8, 9).
    """
    exp_radial(argument, limit, line[0], line[1], line[2])
    np.multiply(argument, line[0], work[0])
    exp_radial(x, limit, line[8], line[3], line[9])
    np.multiply(x, line[8], work[6])
    moebius_sum(ONE, work[0], line[1], work[6], line[3], work[1], line[4], work[2])
    line[5] = np.sqrt(ONE + line[4])
    for i in range(argument.shape[0]):
        for j in range(argument.shape[1]):
            work[5, i, j] = bias[i]
    line[6] = bias_cosh
    moebius_sum(ONE, work[2], line[5], work[5], line[6], work[3], line[7], work[4])


@_compiled
def chain_backward(g, argument, x, work, line, g_argument, g_x, bias_sum, spare):
    """Go backward through ``chain`` from the gradient g (d, w) of its lifted sum; add to ``bias_sum`` (d,)."""
    moebius_sum_backward(ONE, g, work[3], work[2], line[7], line[5], line[6], spare[0], spare[1])
    for i in range(g.shape[0]):
        total = ZERO
        for j in range(g.shape[1]):
            total += spare[1, i, j]
        bias_sum[i] += total
    moebius_sum_backward(ONE, spare[0], work[1], work[0], line[4], line[1], line[3], spare[1], g_x)
    radial_backward(spare[1], argument, line[0], line[2], g_argument)
    radial_backward(g_x, x, line[8], line[9], g_x)


@_compiled
def forward_tiles(inputs, bias, weight, constants, start, states, saved, begin, end):
    """Run all steps of the tiles begin..end.

    Arguments: tangent inputs (L, B, 3d), lifted bias (3, d), weight (3d, d), constants (rho, largest s, whether phi is
    tanh, whether the reset gate comes after the product), tangent start (B, d). Written: tangent states (L, B, d) and
    saved (tiles, L, slots * d, w). The slots are the arguments of the three exp_0, gates r and z, lifted candidate,
    previous state, and the candidate's W h if the reset gate comes after it.
    """
    (rho, limit, tanh, after), (length, width, w) = constants, (inputs.shape[0], bias.shape[1], saved.shape[3])
    bias_cosh = np.empty(3, F)
    cosh_of(bias.T, bias_cosh)
    work, line = np.empty((7, width, w), F), np.empty((10, w), F)
    block = np.empty((7, width, w), F)
    v, x, h, step, e, total, move = block[0], block[1], block[2], block[3], block[4], block[5], block[6]
    lines = np.empty((6, w), F)
    hc, cc, n2, f, slope, mc = lines[0], lines[1], lines[2], lines[3], lines[4], lines[5]
    for k in range(begin, end):
        first = k * w
        load(start, first, 0, v)
        for t in range(length):
            slots = saved[k, t]
            r, z = slots[3 * width : 4 * width], slots[4 * width : 5 * width]
            cand, last = slots[5 * width : 6 * width], slots[2 * width : 3 * width]
            slots[6 * width : 7 * width] = v
            exp_radial(v, limit, f, hc, slope)
            np.multiply(v, f, h)
            if after:
                product(weight, v, slots[: 3 * width], False)
            else:
                product(weight[: 2 * width], v, slots[: 2 * width], False)
            for q in range(2):
                load(inputs[t], first, q * width, x)
                chain(slots[q * width : (q + 1) * width], x, bias[q], bias_cosh[q], limit, work, line)
                log_radial(line[7], FAR, f, slope)
                gate = r if q == 0 else z
                for i in range(width):
                    for j in range(w):
                        gate[i, j] = ONE / (ONE + exp(-rho * f[j] * work[4, i, j]))
            if after:
                slots[7 * width : 8 * width] = last
                last *= r
            else:
                np.multiply(r, v, step)
                product(weight[2 * width :], step, last, False)
            load(inputs[t], first, 2 * width, x)
            chain(last, x, bias[2], bias_cosh[2], limit, work, line)
            if tanh:
                log_radial(line[7], FAR, f, slope)
                for i in range(width):
                    for j in range(w):
                        step[i, j] = (ONE - TWO / (ONE + exp(TWO * rho * f[j] * work[4, i, j]))) / rho
                exp_radial(step, limit, f, cc, slope)
                np.multiply(step, f, cand)
            else:
                cc[:] = np.sqrt(ONE + line[7])
                cand[:] = work[4]
            moebius_sum(-ONE, h, hc, cand, cc, e, n2, total)
            log_radial(n2, FAR, f, slope)
            for i in range(width):
                for j in range(w):
                    move[i, j] = z[i, j] * f[j] * total[i, j]
            exp_radial(move, FAR, f, mc, slope)
            np.multiply(move, f, step)
            moebius_sum(ONE, h, hc, step, mc, e, n2, total)
            log_radial(n2, limit, f, slope)
            np.multiply(total, f, v)
            store(v, states[t], first, 0)


@_compiled
def backward_tiles(
    g_states, inputs, bias, w_gates, w_last, constants, saved, g_inputs, g_arguments, g_start, g_bias, g_rho, begin, end
):
    """Go backward through ``forward_tiles`` from gradients (L, B, d) of its states; the weights are transposed.

    Adds to g_bias (3, d), and rho times the gradient by rho to the columns of g_rho (w,).
    """
    (rho, limit, tanh, after), (length, width, w) = constants, (inputs.shape[0], bias.shape[1], saved.shape[3])
    bias_cosh = np.empty(3, F)
    cosh_of(bias.T, bias_cosh)
    block = np.empty((18, width, w), F)
    x, h, eq, sq, wv, move = block[0], block[1], block[2], block[3], block[4], block[5]
    lifted, e3, s3, g, g1, gh = block[6], block[7], block[8], block[9], block[10], block[11]
    gu, gc, gx, g_last, step, carry = block[12], block[13], block[14], block[15], block[16], block[17]
    ga = np.empty((3 * width, w), F)
    work, spare, line = np.empty((7, width, w), F), np.empty((2, width, w), F), np.empty((10, w), F)
    lines = np.empty((15, w), F)
    hr, hc, hs, cc, nq = lines[0], lines[1], lines[2], lines[3], lines[4]
    fq, slope_q, mr, mc, ms = lines[5], lines[6], lines[7], lines[8], lines[9]
    n3, f3, slope_3, f, slope = lines[10], lines[11], lines[12], lines[13], lines[14]
    for k in range(begin, end):
        first = k * w
        carry[:] = ZERO
        for t in range(length - 1, -1, -1):
            slots = saved[k, t]
            r, z = slots[3 * width : 4 * width], slots[4 * width : 5 * width]
            cand, v = slots[5 * width : 6 * width], slots[6 * width : 7 * width]
            # recompute the forward step
            exp_radial(v, limit, hr, hc, hs)
            np.multiply(v, hr, h)
            cosh_of(cand, cc)
            moebius_sum(-ONE, h, hc, cand, cc, eq, nq, sq)
            log_radial(nq, FAR, fq, slope_q)
            np.multiply(sq, fq, wv)
            np.multiply(z, wv, move)
            exp_radial(move, FAR, mr, mc, ms)
            np.multiply(move, mr, lifted)
            moebius_sum(ONE, h, hc, lifted, mc, e3, n3, s3)
            log_radial(n3, limit, f3, slope_3)
            # h' = log_0(h (+) exp_0(z w)), w = log_0(-h (+) candidate)
            load(g_states[t], first, 0, g)
            g += carry
            radial_backward(g, s3, f3, slope_3, g1)
            moebius_sum_backward(ONE, g1, e3, h, n3, hc, mc, gh, step)
            radial_backward(step, move, mr, ms, gu)
            np.multiply(gu, z, g)
            radial_backward(g, sq, fq, slope_q, g1)
            moebius_sum_backward(-ONE, g1, eq, h, nq, hc, cc, step, gc)
            gh += step
            radial_backward(gh, v, hr, hs, carry)
            # candidate
            argument = slots[2 * width : 3 * width]
            load(inputs[t], first, 2 * width, x)
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
                        g_rho[j] -= g1[i, j] * step[i, j]
                        g1[i, j] *= ONE - rho * rho * step[i, j] * step[i, j]
                        g_rho[j] += g1[i, j] * f[j] * work[4, i, j]
                radial_backward(g1, work[4], f, slope, gc)
            chain_backward(gc, argument, x, work, line, g_last, gx, g_bias[2], spare)
            store(gx, g_inputs[t], first, 2 * width)
            if after:
                np.multiply(g_last, slots[7 * width : 8 * width], g)
                np.multiply(g_last, r, ga[2 * width :])
                store(ga[2 * width :], g_arguments[t], first, 2 * width)
            else:
                store(g_last, g_arguments[t], first, 2 * width)
                product(w_last, g_last, step, False)
                np.multiply(step, v, g)
                step *= r
                carry += step
            # gates: g is the gradient of r, gu * w that of z
            for q in range(2):
                for i in range(width):
                    for j in range(w):
                        if q == 0:
                            g1[i, j] = g[i, j] * r[i, j] * (ONE - r[i, j]) * rho
                        else:
                            g1[i, j] = gu[i, j] * wv[i, j] * z[i, j] * (ONE - z[i, j]) * rho
                argument = slots[q * width : (q + 1) * width]
                load(inputs[t], first, q * width, x)
                chain(argument, x, bias[q], bias_cosh[q], limit, work, line)
                log_radial(line[7], FAR, f, slope)
                for i in range(width):
                    for j in range(w):
                        g_rho[j] += g1[i, j] * f[j] * work[4, i, j]
                radial_backward(g1, work[4], f, slope, step)
                chain_backward(step, argument, x, work, line, ga[q * width : (q + 1) * width], gx, g_bias[q], spare)
                store(gx, g_inputs[t], first, q * width)
                store(ga[q * width : (q + 1) * width], g_arguments[t], first, q * width)
            product(w_gates, ga if after else ga[: 2 * width], carry, True)
        store(carry, g_start, first, 0)
