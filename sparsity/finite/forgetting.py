"""The exact law of forgetting rows, whose weights fall off by random gates: a recursion.

A row of n is its newest token and a row of n − 1 under one more gate: Z_n = e^s + g Z′_(n−1). So
with x = t a^c, u = ln t, and a quantity whose mean is ∫ E[Σ_j f(x_j) e^(−Σx)] du (`Integral`),

    φ_n(u) = φ₁(u) E φ_(n−1)(u + c ln g)
    F_n(u) = F₁(u) E φ_(n−1)(u + c ln g) + φ₁(u) E F_(n−1)(u + c ln g),

and likewise for the pairs in (Σ|a|)². A gate is a convolution in u, the same at every token: one
row of weights over the points of u, interpolated between them. One integral over u and n
convolutions: no single integral, but exact. What no longer changes with n is not computed further.
The bound holds the rule of twice the step.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity import quantities
from sparsity.errors import TooFine
from sparsity.finite.trapezoid import DEPTH, FAR, STEP, normal, times
from sparsity.quantities import LogMoment, Quantity

_OF_STEP = 0.5  # of the trapezoidal step: interpolation takes more points than integration
_STENCIL = 20  # points of the interpolation, even
_MOST = 2**14  # tokens over which rows may still change
_SAME = 1e-15
_ROUNDING, _EACH = 1e-13, 1e-15  # relative, and of each convolution


def has(quantity: Quantity) -> bool:
    """Whether a quantity has this law: a sum over tokens of one integral, or n_eff."""
    integral = quantity.integral
    alone = integral is not None and len(integral.sums) == 1 and not quantity.sinks
    return alone or quantity in (quantities.n_eff, quantities.support)


def _gate(gate: float, gate_spread: float, power: int, step: float, points: int) -> np.ndarray:
    """Weights of the values at u − (points)h … u + (stencil/2)h in E F(u + c ln g)."""
    z, share = normal(power * gate_spread, FAR, 2 * step)
    back = power * np.logaddexp(0.0, -(gate + gate_spread * z)) / step
    near = np.minimum(np.floor(back), points + _STENCIL)
    frac, half = back - near, _STENCIL // 2
    nodes = np.arange(1 - half, half + 1)
    gaps = nodes[:, None] - nodes + np.eye(_STENCIL)
    found = np.zeros(points + 2 * _STENCIL)
    for node, gap in zip(nodes, gaps, strict=True):  # Lagrange's polynomials, of steps back
        others = nodes[nodes != node]
        value = np.prod(frac[:, None] - others, axis=1) / np.prod(gap)
        place = (near + node).astype(int) + half
        seen = (back < points) & (place < len(found))
        np.add.at(found, place[seen], (share * value)[seen])
    last = np.flatnonzero(found)[-1] + 1
    return found[:last]


def _orders(quantity: Quantity) -> list[float]:
    assert quantity.integral is not None
    return [m.order if isinstance(m, LogMoment) else m for m in quantity.integral.moments]


def _token(gamma: float, quantity: Quantity, u: np.ndarray, step: float) -> list[np.ndarray]:
    """E e^(−x) and E[f(x) e^(−x)] of one token; of n_eff those of √x and x."""
    integral = quantity.integral
    assert integral is not None
    orders = _orders(quantity)
    steepness = integral.power * gamma
    z, share = normal(steepness, FAR + max(orders) * steepness, 2 * step)
    log_x = u[:, None] + steepness * z
    x = np.exp(np.minimum(log_x, 700.0))
    moments = []
    for order, moment in zip(orders, integral.moments, strict=True):
        body = np.exp(order * np.minimum(log_x, 700.0) - x)
        moments.append((body * log_x if isinstance(moment, LogMoment) else body) @ share)
    if quantity is not quantities.n_eff:
        moments = [integral.sums[0][0](*moments)]
    return [np.exp(-x) @ share, *moments]


def _rows(
    gates: tuple[float, float], gamma: float, quantity: Quantity, n: np.ndarray, step: float
) -> np.ndarray:
    """The mean over rows of n, increasing, but for its factor of n, by the rule of a step in u."""
    integral = quantity.integral
    assert integral is not None
    u = times(integral.power * gamma, float(n[-1]), step, DEPTH / min(1.0, *_orders(quantity)))
    gate = _gate(*gates, integral.power, step, len(u))
    half, pairs = _STENCIL // 2, quantity is quantities.n_eff

    more, lost = np.empty(len(gate) + len(u) + half), 1 - gate.sum()

    def gated(values: np.ndarray, before: float = 0.0) -> np.ndarray:
        more[: len(gate)], more[len(gate) : -half], more[-half:] = before, values, values[-1]
        return np.convolve(more, gate, "valid")[half + 1 :] + before * lost

    phi1, *own = _token(gamma, quantity, u, step)
    phi, fields = phi1, own
    at, found = 1, []
    for length in n:
        while at < length:
            beside = gated(phi, 1.0)
            rest = [gated(field) for field in fields]
            new = [f1 * beside + phi1 * f for f1, f in zip(own, rest, strict=True)]
            if pairs:
                new[1] += 2 * own[0] * rest[0]
            still = np.abs(new[-1] - fields[-1]).max() <= _SAME * np.abs(new[-1]).max()
            phi, fields, at = phi1 * beside, new, at + 1
            if still:
                at = math.inf
            elif at > _MOST:
                fix = f"more than {_MOST} tokens of the row still matter; use estimate"
                raise TooFine("length", float(length), fix)
        found.append(fields[-1].sum() * step)
    return np.array(found)


def law(
    gate: float, gate_spread: float, gamma: float, length: np.ndarray, quantity: Quantity
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of a quantity over rows of n tokens, and a bound on its relative error.

    Args:
        gate: bias b of the gates σ(b + cε).
        gate_spread: their spread c ≥ 0.
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].
        quantity: one that it `has`.

    Raises:
        TooFine: gates so near 1 that rows beyond reach still change.
    """
    n = np.asarray(length, dtype=np.float64)
    if quantity is quantities.support:
        return n, np.zeros(n.shape)
    assert quantity.integral is not None
    lengths, place = np.unique(n, return_inverse=True)
    fine, coarse = (
        _rows((gate, gate_spread), gamma, quantity, lengths, scale * _OF_STEP * STEP)
        for scale in (1, 2)
    )
    error = np.abs(coarse - fine) / np.maximum(np.abs(fine), 1e-300)
    error += _ROUNDING + _EACH * np.minimum(lengths, _MOST)
    value = fine * [quantity.integral.factor(m) for m in lengths]
    if lengths[0] == 1:
        value[0], error[0] = quantity.integral.alone(1.0), 0.0
    ends = [(quantity.integral.least(m), quantity.integral.most(m, m)) for m in lengths]
    return np.clip(value, *np.transpose(ends))[place], error[place]
