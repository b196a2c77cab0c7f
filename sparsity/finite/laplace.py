"""Laplace transforms of a weight's law: E[1 − e^(−x)] and E[x^k e^(−x)] of x = t|f|^c, any t > 0.

What the exact law of finite rows is made of. The inner integral over the score is done once, on
panels over which log|f| varies little, and sorted by log|f|: at each t only the band of nodes
where e^(−x) is neither its first few terms nor 0 is evaluated, the rest are running sums.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import Points
from sparsity.theory.panels import HIGH, NODES, WEIGHTS, WIDE, Axis, Known, Panels, cut
from sparsity.theory.score_laws import Gaussian, score_law
from sparsity.theory.sphere import Sphere

__all__ = ["TAIL", "VARIATION", "Laplace", "laplace"]

TAIL = 1e-15  # mass that truncation may lose
VARIATION, _TURN = 6.0, 0.6  # of 2·log|f| plus the log density, and of arg f, over a panel's box
_MOST_PANELS, _MOST_POINTS = 80_000, 1_000_000  # that one law may have: seconds of work
_TERMS, _SMALL = 4, -8.3  # of the series of e^(−x); log x below which they are all of it
_RULE = 2e-14  # relative error of the rule on such a panel
_RAREST = 1e-32  # width of a panel at a pole of f that is not resolved
_REACH = 105.0  # depth of the Gaussian density, in e-folds, at which the integral ends
_MATTERS = 75.0  # down to which it is resolved: 10¹² tokens reach to 28


def _series(terms: list[float], rise: np.ndarray) -> np.ndarray:
    """Σ terms_i (−rise)^i / i!."""
    total = np.zeros(len(rise))
    for i in range(len(terms), 0, -1):
        total = terms[i - 1] - rise / i * total
    return total


class Laplace:
    """E[1 − e^(−x)] and E[x^k e^(−x)] of x = e^(u + c·log|f|), for any u; all over e^top.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread; 0 is a fixed score.
        c: the power of |f| in x.
        k: the powers of x.
        dim: d of keys on the sphere; None for Gaussian scores.

    Raises:
        InputError: f is not a finite real number where keys fall, or varies beyond all reach.
        TooFine: f spreads over too wide a range to be summed in seconds.
    """

    def __init__(
        self,
        kernel: Kernel,
        beta: float,
        gamma: float,
        c: int,
        k: tuple[float, ...],
        dim: int | None = None,
    ):
        """Do the inner integral once: nodes sorted by log|f|, and the running sums."""
        log_f, log_w, error, density_error = _nodes(kernel, beta, gamma, dim)
        self._too_wide = _too_wide(kernel, gamma)
        if not len(log_f):
            raise InputError("weight", kernel.weight, "vanishes in float64 wherever keys fall")
        order = np.argsort(log_f, kind="stable")
        log_f, log_w = log_f[order], log_w[order]
        self.k, self.c_log_f = k, c * log_f
        self.top = float(log_w.max())
        log_w = log_w - self.top
        self.w = np.exp(log_w)
        self.p_nonzero = float(self.w.sum())  # over e^top
        share = np.cumsum(self.w) / self.p_nonzero
        # A relative error of a weight counts as far as the weight does in a typical row.
        typical = log_f[np.searchsorted(share, 0.05)]
        counts = np.exp(np.minimum(log_f - typical, 0.0)) * (self.w > 1e-30)
        self.rounding = 4 * float(np.max(counts * error[order]) + density_error)
        # A light sink, c = 1, lives on the rare rows whose other weights are lighter still.
        rare = TAIL if c == 2 else TAIL**2
        self.right = 5.0 - float(self.c_log_f[np.searchsorted(share, rare)])
        self.above = np.append(np.cumsum(self.w[::-1])[::-1], 0.0)
        self.below = {}  # running Σ w x^k, in the log domain
        with np.errstate(divide="ignore"):
            for power in {power + term for power in (1.0, *k) for term in range(_TERMS)}:
                sums = np.logaddexp.accumulate(log_w + power * self.c_log_f)
                self.below[power] = np.append(-np.inf, sums)

    def range(self, longest: float) -> tuple[float, float]:
        """The range of u beyond which rows up to that length have no integrand left."""
        top = -self.c_log_f[-1]
        u = np.arange(top + 40, top - 60 - np.log(longest), -2.0)
        cut = np.searchsorted(self.c_log_f, -u)
        psi = np.exp(np.minimum(u + self.below[1.0][cut], 700)) + self.above[cut]
        # n(1 − φ) against the chance, at most 1, that the row holds anything.
        holds = min(np.exp(min(-self.top, 700.0)), longest * self.p_nonzero)
        small = longest * psi < TAIL * holds
        return float(u[np.argmax(small)] if small.any() else u[-1]), self.right

    def __call__(self, u: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """E[1 − e^(−x)] and the E[x^k e^(−x)], each of shape [len(u)], for ascending u."""
        if len(u) > _MOST_POINTS:
            raise self._too_wide
        psi = np.empty(len(u))
        moments = [np.empty(len(u)) for _ in self.k]
        for start in range(0, len(u), 48):
            part = slice(start, start + 48)
            low, high = u[part][0], u[part][-1]
            first = int(np.searchsorted(self.c_log_f, _SMALL - high))
            last = int(np.searchsorted(self.c_log_f, 6.7 - low))  # above: e^(−x) = 0
            centre = (low + high) / 2
            rise = np.exp(u[part] - centre)
            x = np.exp(centre + self.c_log_f[first:last])
            x_at = rise[:, None] * x
            w = self.w[first:last]
            light = {k: np.exp(k * centre + sums[first]) for k, sums in self.below.items()}
            psi[part] = self.above[last] - np.expm1(-x_at) @ w
            psi[part] += rise * _series([light[1.0 + i] / (i + 1) for i in range(_TERMS)], rise)
            less = np.exp(-x_at)
            for moment, k in zip(moments, self.k, strict=True):
                moment[part] = less @ (w * x**k)
                moment[part] += _series([light[k + i] for i in range(_TERMS)], rise)
                moment[part] *= rise**k
        return psi, moments


def _fixed(kernel: Kernel, score: float) -> _Nodes:
    """The one node of a score that is not random."""
    found = definition(kernel).at(score, Points(np.zeros(1)))
    if not found.log[0] < np.inf:
        fix = f"is not a finite real number at score {score:.6g}"
        raise InputError("weight", kernel.weight, fix)
    alive = np.isfinite(found.log)
    return _Nodes(found.log[alive], np.zeros(int(alive.sum())), found.error[alive], 0.0)


class _Nodes(NamedTuple):
    """Nodes where f ≠ 0.

    Args:
        log_f: log|f|.
        log_w: log weights.
        error: of log|f|.
        density_error: relative error of the weights.
    """

    log_f: np.ndarray
    log_w: np.ndarray
    error: np.ndarray
    density_error: float


def _too_wide(kernel: Kernel, gamma: float) -> TooFine:
    fix = f"spreads over too wide a range at gamma = {gamma:g} for the exact law; lower gamma"
    return TooFine("weight", kernel.weight, fix)


class _Smooth:
    """The goal of the transforms: panels over which log|f| and the density vary little.

    On the box around a panel e^(−tf^c) is then bounded for every t > 0, whatever the power of f
    beside it, and the rule exact to about e^(VARIATION) · 10⁻¹⁶.
    """

    patience = 1

    def __init__(self, axis: Axis) -> None:
        self.axis, self.top = axis, -np.inf
        self.tilted = axis.law.tilts
        self.tilt = np.zeros(3)  # f = e^(c + bt + at²) times what the panels know of it
        if isinstance(axis.law, Gaussian):
            self.tilt += np.array(axis.law.square(axis.f.tilt)) - axis.law.square((0.0, 0.0, 0.0))
        self.kept: list[Panels] = []
        self.count = 0
        self.slivers: list[tuple[np.ndarray, np.ndarray]] = []  # most log|f| and log mass

    def _density(self, known: Known) -> tuple[np.ndarray, np.ndarray]:
        ends = known.t - known.half, known.t + known.half
        with np.errstate(all="ignore"):
            return self.axis.law.bounds(*ends, (0.0, 0.0, 0.0))

    def see(self, known: Known) -> None:
        """Where keys fall and f is not zero, the density is at least this high."""
        alive = known.f[0] > -np.inf
        least = np.max(self._density(known)[0], where=alive, initial=-np.inf)
        self.top = max(self.top, float(least))

    def drop(self, known: Known) -> np.ndarray:
        """Panels where f is zero, or keys hardly ever fall."""
        return (known.f[1] == -np.inf) | (self._density(known)[1] < self.top - _REACH)

    def _excess(self, known: Known) -> np.ndarray:
        """How far f and the density vary over a panel's box, in units of what they may."""
        box = known.t, WIDE * known.half, HIGH * known.half
        with np.errstate(all="ignore"):
            density = self.axis.law.around(*box, (0.0, 0.0, 0.0)) - self._density(known)[0]
            slope, (_, wide, high) = np.abs(self.tilt[1] + 2 * self.tilt[2] * known.t), box
            bend = abs(self.tilt[2])
            varies = 2 * slope * wide + bend * (wide**2 + high**2)
            varies = varies + known.around[1] - known.around[0]
            turns = known.around[2] + slope * high + 2 * bend * wide * high
            return np.maximum((2 * varies + density) / VARIATION, turns / _TURN)

    def accept(self, known: Known) -> np.ndarray:
        """Panels over which neither f nor the density varies much."""
        return self._excess(known) < 1

    def singular(self, known: Known) -> np.ndarray:
        """Panels on which f may vanish, or be unbounded on the box."""
        return ~np.isfinite(known.around[1]) | (known.f[0] == -np.inf)

    def parts(self, known: Known) -> np.ndarray:
        """As many as the excess asks for."""
        excess = self._excess(known)
        excess = np.where(np.isfinite(excess), excess, 2.0)
        return np.clip(np.ceil(excess), 2, 8).astype(int)

    def keep(self, known: Known) -> None:
        """Keep the panels, as long as there are not too many."""
        self.kept.append(known.panels)
        self.count += len(known.half)
        if self.count > _MOST_PANELS:
            raise _too_wide(self.axis.f.kernel, self.axis.law.gamma)

    def negligible(self, known: Known) -> np.ndarray:
        """Panels next to a zero or a pole of f, or far out, that no more is asked of."""
        most = np.where(known.f[1] == np.inf, _RAREST, TAIL / 10)
        low, high = self._density(known)
        tiny = 2 * known.half < most
        return tiny | ((high < self.top - _MATTERS) & (high - low < 4))

    def stuck(self, known: Known) -> None:
        """Take panels as they are that cannot be cut further; refuse a pole among them."""
        if (known.f[1][2 * known.half > _RAREST] == np.inf).any():
            fix = "is unbounded at a score that is known to rounding only: no law of its rows"
            raise InputError("weight", self.axis.f.kernel.weight, fix)
        self.kept.append(known.panels)
        density = self._density(known)[1]
        counts = density > self.top - _MATTERS
        mass = density + np.log(2 * known.half)
        tilt = np.polyval(self.tilt[::-1], known.t)  # a sliver is too narrow for it to vary
        self.slivers.append(((known.f[1] + tilt)[counts], mass[counts]))

    def _blur(self, nodes: _Nodes) -> float:
        """What slivers add to the error: their mass beside that of all weights as large."""
        order = np.argsort(nodes.log_f)
        above = np.logaddexp.accumulate(nodes.log_w[order][::-1])[::-1]
        total = 0.0
        for most, mass in self.slivers:
            at = np.searchsorted(nodes.log_f[order], most - 1.0)
            known = at < len(above)
            mass = mass[known] + self.axis.law.log_norm - above[at[known]]
            total += float(np.exp(np.minimum(mass, 0.0)).sum())
        return total

    def nodes(self) -> _Nodes:
        """The nodes of all panels."""
        panels = Panels.joined(self.kept) if self.kept else Panels(*np.empty((3, 0)))
        axis = self.axis
        half = ((panels.high - panels.low) / 2)[:, None]
        x = (panels.high + panels.low)[:, None] / 2 + half * NODES
        a = np.broadcast_to(panels.a[:, None], x.shape).astype(int)
        t = axis.t[a] + x
        density = axis.law.log_density(t)
        if not len(density):
            nothing = np.empty(0)
            return _Nodes(nothing, nothing, nothing, 0.0)
        found = axis.refined(a, x, axis.at(a, x), density > self.top - _MATTERS)
        keep = np.isfinite(found.log)
        own = axis.law.rounding(t) + np.abs(t) * axis.shift[a]
        log_w = density + axis.law.log_norm + np.log(half) + np.log(WEIGHTS)
        error = float(np.max(own, where=keep, initial=0.0)) + _RULE
        nodes = _Nodes(found.log[keep], log_w[keep], found.error[keep], error)
        return nodes._replace(density_error=error + self._blur(nodes))


def _nodes(kernel: Kernel, beta: float, gamma: float, dim: int | None) -> _Nodes:
    if gamma == 0:
        return _fixed(kernel, beta)
    law = Sphere(beta, gamma, dim) if dim else score_law(kernel, beta, gamma)
    axis = Axis(definition(kernel), law)
    goal = _Smooth(axis)
    cut(axis, goal)
    return goal.nodes()


@functools.lru_cache(maxsize=256)
def laplace(
    kernel: Kernel,
    beta: float,
    gamma: float,
    c: int,
    k: tuple[float, ...],
    dim: int | None = None,
) -> Laplace:
    """The (cached) transforms."""
    return Laplace(kernel, beta, gamma, c, k, dim)
