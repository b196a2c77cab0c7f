"""The exact law of forgetting rows, whose weights fall off by random gates: a recursion.

A row of n is its newest token and a row of n − 1 under one more gate: Z_n = e^s + g Z′_(n−1). So
with x = t a^c, u = ln t, and a quantity whose mean is ∫ E[Σ_j f(x_j) e^(−Σx)] du (`Integral`),

    φ_n(u) = φ₁(u) E φ_(n−1)(u + c ln g)
    F_n(u) = F₁(u) E φ_(n−1)(u + c ln g) + φ₁(u) E F_(n−1)(u + c ln g),

and likewise for the pairs in (Σ|a|)². A gate is a convolution in u, the same at every token: one
row of weights over the points of u, interpolated between them. One integral over u and n
convolutions: no single integral, but exact. What no longer changes with n is not computed further;
rows far longer than what gates leave of them are the fixed point of the recursion, a linear system.
The bound holds the rule of twice the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.errors import TooFine
from sparsity.finite.trapezoid import DEPTH, FAR, STEP, normal, times
from sparsity.quantities import LogMoment, Quantity
from sparsity.quantities.base import within

_OF_STEP = 0.5  # of the trapezoidal step: interpolation takes more points than integration
_STENCIL = 20  # points of the interpolation, even
_MOST = 2**14  # tokens over which rows may still change
_SAME, _LOOK = 1e-15, 8  # relative change of a row that is none; tokens between looks at it
_NOTHING = -46.0  # log of a share of a row that is far below rounding
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


class _Gates:
    """E F(u + c ln g) over a gate g, of fields F on points of u; what F is beyond them is given.

    Args:
        weights: as from `_gate`.
        points: of u.
    """

    def __init__(self, weights: np.ndarray, points: int) -> None:
        self.points, self.taps, self.half = points, len(weights), _STENCIL // 2
        self.turned, self.lost = weights[::-1].copy(), 1 - float(weights.sum())
        self._more = np.empty(points + self.taps + self.half)

    def __call__(self, field: np.ndarray, before: float = 0.0) -> np.ndarray:
        """The mean of one field, which is `before` below all points."""
        more, start = self._more, self.taps
        more[:start], more[start : -self.half], more[-self.half :] = before, field, field[-1]
        return np.correlate(more, self.turned, "valid")[self.half + 1 :] + before * self.lost

    def fixed(self, factor: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The solver of F(u) = source(u) + factor(u) E F(u + c ln g), given the source."""
        from scipy.linalg import solve_banded  # slow to import

        below = min(self.taps - self.half - 1, self.points - 1)
        band = np.zeros((self.half + below + 1, self.points))  # [half + row − column, column]
        rows = np.arange(self.points)
        for d in range(-below, self.half + 1):
            weight = factor * self.turned[d + self.taps - self.half - 1]
            columns = np.minimum(rows + d, self.points - 1)  # beyond the last point as at it
            seen = columns >= 0
            place = self.half + rows[seen] - columns[seen], columns[seen]
            np.subtract.at(band, place, weight[seen])
        band[self.half] += 1
        return lambda source: solve_banded((below, self.half), band, source)


class _Row(NamedTuple):
    """What rows of some length are in u: φ and the fields of `_token`."""

    phi: np.ndarray
    fields: list[np.ndarray]

    def longer(self, one: _Row, gated: _Gates, pairs: bool) -> _Row:
        """Rows of one token more, given rows of one."""
        beside = gated(self.phi, 1.0)
        rest = [gated(field) for field in self.fields]
        new = [f1 * beside + one.phi * f for f1, f in zip(one.fields, rest, strict=True)]
        if pairs:
            new[1] += 2 * one.fields[0] * rest[0]
        return _Row(one.phi * beside, new)

    def endless(self, gated: _Gates, pairs: bool) -> _Row:
        """The rows that one token more does not change, given rows of one."""
        solved = gated.fixed(self.phi)
        phi = solved(self.phi * gated(np.zeros(gated.points), 1.0))
        beside, found = gated(phi, 1.0), []
        for i, f1 in enumerate(self.fields):
            more = 2 * self.fields[0] * gated(found[0]) if pairs and i else 0.0
            found.append(solved(f1 * beside + more))
        return _Row(phi, found)


def _reach(gate: float, gate_spread: float, gamma: float, quantity: Quantity) -> float:
    """Tokens beyond which the rest of a row changes the quantity by less than rounding.

    The share of the rest in Σ|a|^e is at most E Σ_rest |a|^e · E |a_1|^(−e), of the newest token.
    """
    assert quantity.integral is not None
    e = min(1.0, quantity.integral.power * min(_orders(quantity)))
    z, share = normal(e * gate_spread, FAR, STEP)
    lost = -float(np.expm1(-e * np.logaddexp(0.0, -(gate + gate_spread * z))) @ share)  # 1 − E g^e
    return ((e * gamma) ** 2 - math.log(lost) - _NOTHING) / -math.log1p(-lost) if lost else math.inf


def _rows(
    gates: tuple[float, float], gamma: float, quantity: Quantity, n: np.ndarray, step: float
) -> np.ndarray:
    """The mean over rows of n, increasing, but for its factor of n, by the rule of a step in u."""
    integral = quantity.integral
    assert integral is not None
    u = times(integral.power * gamma, float(n[-1]), step, DEPTH / min(1.0, *_orders(quantity)))
    gated = _Gates(_gate(*gates, integral.power, step, len(u)), len(u))
    phi, *fields = _token(gamma, quantity, u, step)
    row = one = _Row(phi, fields)
    pairs, reach = quantity is quantities.n_eff, _reach(*gates, gamma, quantity)
    at, found = 1, []
    for length in n:
        if at < reach <= min(length, _MOST):
            row, at = one.endless(gated, pairs), math.inf
        while at < length:
            if at == _MOST:
                fix = f"more than {_MOST} tokens of the row still matter; use estimate"
                raise TooFine("length", float(length), fix)
            was, row, at = row.fields[-1], row.longer(one, gated, pairs), at + 1
            new = row.fields[-1]
            if not at % _LOOK and np.abs(new - was).max() <= _SAME * np.abs(new).max():
                at = math.inf
        found.append(row.fields[-1].sum() * step)
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
    ends = np.transpose([quantity.integral.ends(m, m, False) for m in lengths])
    if lengths[0] == 1:
        value[0], error[0] = ends[0][0], 0.0
    return within(value, error, ends)[place], error[place]
