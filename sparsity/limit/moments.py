"""Moments E|f|^p of a kernel under any law of its score, each with an error bound.

The mass of every panel is a Gauss rule whose error is proven (`panels`). The bound adds the
rounding of each node, which the definition carries along, and the mass of what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.limit.axis import HIGH, LOG_RULE, NODES, WEIGHTS, WIDE, Axis, PanelBounds, Panels
from sparsity.limit.masses import Nodes, weighed
from sparsity.limit.panels import cut
from sparsity.limit.score_laws import FAR, Gaussian, ScoreLaw, Squares, Tilt

_SIZES = np.array([1e3, 1e4, 1e8, 1e15, FAR])  # of t, at which growth is looked at
_DIVERGED = 1e-3  # share of a moment that may be left out
_BLURRED = 0.5  # relative rounding error that a moment may have
_OWN, _WHOLE = math.log(1e-15), math.log(1e-17)  # error of a panel: of its own and of all mass
_NOTHING = math.log(1e-19)  # of all mass: what need not be looked at
_TAME = 0.97  # ratio of successive halves of a singular panel beyond which it does not converge
_BLUR = math.log(1e-14)  # of all mass: error of a point beyond which it is worth high precision
_AT_ONCE = 1024  # panels whose points are evaluated together


def _log_sum(x: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(x, axis=1, initial=-np.inf)


class _Sum(NamedTuple):
    """Σ of the rule over some panels and its rounding error, both over e^top, [powers]."""

    top: np.ndarray
    sum: np.ndarray
    noise: np.ndarray


class Moments:
    """The goal of E|f|^p for some p: each panel's rule exact to rounding, or its mass nothing.

    Args:
        axis: the definition and the law in whose coordinate the panels lie.
        powers: p > 0, one for each moment.
        laws: the law of each moment; None takes that of the axis for all.
    """

    patience = 5

    def __init__(
        self, axis: Axis, powers: Sequence[float], laws: Sequence[ScoreLaw] | None = None
    ) -> None:
        """Nothing is known yet."""
        self.axis, self.p = axis, np.array(powers, dtype=np.float64)[:, None]
        self.laws = [axis.law] * len(powers) if laws is None else laws
        self.tilted = axis.law.tilts
        tilt = axis.f.tilt if self.tilted else (0.0, 0.0, 0.0)
        self.tilts: list[Tilt] = [(p * tilt[0], p * tilt[1], p * tilt[2]) for p in powers]
        self.squares = None  # of laws that can be bounded together
        gaussians = [law for law in self.laws if isinstance(law, Gaussian)]
        if len(gaussians) == len(self.laws):
            each = [law.square(tilt) for law, tilt in zip(gaussians, self.tilts, strict=True)]
            self.squares = Squares(*np.array(each).T[..., None])
        self.whole = all(float(p).is_integer() for p in powers)
        self.least = np.full(len(powers), -np.inf)  # log of the mass that kept panels have for sure
        self.certain = self.least  # … and pending ones besides
        self.lost: list[np.ndarray] = []  # log of proven errors and of mass left out
        self.kept: list[Panels] = []
        self.sure: list[np.ndarray] = []  # log of the least mass of the kept panels

    def _range(self, known: PanelBounds) -> tuple[np.ndarray, np.ndarray]:
        """Log of the least and the most mass of each panel, [powers, panels]."""
        size, ends = np.log(2 * known.half), (known.t - known.half, known.t + known.half)
        with np.errstate(all="ignore"):
            least, most = self._each("bounds", *ends)
            low = self.p * known.f[0] + least + size
            high = self.p * known.f[1] + most + size
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def _each(self, name: str, *where: np.ndarray) -> Any:
        """`bounds` or `around` of each law with its tilt, [moments, panels]."""
        if self.squares is not None:
            return getattr(self.squares, name)(*where)
        moments = zip(self.laws, self.tilts, strict=True)
        found = np.array([getattr(law, name)(*where, tilt) for law, tilt in moments])
        return np.moveaxis(found, 0, -2)

    def _refuse(self, fix: str) -> None:
        raise InputError("weight", self.axis.f.kernel.weight, fix)

    def see(self, known: PanelBounds) -> None:
        """Add up what mass is certain; refuse a moment that grows without end."""
        low, _ = self._range(known)
        self.certain = np.logaddexp(self.least, _log_sum(low))
        t = self.axis.t[known.panels.a]
        far = np.maximum(np.abs(t + known.panels.low), np.abs(t + known.panels.high)) > FAR
        growing = (_log_sum(low[:, far]) >= self.certain - 1) & (self.certain > -np.inf)
        if growing.any():
            power = self.p[growing][0, 0]
            slower = f"it must grow slower than {self.axis.law.growth}"
            self._refuse(f"E|a|^{power:g} is infinite: {slower}")

    def drop(self, known: PanelBounds) -> np.ndarray:
        """Panels with next to no mass."""
        _, high = self._range(known)
        gone = ((high <= self.certain[:, None] + _NOTHING) | (high == -np.inf)).all(axis=0)
        self.lost.append(high[:, gone])
        return np.asarray(gone)

    def _rule(self, known: PanelBounds) -> np.ndarray:
        """Log of the proven error of the rule, [powers, panels]."""
        with np.errstate(all="ignore"):
            box = known.t, WIDE * known.half, HIGH * known.half
            sup = self._each("around", *box)
            error = self.p * known.around[1] + sup + np.log(known.half) + LOG_RULE
        error = np.where(np.isnan(error), np.inf, error)
        branch = (not self.whole) & ~np.isfinite(known.around[0])  # |f|^p is not analytic there
        return np.where(branch, np.inf, error)

    def accept(self, known: PanelBounds) -> np.ndarray:
        """Panels whose rule is exact to rounding."""
        low, _ = self._range(known)
        error = self._rule(known)
        good = (error <= low + _OWN) | (error <= self.certain[:, None] + _WHOLE)
        return np.asarray(good.all(axis=0))

    def keep(self, known: PanelBounds) -> None:
        """Keep the panels and the errors of their rules."""
        low, _ = self._range(known)
        self.least = np.logaddexp(self.least, _log_sum(low))
        self.sure.append(low)
        self.lost.append(self._rule(known))
        self.kept.append(known.panels)

    def negligible(self, known: PanelBounds) -> np.ndarray:
        """Singular panels at an anchor whose mass, by its trend, is nothing."""
        p = known.panels
        at = ((p.low == 0) | (p.high == 0)) & (known.f[1] == np.inf) & (known.half < 1e-20)
        index = np.flatnonzero(at)
        if len(index):
            left, ratio = self._trend(p[index])
            small = (left <= self.certain[:, None] + _NOTHING) & (ratio < _TAME)
            at[index] = small.all(axis=0)
        return at

    def singular(self, known: PanelBounds) -> np.ndarray:
        """Panels on whose boxes f is not bounded."""
        return ~np.isfinite(known.around[1])

    def parts(self, known: PanelBounds) -> np.ndarray:
        return np.full(len(known.half), 2)

    def _trend(self, p: Panels) -> tuple[np.ndarray, np.ndarray]:
        """Log mass next to a singular point as its halves suggest, and the ratio of those."""
        left_end = np.abs(p.low) < np.abs(p.high)
        inner = np.where(left_end, p.low, p.high)
        width = np.where(left_end, 1.0, -1.0) * (p.high - p.low) * np.where(inner == 0, 1, 8)
        masses = []
        for step in (1.0, 0.5):
            found = self.axis.at(p.a, inner + step * width)
            masses.append(self.p * found.log + np.log(np.abs(step * width)))
        density = np.array([law.log_density(self.axis.t[p.a] + inner) for law in self.laws])
        with np.errstate(over="ignore", invalid="ignore"):
            nothing = np.isneginf(masses[0]) & np.isneginf(masses[1])
            ratio = np.where(nothing, 0.0, np.exp(masses[1] - masses[0]))
            left = masses[0] + density + np.log(2 / np.maximum(1 - ratio, 1e-3))
        return np.where(np.isnan(left), np.inf, left), np.where(np.isnan(ratio), np.inf, ratio)

    def stuck(self, known: PanelBounds) -> None:
        """Leave panels out that cannot be cut further, with what mass they may have."""
        _, high = self._range(known)
        endless = (high == np.inf).any(axis=0)
        self.lost.append(high[:, ~endless])
        if not endless.any():
            return
        p = known.panels[endless]
        left, ratio = self._trend(p)
        counts = (p.low == 0) | (p.high == 0) | (left > self.certain[:, None] + _NOTHING)
        wild = ((ratio > _TAME) & counts).any(axis=1)
        if wild.any():
            self._diverges(self.p[wild][0, 0])
        self.lost.append(left)

    def _diverges(self, power: float) -> None:
        self._refuse(f"the integral of |a|^{power:g} does not converge: is the moment infinite?")

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Log of the integrals and bounds on their errors, [powers]."""
        panels = Panels.joined(self.kept) if self.kept else Panels(*np.empty((3, 0)))
        starts = range(0, len(panels.a), _AT_ONCE)
        sums = [self._summed(panels[slice(start, start + _AT_ONCE)]) for start in starts]
        top = np.max([part.top for part in sums], axis=0) if sums else np.array([-np.inf])
        if not np.all(np.isfinite(top)):
            self._refuse("vanishes in float64 wherever keys fall")
        scales = [np.exp(part.top - top) for part in sums]
        shares = np.transpose([part.sum * scale for part, scale in zip(sums, scales, strict=True)])
        total = np.array([math.fsum(share) for share in shares])
        noise = np.sum(
            [part.noise * scale for part, scale in zip(sums, scales, strict=True)], axis=0
        )
        with np.errstate(over="ignore"):
            lost = np.exp(np.minimum(_log_sum(np.concatenate(self.lost, axis=1)) - top, 700.0))
        for power, out, blur in zip(self.p[:, 0], lost / total, noise / total, strict=True):
            if not out < _DIVERGED:
                self._diverges(power)
            if not blur < _BLURRED:
                self._refuse("loses all its digits where keys fall; write it without cancellation")
        relative = (noise + lost) / total
        return top + np.log(total), -np.log1p(-relative) + EPS * np.abs(top) + 4 * EPS

    def nodes(self, panels: Panels) -> Nodes:
        """The nodes of the rule on some panels, in high precision where that is worth it."""
        half = ((panels.high - panels.low) / 2)[:, None]
        x = (panels.high + panels.low)[:, None] / 2 + half * NODES
        a = np.broadcast_to(panels.a[:, None], x.shape)
        t = self.axis.t[a] + x
        found, p = self.axis.at(a, x), self.p[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            blur = p * found.most + np.log(half * WEIGHTS * np.minimum(found.error, 1.0))
            blur += np.array([law.log_density(t) for law in self.laws])
            worth = np.asarray((blur > self.certain[:, None, None] + _BLUR).any(axis=0))
        found = self.axis.refined(a, x, found, worth)
        columns = self.axis.t[panels.a][:, None], self.axis.shift[panels.a][:, None]
        return Nodes(columns[0], x, half * WEIGHTS, found, columns[1])

    def _summed(self, panels: Panels) -> _Sum:
        """The rule on some panels."""
        nodes = self.nodes(panels)
        t, law, p = nodes.t, self.axis.law, self.p[:, :, None]
        own = law.rounding(t) + law.steep(t) * nodes.shift + 6 * EPS
        top, mass, noise = weighed(nodes, p, law.log_density(t), own)
        return _Sum(top, mass.sum(axis=(1, 2)), noise.sum(axis=(1, 2)))


def _refuse_growing(goal: Moments) -> None:
    """Refuse a weight that outgrows Gaussian scores at every size, as exp(s³): cutting takes long.

    Raises:
        InputError: E|f|^p is infinite.
    """
    law, f = goal.axis.law, goal.axis.f
    if not isinstance(law, Gaussian):
        return
    for side in (-1.0, 1.0):
        t = side * _SIZES
        found = f.at(0.0, Approx(law.beta + law.gamma * t))
        known = found.error[:2] < 1  # farther out, no digit need be
        log = np.append(found.log[:2], found.most[2:])
        over = goal.p * log + law.log_density(t) > 0  # false of NaN
        for p in goal.p[over.all(axis=-1) & known.all(), 0]:
            slower = f"it must grow slower than {law.growth}"
            goal._refuse(f"E|a|^{p:g} is infinite: {slower}")


@np.errstate(all="ignore")  # overflow shows as a bound of infinity, and is refused
def panels(axis: Axis, powers: tuple[float, ...]) -> Panels:
    """The panels that carry the mass of ∫|f|^p over an axis, each of them smooth.

    Raises:
        InputError: as in `log_moments`.
    """
    goal = Moments(axis, powers)
    _refuse_growing(goal)
    cut(axis, goal)
    return Panels.joined(goal.kept) if goal.kept else Panels(*np.empty((3, 0)))


@np.errstate(all="ignore")
def log_moments(axis: Axis, powers: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Log of ∫|f|^p over an axis, density relative to its peak, and bounds on its error.

    Args:
        axis: the definition and the law of the score.
        powers: p > 0.

    Returns:
        Two arrays, [powers].

    Raises:
        InputError: a moment that is infinite, an f that is not a finite real number where keys
            fall, or one that needs more pieces than there is room for.
    """
    goal = Moments(axis, powers)
    _refuse_growing(goal)
    cut(axis, goal)
    return goal.totals()
