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
from sparsity.exact_law import engine, rules
from sparsity.exact_law.gaussian_tail import ROOT_2_PI
from sparsity.exact_law.laplace import order_of
from sparsity.kernels import exp
from sparsity.quantities import Integral, LogMoment, Quantity
from sparsity.quantities.base import within
from sparsity.rows.row import Row
from sparsity.special import ndtr

# Of the trapezoidal step: the interpolation at every gate takes more points than the integration.
_OF_STEP = 0.5
# Points of the interpolation, even. More are exact to more digits at each gate, and widen the band
# of the fixed point; the bound by twice the step tells if they are too few.
_STENCIL = 20
_MOST_TOKENS = 2**14  # over which rows may still change
_SAME, _LOOK = 1e-15, 8  # relative change of a row that is none; tokens between looks at it
_NOTHING = -46.0  # log of a share of a row that is far below rounding
_WIDE = 100.0  # e-folds of a spread from which on gates are nearly all open or shut
_OPEN = 40.0  # bias from which on a gate is 1 in float64
_NO_GATE = 745.0  # e-folds down to a gate that is 0 in float64
_MOST_OF_BAND = 5e7  # numbers of a band matrix: 0.4 GB
_CALL = 2e-5  # seconds of a convolution besides its products
_WHOLE = 1e-12  # relative: a ratio of steps that is a whole number but for rounding
_ROUNDING, _ROUNDING_OF_TOKEN = 1e-13, 1e-15  # relative, and of each convolution


class Gates(NamedTuple):
    """Gates g = σ(b + cε).

    Args:
        bias: b.
        spread: c ≥ 0.
    """

    bias: float
    spread: float

    def points(
        self, power: float, step: float, deepest: float = _NO_GATE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values of −ln g^power and their probabilities; ∞ is any beyond the deepest.

        Args:
            power: of g.
            step: of the rule, in e-folds of g^power.
            deepest: the value from which on all are the same.
        """
        # The rule over ε has a step in e-folds of the gate: the wider the spread, the more points.
        if power * self.spread <= _WIDE:
            z, share = rules.normal_points(power * self.spread, rules.FAR, step)
            return power * np.logaddexp(0.0, -(self.bias + self.spread * z)), share
        # So wide a spread takes a rule over the bias of a gate, where it is neither 0 nor 1, and
        # the two tails of the normal law beyond.
        each = step / power
        bias = each * np.arange(-math.ceil(deepest / each / power), math.ceil(_OPEN / each))
        z, h = (bias - self.bias) / self.spread, each / self.spread
        share = h * np.exp(-np.minimum(z * z, 1e3) / 2) / ROOT_2_PI
        ends = [_sum_beyond(-(float(z[0]) - h / 2), h), _sum_beyond(float(z[-1]) + h / 2, h)]
        back = power * np.logaddexp(0.0, -bias)
        return np.append(back, [math.inf, 0.0]), np.append(share, ends)

    def kept(self, power: float) -> tuple[float, float]:
        """Return 1 − E g^power and −ln E g^power."""
        back, share = self.points(power, rules.STEP_OF_U)
        lost, kept = -float(np.expm1(-back) @ share), float(np.exp(-back) @ share)
        if lost < 0.5:
            return lost, -math.log1p(-lost)
        return lost, -math.log(kept) if kept else math.inf

    def stencil(self, power: int, step: float, points: int) -> np.ndarray:
        """Return weights of the values at u − (points)h … u + (stencil/2)h in E F(u + c ln g).

        A gate moves F by a fraction of steps: between its points F is a local polynomial.
        """
        # One row of weights serves all points u_i, as a gate moves every one of them by the same
        # fraction of steps: its Lagrange weights, times its probability, are added where they fall.
        back, share = self.points(power, 2 * step, points * step)
        back = back / step
        back, share = back[back < points], share[back < points]
        near, half = np.floor(back), _STENCIL // 2
        nodes = np.arange(1 - half, half + 1)
        weights = share[:, None] * rules.lagrange_weights(back - near, nodes)
        found = np.zeros(points + 2 * _STENCIL)
        np.add.at(found, (near[:, None] + nodes).astype(int) + half, weights)
        # Cut where weights end: a recursion over n tokens pays for each of them n times.
        used = np.flatnonzero(found)
        return found[: used[-1] + 1] if len(used) else np.zeros(_STENCIL)  # gates shut beyond all u


def _sum_beyond(z: float, h: float) -> float:
    """Return the sum of a rule of step h over a normal law from z + h/2 on (Euler-Maclaurin)."""
    # The midpoint rule is off by h²/24 f′ − 7h⁴/5760 f‴ at the end; f′ = −zf, f‴ = (3z − z³)f. The
    # rule itself, not the integral, keeps the probabilities' sum at 1.
    density = math.exp(-min(z * z, 1e3) / 2) / ROOT_2_PI
    return float(ndtr(-z)) - density * h**2 * z * (1 / 24 + 7 / 5760 * h**2 * (3 - z * z))


def has(quantity: Quantity) -> bool:
    """Return whether a quantity has this law: a sum over tokens of one integral, or n_eff."""
    integral = quantity.integral
    one_sum = integral is not None and len(integral.sums) == 1 and quantity.needs is None
    return one_sum or quantity in (quantities.n_eff, quantities.support)


def _newest_token(gamma: float, integral: Integral, u: np.ndarray, step: float) -> _Row:
    """Return E e^(−x) and E[f(x) e^(−x)] of one token; of n_eff those of √x and x."""
    orders, steepness = [order_of(m) for m in integral.moments], integral.power * gamma
    # x^k moves the law of z by k·steepness, but where log x > 6 nothing is left of e^(−x).
    far = rules.FAR + min(max(orders) * steepness, max((6.0 - u[0]) / steepness - rules.FAR, 0.0))
    # From a steepness of ½ on the step of z is two steps of u: then all u_i + steepness·z_j lie on
    # one grid, and e^(−x) is computed once per point of it, instead of once per pair.
    z, share = rules.normal_points(steepness, far, 2 * step)
    each = -float(z[0]) / max(len(z) // 2, 1)  # between points of z, without a difference's error
    steps = steepness * each / step  # of u, as many
    stride = round(steps)
    aligned = stride >= 1 and abs(steps - stride) < _WHOLE * stride
    if aligned:  # points in u and in z have the same sums: a mean is a convolution
        rise = stride * (len(z) // 2)
        log_x = u[0] + step * np.arange(-rise, len(u) + rise)
    else:
        log_x = u[:, None] + steepness * z

    def mean(of: np.ndarray) -> np.ndarray:
        if not aligned:
            return of @ share
        found = np.empty(len(u))
        for i in range(stride):
            found[i::stride] = np.correlate(of[i::stride], share, "valid")
        return found

    x = np.exp(np.minimum(log_x, 700.0))
    moments = []
    for order, moment in zip(orders, integral.moments, strict=True):
        body = np.exp(order * np.minimum(log_x, 700.0) - x)
        moments.append(mean(body * log_x if isinstance(moment, LogMoment) else body))
    if len(integral.sums) == 1:
        moments = [integral.sums[0][0](*moments)]
    return _Row(mean(np.exp(-x)), moments)


class _GateMean:
    """E F(u + c ln g) over a gate g, of fields F on points of u; what F is beyond them is given.

    Args:
        weights: the stencil of the gates.
        points: of u.
    """

    def __init__(self, weights: np.ndarray, points: int) -> None:
        self.points, self.taps, self.half = points, len(weights), _STENCIL // 2
        self.turned, self.lost = weights[::-1].copy(), 1 - float(weights.sum())
        self._padded = np.empty(points + self.taps + self.half)

    def __call__(self, field: np.ndarray, before: float = 0.0) -> np.ndarray:
        """Return the mean of one field, which is `before` below all points."""
        # To the right a field keeps its last value, to the left it is `before`: φ is 1 there,
        # moments are 0. Gates shut beyond all u, `lost`, lead there too.
        more, start = self._padded, self.taps
        more[:start], more[start : -self.half], more[-self.half :] = before, field, field[-1]
        return np.correlate(more, self.turned, "valid")[self.half + 1 :] + before * self.lost

    def fixed_point(self, factor: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the solver of F(u) = source(u) + factor(u) E F(u + c ln g), given the source."""
        from scipy.linalg import solve_banded  # slow to import

        # Solving is direct: n convolutions converge like (E g^e)^n, too slowly for gates near 1.
        below = min(self.taps - self.half - 1, self.points - 1)
        # A gate moves F a few points up at most and far down: I − factor·E is a band matrix.
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
    """What rows of some length are in u: φ and the fields of `_newest_token`; two have pairs."""

    phi: np.ndarray
    fields: list[np.ndarray]

    def longer(self, one: _Row, gated: _GateMean) -> _Row:
        """Return rows of one token more, given rows of one."""
        beside = gated(self.phi, 1.0)
        rest = [gated(field) for field in self.fields]
        new = [f1 * beside + one.phi * f for f1, f in zip(one.fields, rest, strict=True)]
        # (Σ√x)² of n tokens is that of n − 1, plus x, plus 2√x times the sum of the others.
        if len(new) == 2:
            new[1] += 2 * one.fields[0] * rest[0]
        return _Row(one.phi * beside, new)

    def endless(self, gated: _GateMean) -> _Row:
        """Return the rows that one token more does not change, given rows of one."""
        # F = f₁·Eφ + φ₁·EF is linear in F once φ is known, and so is φ = φ₁·Eφ: the same band
        # matrix for all. The source of φ is what it is below the grid, 1.
        solve = gated.fixed_point(self.phi)
        phi = solve(self.phi * gated(np.zeros(gated.points), 1.0))
        beside, found = gated(phi, 1.0), []
        for i, f1 in enumerate(self.fields):
            more = 2 * self.fields[0] * gated(found[0]) if i else 0.0
            found.append(solve(f1 * beside + more))
        return _Row(phi, found)


def tokens_that_matter(gates: Gates, gamma: float, integral: Integral) -> float:
    """Return the tokens beyond which the rest of a row changes the quantity by nothing.

    What the rest changes is at most its share of Σ|a|^e, of an e ≤ 1 that goes with the quantity.
    That share is at most E Σ_rest |a|^e · E |a_1|^(−e), of the newest token.
    """
    # E|a_1|^(−e) = e^((eγ)²/2), and so is E|a|^e; the gates' powers are a geometric series of sum
    # e^(−each·k)/lost beyond k tokens. Solved for the k at which the share is e^(_NOTHING).
    e = min(1.0, integral.power * min(map(order_of, integral.moments)))
    lost, each = gates.kept(e)
    return ((e * gamma) ** 2 - math.log(lost) - _NOTHING) / each if lost > 0 else math.inf


def _by_rule(
    gates: Gates, gamma: float, integral: Integral, n: np.ndarray, step: float
) -> np.ndarray:
    """Return the mean over rows of n, increasing, but for its factor of n, by a step in u."""
    spread = integral.power * gamma
    depth = rules.DEPTH / min(1.0, *map(order_of, integral.moments))
    reach = tokens_that_matter(gates, gamma, integral)
    fields = 1 + len(integral.sums)
    points = (depth + math.log(n[-1]) + 2 * rules.FAR * spread) / step
    rules.refuse_slow("gamma", gamma, rules.PRODUCT * fields * points**2 / 2, 8 * points)
    u = rules.log_times(spread, float(n[-1]), step, depth)
    gated = _GateMean(gates.stencil(integral.power, step, len(u)), len(u))
    band = gated.taps + _STENCIL
    each = fields * (rules.PRODUCT * len(u) * gated.taps + _CALL)
    # A fixed point costs as much as many tokens: it is solved for where that is less work.
    solving = rules.PRODUCT * len(u) * band**2 if len(u) * band < _MOST_OF_BAND else math.inf
    # Lengths ascend, so that one recursion passes all of them. `at` is the length of `row`, and
    # infinite once rows no longer change.
    row = one = _newest_token(gamma, integral, u, step)
    at, found = 1, []
    for length in n:
        tokens = min(reach, float(length), _MOST_TOKENS) - at
        solved = at < reach <= min(length, _MOST_TOKENS) and solving < tokens * each
        rules.refuse_slow("length", float(length), solving if solved else tokens * each)
        if solved:
            row, at = one.endless(gated), math.inf
        while at < min(length, reach):
            if at == _MOST_TOKENS:
                fix = f"more than {_MOST_TOKENS} tokens of the row still matter; use estimate"
                raise TooFine("length", float(length), fix)
            was, row, at = row.fields[-1], row.longer(one, gated), at + 1
            new = row.fields[-1]
            if not at % _LOOK and np.abs(new - was).max() <= _SAME * np.abs(new).max():
                at = math.inf
        found.append(row.fields[-1].sum() * step)
    return np.array(found)


def law(
    gate: float, gate_spread: float, gamma: float, length: np.ndarray, quantity: Quantity
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of a quantity over rows of n tokens, and a bound on its relative error.

    Args:
        gate: bias b of the gates σ(b + cε).
        gate_spread: their spread c ≥ 0.
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].
        quantity: one that it `has`.

    Raises:
        TooFine: gates so near 1 that rows beyond reach still change, or scores so spread that the
            law takes more than seconds.
    """
    n = np.asarray(length, dtype=np.float64)
    integral = quantity.integral
    if integral is None:  # the support
        return n, np.zeros(n.shape)
    lengths, place = np.unique(n, return_inverse=True)
    value = np.array([integral.ends(m, 1, False)[0] for m in lengths])  # of one token
    error = np.zeros(lengths.shape)
    gates, several = Gates(gate, gate_spread), lengths > 1
    if tokens_that_matter(gates, gamma, integral) <= 1:  # the newest token has all there is
        with np.errstate(divide="ignore"):
            size = value[several] + integral.excess_of_abs
            error[several] = _ROUNDING * size / value[several]
        return value[place], error[place]
    # Gates that are 1 but for a chance below rounding leave rows of softmax.
    open_ = several & (lengths**2 * gates.kept(1.0)[0] < _ROUNDING)
    several &= ~open_
    if open_.any():
        value[open_], _, off = engine.law(Row(exp, gamma=gamma), quantity, lengths[open_])
        error[open_] = off + _ROUNDING
    if several.any():
        m = lengths[several]
        step = _OF_STEP * rules.STEP_OF_U
        fine, coarse = (_by_rule(gates, gamma, integral, m, x) for x in (step, 2 * step))
        rounding = _ROUNDING + _ROUNDING_OF_TOKEN * np.minimum(m, _MOST_TOKENS)
        gap = np.abs(coarse - fine) + rounding * (np.abs(fine) + integral.excess_of_abs)
        error[several] = gap / np.maximum(np.abs(fine), 1e-300)
        ends = np.transpose([integral.ends(x, x, False) for x in m])
        value[several] = within(fine * [integral.factor(x) for x in m], error[several], ends)
    return value[place], error[place]
