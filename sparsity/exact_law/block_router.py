"""The exact law of the mass that blocks hold, of which k are chosen by their mean score.

The scores of a block of B keys are γ(√c z + √(1 − c) ε_j). Their mean is γρx, x ~ N(0, 1) and
ρ² = c + (1 − c)/B, and it is independent of what is left, ε_j − ε̄. So a block weighs
e^(γρx + L), L = ln Σ_j e^(g(ε_j − ε̄)) and g = γ√(1 − c), and blocks are to the law of `router` what
keys are there: given the k-th largest mean t, they are independent in three kinds.

What is needed of L is ψ(v) = E e^(−e^(v+L)), or m = −ψ′. Of y = Σε_j/√B, given which the residuals
have always the same law, the transform is a power, so that m is its inverse at y = 0:

    m(v) = B/√(2π) ∫ M^(B−1) M₁ dω,    M_p = E[x^p e^((θ+iω)ε/√B − x)],  x = e^(v + gε),

for any θ. At the θ at which y has the mean 0 under the tilt nothing cancels. 1 − ψ is the
integral of m from below.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law import rules
from sparsity.exact_law.router import (
    DEPTH,
    HIGH,
    LEVELS,
    LOW,
    ROUNDING,
    STEP_U,
    Kinds,
    captured,
    mean_and_coarser,
)
from sparsity.exact_law.top_k import kth_scores
from sparsity.kernels.router import correlation_of_blocks
from sparsity.special import ndtr

_STEP_V = 0.05  # of the table of m, between whose points a spline of order 7 is right to 1e-13
_FAR_Y = 9.5  # standard deviations of y that the sum over ω keeps apart: e^(−45)
_PANEL = 8  # points of a panel of x
_POINT = 1.2e-7  # seconds of a point of [u, x] of both rules; measured
_HELD = 2e6  # points of [u, x] at once
_SMALL = 2e-15  # of M^(B−1) M₁ over its value at ω = 0, where the sum over ω ends: rounding
_POINTS_OF_T = 65  # of the 257 that `kth_scores` gives every fourth
_BISECTIONS = 24  # of τ: a contour to 1e-7 of its range is as good as the exact one
_EVERY = 8  # of v, for θ
_TOGETHER = 128  # points of v in a part


def _last_omega(v: np.ndarray, g: float, size: int) -> float:
    """Return about the ω where M^B has fallen by 36 e-folds.

    It falls like the transform of y, of variance 1/(1 + g²x) under the tilt, and at last like
    e^(−πω√B/(2g)).
    """
    return 8.5 * math.sqrt(1 + g * g * float(np.exp(v[-1]))) + 23 * g / math.sqrt(size)


def _step(v: np.ndarray, g: float, size: int) -> float:
    """Return the step of ε, which follows e^(iωε/√B) to the last ω, and beyond.

    A rule of step h gives frequency 2π/h − ω the value of ω: what it cannot follow comes back so.
    """
    step = 2 * math.pi / (2.5 * _last_omega(v, g, size) / math.sqrt(size) + 2 * _FAR_Y)
    return min(step, 0.25, 0.15 / max(g, 1e-300))


def _width(g: float, size: int) -> float:
    """Return the step of ω: the sum over ω repeats in y, with the period 2π over the step."""
    return 2 * math.pi / (_FAR_Y + 2 * g / math.sqrt(size))


def _parts(v: np.ndarray) -> list[np.ndarray]:
    """Return parts over which the sums over ω are about as long."""
    return np.array_split(v, max(1, len(v) // _TOGETHER))


def _seconds(v: np.ndarray, g: float, size: int) -> float:
    """Return about how many seconds the table takes."""
    found = 0.0
    for part in _parts(v):
        points = len(part) * (HIGH - LOW + g) / _step(part, g, size)
        terms = _last_omega(part, g, size) / _width(g, size)
        found += points * (4 * rules.EXPONENTIAL + terms * rules.PRODUCT)
    return found


def _weights(v: np.ndarray, g: float, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points of ε, and log(φ(ε) e^(θε/√B − x)) and x = e^(v + gε) at each, [v, ε]."""
    step = _step(v, g, size)
    e = rules.spaced(LOW - 2, HIGH + g + step, step)
    with np.errstate(over="ignore", under="ignore"):
        x = np.exp(np.minimum(v[:, None] + g * e, 700.0))
        base = -0.5 * e * e - x
        # Bisection for the tilt τ = θ/√B at which (B − 1) E₀ε + E₁ε = 0, at some of the v: it need
        # not be exact.
        some = np.unique(np.append(np.arange(0, len(v), _EVERY), len(v) - 1))
        low, high = np.full(len(some), -g / size - 1.0), (np.exp(v[some]) + 1) * g + 1.0
        for _ in range(_BISECTIONS):
            tau = (low + high) / 2
            log_p = base[some] + tau[:, None] * e
            p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
            q = p * x[some]
            mean = (size - 1) * (p @ e) / p.sum(axis=1) + (q @ e) / q.sum(axis=1)
            low, high = np.where(mean < 0, tau, low), np.where(mean < 0, high, tau)
        log_p = base + np.interp(v, v[some], tau)[:, None] * e
    return e, log_p, x


def log_moments(v: np.ndarray, g: float, size: int) -> np.ndarray:
    """Return ln m(v) − v, m = E[x e^(−x)] of x = e^(v + L), part by part.

    Args:
        v: [points], ascending, where m is above e^(−700).
        g: spread of the residuals, ≥ 0.
        size: keys B of a block.
    """
    return np.concatenate([_log_moments(part, g, size) for part in _parts(v)])


def _log_moments(v: np.ndarray, g: float, size: int) -> np.ndarray:
    """Return the same of a part."""
    e, log_p, x = _weights(v, g, size)
    step = e[1] - e[0]
    peak = log_p.max(axis=1)
    with np.errstate(under="ignore"):
        p = np.exp(log_p - peak[:, None])
        q = p * x
    log_q = np.log(q.sum(axis=1))  # x may be small throughout: it is divided out
    q = q / np.exp(log_q)[:, None]
    log_0 = np.log(p.sum(axis=1))
    p = p / np.exp(log_0)[:, None]
    width = _width(g, size)
    total, last = np.full(len(v), 0.5), _last_omega(v, g, size)
    for first in range(1, math.ceil(last / width) + 16, 16):
        omega = width * np.arange(first, first + 16)
        turn = np.exp(1j * np.outer(e, omega / math.sqrt(size)))
        rest = (p @ turn) ** (size - 1) * (q @ turn)
        total += rest.real.sum(axis=1)
        if np.abs(rest[:, -1]).max() < _SMALL:
            break
    log_total = np.log(2 * total * width) - 0.5 * math.log(2 * math.pi)
    norm = math.log(step) - 0.5 * math.log(2 * math.pi)  # of each E over ε
    return math.log(size) + (size - 1) * log_0 + log_q + size * (peak + norm) + log_total - v


class _Table:
    """A table of ln m and ln(1 − ψ), each as a spline over v; straight below the first point."""

    def __init__(self, v: np.ndarray, log_m: np.ndarray, every: int) -> None:
        """Fit through every so-manieth point of ln m(v) − v."""
        from scipy.interpolate import make_interp_spline  # slow to import, and every law reads this

        v, log_m = v[::every], log_m[::every]
        self.low, self.high = v[0], v[-1]
        smooth = make_interp_spline(v, log_m, k=7)
        # 1 − ψ is the integral of m from below, to full relative precision.
        x, w = rules.gauss_panels(v, _PANEL)
        each = (np.exp(smooth(x) + x) * w).sum(axis=1)
        missing = np.exp(log_m[0] + v[0]) + np.append(0.0, np.cumsum(each))
        log_missing = np.log(np.minimum(missing, 1.0)) - v
        # One spline of two columns finds a place once for both.
        self.both = make_interp_spline(v, np.stack([log_missing, log_m], axis=1), k=7)

    def moments(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 − ψ and m at v."""
        low, inside = v < self.high, (v > self.low) & (v < self.high)
        logs = np.empty((*v.shape, 2))
        logs[...] = self.both(self.low)
        logs[inside] = self.both(v[inside])
        with np.errstate(under="ignore"):
            missing, m = (np.exp(logs[..., i] + np.minimum(v, self.high)) for i in (0, 1))
            return np.where(low, missing, 1.0), np.where(low, m, 0.0)


def _at_and_around(
    table: _Table, spread: float, u: np.ndarray, t: np.ndarray, points: int
) -> Kinds:
    """Return the transforms of the blocks above t, at t and below, by panels of x between the t.

    Args:
        table: of the residuals.
        spread: γρ of the means.
        u: [u].
        t: ascending, [t].
        points: of a panel.
    """
    # Every t is an edge of panels, so that one sum over panels, cumulated from either end, gives
    # the means above and below all of them.
    wide = min(0.5, 1 / spread)

    def cut(low: float, high: float) -> np.ndarray:
        return np.linspace(low, high, max(1, math.ceil((high - low) / wide)) + 1)[:-1]

    ends = [min(LOW, t[0] - 1), *t, max(HIGH, t[-1] + 1)]
    pieces = [cut(*pair) for pair in itertools.pairwise(ends)]
    edges = np.append(np.concatenate(pieces), ends[-1])
    start = np.cumsum([len(piece) for piece in pieces])  # the panel that begins at each t
    x, w = rules.gauss_panels(edges, points)
    w = w * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    missing, m = table.moments(u[:, None, None] + spread * x)
    missing, m = ((each * w).sum(axis=-1) for each in (missing, m))

    def above(each: np.ndarray) -> np.ndarray:
        return np.cumsum(each[:, ::-1], axis=1)[:, ::-1][:, start[:-1]]

    none = np.zeros((len(u), len(t)))
    from_below = np.cumsum(missing, axis=1)[:, start[:-1] - 1]
    missing_at, m_at = table.moments(u[:, None] + spread * t)
    return Kinds(
        [above(missing) / ndtr(-t), none, above(m) / ndtr(-t), none],
        [missing_at, none, m_at, none],
        [from_below / ndtr(t), none, none, none],
    )


def law(
    blocks: int, size: int, gamma: float, within: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean mass captured by the blocks read, and a bound on its relative error.

    Args:
        blocks: how many blocks are read.
        size: keys B of a block.
        gamma: spread of the scores.
        within: correlation c of two scores of a block.
        length: n, multiples of B with more than that many blocks, [lengths].

    Raises:
        InputError: a length that is no multiple of B, or a spread at which the law takes more than
            seconds.
    """
    n = np.asarray(length, dtype=np.float64)
    if (n % size).any():
        fix = f"the exact law is of whole blocks; give a multiple of {size}, or use estimate"
        raise InputError("length", int(n[n % size > 0][0]), fix)
    spread, g = gamma * correlation_of_blocks(within, size), gamma * math.sqrt(1 - within)
    count = n / size
    # From where all of a row's Σx is below e^(−42) to where its largest x is above 42.
    high_u = spread * 11.0 + math.log(DEPTH / size)
    low_u = -DEPTH - math.log(n.max()) - spread * HIGH - g * HIGH
    per_u = ((HIGH - LOW) * max(2.0, spread) + _POINTS_OF_T) * _PANEL
    points = per_u * (high_u - low_u) / STEP_U * len(n)
    rules.refuse_slow("gamma", gamma, _POINT * points, 260 * g)  # the points of v
    v = rules.spaced(-DEPTH - g * HIGH, math.log(60 / size) + _STEP_V, _STEP_V)
    rules.refuse_slow("gamma", gamma, _POINT * points + _seconds(v, g, size))
    log_m = log_moments(v, g, size)
    tables = [_Table(v, log_m, every) for every in (1, 2)]
    u = rules.spaced(low_u, high_u, STEP_U)
    t, share = (each[:, ::LEVELS] for each in kth_scores(count, blocks))
    value, error = np.empty((2, len(n)))
    for i, (m, at, chance) in enumerate(zip(count.tolist(), t, share, strict=True)):
        blocks_of_u = np.array_split(u, math.ceil(len(u) * per_u / _HELD))
        fine, coarse = (
            np.concatenate(
                [
                    captured(_at_and_around(table, spread, part, at, points), blocks, m)
                    for part in blocks_of_u
                ]
            )
            for table, points in zip(tables, (_PANEL, _PANEL - 2), strict=True)
        )
        value[i], *others = mean_and_coarser(fine, coarse, chance)
        error[i] = rules.relative_gap(value[i], *others) + ROUNDING
    return value, error
