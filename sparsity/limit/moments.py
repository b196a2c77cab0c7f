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
from sparsity.kernels.numeric.definition import Values
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.limit.densities import FAR, Gaussian, ScoreLaw, Squares, Tilt
from sparsity.limit.panels import (
    HIGH,
    LOG_RULE,
    NODES,
    WEIGHTS,
    WIDE,
    Axis,
    PanelBounds,
    Panels,
    cut,
)

_GROWTH_PLACES = np.array([1e3, 1e4, 1e8, 1e15, FAR])  # of t, at which growth is looked at
_HUGE = 1e6  # spread; e^s, of exponents of γ², has 1 % of its S left there, and soon nothing
_MOST_LOST = 1e-3  # share of a moment that may be left out
_MOST_BLUR = 0.5  # relative rounding error that a moment may have: log of it is then known to ln 2
# Logs of the error that a panel's rule may have: beside its own mass, or beside all mass. Both are
# about or below float64's rounding, so that cutting on would gain nothing. The rule's constant,
# e^LOG_RULE = 7e−17 of the largest |f| on the box, leaves the first a factor of 15 for how much
# larger than its mean on the panel that may be.
_OF_ITSELF, _OF_THE_WHOLE = math.log(1e-15), math.log(1e-17)
_NOTHING = math.log(1e-19)  # log of the share of all mass that need not be looked at
_BLUR = math.log(1e-14)  # likewise: error of a point beyond which it is worth high precision
# Of a panel at an anchor, below which its trend is trusted: so close to the singular point its
# leading power outweighs all else that f has there by many digits.
_SINGULAR_WIDTH = 1e-20
# Ratio of successive halves of a singular panel beyond which it does not converge. A power s^(−q)
# has the ratio 2^(q−1), so that q > 0.956 is refused. Of the ratio 0.97 what lies below 2^−1000,
# and so beyond float64, is 0.97^1000 = 6e−14 of the sum; of 0.99 it would be 4e−5.
_CONVERGES = 0.97
_CHUNK = 1024  # panels whose points are evaluated together: 25,000 points stay in a cache


def _log_sum(x: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(x, axis=1, initial=-np.inf)


class Nodes(NamedTuple):
    """Nodes of the rule on panels, at places anchor + offset, [panels, nodes].

    Args:
        anchor: places of the anchors, [panels, 1].
        offset: from there.
        weight: of the rule.
        values: |f| there.
        shift: errors of the anchors, [panels, 1].
    """

    anchor: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    values: Values
    shift: np.ndarray

    @property
    def t(self) -> np.ndarray:
        """The places."""
        return self.anchor + self.offset

    def masses(
        self, p: np.ndarray, log_density: np.ndarray, relative_error: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the masses |f|^p·e^(log density)·weight.

        Args:
            p: powers, [powers, 1, 1].
            log_density: at the nodes.
            relative_error: relative error of e^(log density)·weight.

        Returns:
            A scale top, [powers]; the masses and bounds on their errors over e^top, [powers, …].
        """
        values = self.values
        with np.errstate(invalid="ignore"):
            top = (p * values.log + log_density).max(axis=(1, 2))
            base = log_density - np.where(np.isfinite(top), top, 0.0)[:, None, None]
            mass = self.weight * np.exp(p * values.log + base)
            wrong = np.expm1(np.minimum(p * values.error, 700.0)) + relative_error
            most = self.weight * np.exp(np.minimum(p * values.most + base, 700.0))
            # Where f has no digit, the mass may be anything up to the most that it can be.
            noise = np.where(values.error > 0.5, most + mass, mass * wrong)
        return top, mass, np.where(np.isnan(noise), np.inf, noise)


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
        """Start with nothing known."""
        self.axis, self.p = axis, np.array(powers, dtype=np.float64)[:, None]
        self.laws = [axis.law] * len(powers) if laws is None else laws
        self.tilted = axis.law.tilts
        tilt = axis.f.tilt if self.tilted else (0.0, 0.0, 0.0)
        self.tilts: list[Tilt] = [(p * tilt[0], p * tilt[1], p * tilt[2]) for p in powers]
        self.squares = None  # of laws that can be bounded together
        gaussians = [law for law in self.laws if isinstance(law, Gaussian)]
        if len(gaussians) == len(self.laws):
            tilted = [law.exponent(tilt) for law, tilt in zip(gaussians, self.tilts, strict=True)]
            self.squares = Squares(*np.array(tilted).T[..., None])
        self.whole = all(float(p).is_integer() for p in powers)
        self.least = np.full(len(powers), -np.inf)  # log of the mass that kept panels have for sure
        self.certain = self.least  # … and pending ones besides
        self.lost: list[np.ndarray] = []  # log of proven errors and of mass left out
        self.kept: list[Panels] = []
        self.sure: list[np.ndarray] = []  # log of the least mass of the kept panels

    def _of_laws(self, name: str, *where: np.ndarray) -> Any:
        """Return the bound that a method of each law gives with its tilt, [moments, panels]."""
        if self.squares is not None:
            return getattr(self.squares, name)(*where)
        moments = zip(self.laws, self.tilts, strict=True)
        bounds = np.array([getattr(law, name)(*where, tilt) for law, tilt in moments])
        return np.moveaxis(bounds, 0, -2)

    def _mass_range(self, known: PanelBounds) -> tuple[np.ndarray, np.ndarray]:
        """Return the log of the least and the most mass of each panel, [powers, panels]."""
        size, ends = np.log(2 * known.half), (known.t - known.half, known.t + known.half)
        with np.errstate(all="ignore"):
            least, most = self._of_laws("bounds_on_segments", *ends)
            low = self.p * known.on_segment[0] + least + size
            high = self.p * known.on_segment[1] + most + size
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def _rule_error(self, known: PanelBounds) -> np.ndarray:
        """Return the log of the proven error of the rule, [powers, panels]."""
        with np.errstate(all="ignore"):
            box = known.t, WIDE * known.half, HIGH * known.half
            sup = self._of_laws("bound_on_boxes", *box)
            error = self.p * known.on_box[1] + sup + np.log(known.half) + LOG_RULE
        error = np.where(np.isnan(error), np.inf, error)
        # A power that is not whole has a branch point wherever f may vanish.
        branch = (not self.whole) & ~np.isfinite(known.on_box[0])
        return np.where(branch, np.inf, error)

    def _refuse(self, fix: str) -> None:
        if self.axis.law.gamma > _HUGE:  # what a moment looks like there says little of f
            fix = f"no digit is left in float64 at the spread {self.axis.law.gamma:g}; lower it"
        raise InputError("weight", self.axis.f.kernel.weight, fix)

    def _refuse_endless(self, power: float) -> None:
        slower = f"it must grow slower than {self.axis.law.growth}"
        self._refuse(f"E|a|^{power:g} is infinite: {slower}")

    def _refuse_divergent(self, power: float) -> None:
        self._refuse(f"the integral of |a|^{power:g} does not converge: is the moment infinite?")

    def observe(self, known: PanelBounds) -> None:
        """Add up what mass is certain; refuse a moment that grows without end."""
        low, _ = self._mass_range(known)
        self.certain = np.logaddexp(self.least, _log_sum(low))
        t = self.axis.t[known.panels.a]
        far = np.maximum(np.abs(t + known.panels.low), np.abs(t + known.panels.high)) > FAR
        growing = (_log_sum(low[:, far]) >= self.certain - 1) & (self.certain > -np.inf)
        if growing.any():
            self._refuse_endless(self.p[growing][0, 0])

    def negligible(self, known: PanelBounds) -> np.ndarray:
        """Say which panels have next to no mass."""
        _, high = self._mass_range(known)
        gone = ((high <= self.certain[:, None] + _NOTHING) | (high == -np.inf)).all(axis=0)
        self.lost.append(high[:, gone])
        return np.asarray(gone)

    def resolved(self, known: PanelBounds) -> np.ndarray:
        """Say on which panels the rule is exact to rounding."""
        low, _ = self._mass_range(known)
        error = self._rule_error(known)
        good = (error <= low + _OF_ITSELF) | (error <= self.certain[:, None] + _OF_THE_WHOLE)
        return np.asarray(good.all(axis=0))

    def collect(self, known: PanelBounds) -> None:
        """Keep the panels and the errors of their rules."""
        low, _ = self._mass_range(known)
        self.least = np.logaddexp(self.least, _log_sum(low))
        self.sure.append(low)
        self.lost.append(self._rule_error(known))
        self.kept.append(known.panels)

    def not_worth_cutting(self, known: PanelBounds) -> np.ndarray:
        """Say which singular panels at an anchor have, by their trend, no mass."""
        p = known.panels
        endless = known.on_segment[1] == np.inf
        at = p.at_anchor & endless & (known.half < _SINGULAR_WIDTH)
        index = np.flatnonzero(at)
        if len(index):
            left, ratio = self._mass_by_trend(p[index])
            small = (left <= self.certain[:, None] + _NOTHING) & (ratio < _CONVERGES)
            at[index] = small.all(axis=0)
        return at

    def singular(self, known: PanelBounds) -> np.ndarray:
        """Say on which panels' boxes f is not bounded."""
        return ~np.isfinite(known.on_box[1])

    def parts(self, known: PanelBounds) -> np.ndarray:
        return np.full(len(known.half), 2)

    def _mass_by_trend(self, p: Panels) -> tuple[np.ndarray, np.ndarray]:
        """Estimate the log mass of panels next to a singular point, and how their halves converge.

        Near s₀ let |f|^p be about |s − s₀|^(−q): the parts (h/2, h], (h/4, h/2], … then hold masses
        in a constant ratio r = 2^(q−1), seen in |f|^p·width at h and h/2, and all of them together
        hold the first over 1 − r. With r ≥ 1 the integral diverges. No bound proves this: it is
        used only for panels that are too narrow to be cut, and refuses rather than guesses where r
        is close to 1. A panel that does not touch its anchor is followed to 8 times its width, for
        that is where f has digits. The first part of a power with 0 ≤ q < 1 holds ½ to ln 2 of
        |f|^p·width at h; a factor of 2 instead leaves room for what is not quite a power.
        """
        left_end = np.abs(p.low) < np.abs(p.high)
        inner = np.where(left_end, p.low, p.high)
        width = np.where(left_end, 1.0, -1.0) * (p.high - p.low) * np.where(inner == 0, 1, 8)
        whole, half = (
            self.p * self.axis.values_at(p.a, inner + step * width).log
            + np.log(np.abs(step * width))
            for step in (1.0, 0.5)
        )
        density = np.array([law.log_density(self.axis.t[p.a] + inner) for law in self.laws])
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.where(np.isneginf(whole) & np.isneginf(half), 0.0, np.exp(half - whole))
            left = whole + density + np.log(2 / np.maximum(1 - ratio, 1e-3))
        return np.where(np.isnan(left), np.inf, left), np.where(np.isnan(ratio), np.inf, ratio)

    def give_up(self, known: PanelBounds) -> None:
        """Leave panels out that cannot be cut further, with what mass they may have.

        Where f is bounded that is proven; at a singular point it is what the trend suggests.
        """
        _, high = self._mass_range(known)
        endless = (high == np.inf).any(axis=0)
        self.lost.append(high[:, ~endless])
        if not endless.any():
            return
        p = known.panels[endless]
        left, ratio = self._mass_by_trend(p)
        counts = p.at_anchor | (left > self.certain[:, None] + _NOTHING)
        wild = ((ratio > _CONVERGES) & counts).any(axis=1)
        if wild.any():
            self._refuse_divergent(self.p[wild][0, 0])
        self.lost.append(left)

    def nodes(self, panels: Panels) -> Nodes:
        """Return the nodes of the rule on panels, in high precision where that is worth it."""
        half = ((panels.high - panels.low) / 2)[:, None]
        x = (panels.high + panels.low)[:, None] / 2 + half * NODES
        a = np.broadcast_to(panels.a[:, None], x.shape)
        t = self.axis.t[a] + x
        values, p = self.axis.values_at(a, x), self.p[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            blur = p * values.most + np.log(half * WEIGHTS * np.minimum(values.error, 1.0))
            blur += np.array([law.log_density(t) for law in self.laws])
            worth = np.asarray((blur > self.certain[:, None, None] + _BLUR).any(axis=0))
        values = self.axis.refined(a, x, values, worth)
        columns = self.axis.t[panels.a][:, None], self.axis.shift[panels.a][:, None]
        return Nodes(columns[0], x, half * WEIGHTS, values, columns[1])

    def _chunk_totals(self, panels: Panels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sum of the rule on some panels and its rounding error, both over e^top."""
        nodes = self.nodes(panels)
        t, law = nodes.t, self.axis.law
        rounding = law.rounding(t) + law.steep(t) * nodes.shift + 6 * EPS
        top, mass, noise = nodes.masses(self.p[:, :, None], law.log_density(t), rounding)
        return top, mass.sum(axis=(1, 2)), noise.sum(axis=(1, 2))

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the log of the integrals and bounds on their errors, [powers].

        Three errors meet in the bound: the rounding of the nodes, the proven error of the rules,
        and the mass that was left out. A total T with an error ≤ ηT has |Δ log T| ≤ −log(1 − η).

        All are carried over e^top, about the largest |f|^p·density at a node, and top is added to
        the log at the end: a moment such as e^(2γ²) overflows beyond γ = 18, its log does not. The
        last terms of the error are the rounding of that sum.
        """
        panels = Panels.joined(self.kept)
        chunks = [
            self._chunk_totals(panels[start : start + _CHUNK])
            for start in range(0, len(panels.a), _CHUNK)
        ]
        tops, sums, noises = np.array(chunks).reshape(-1, 3, len(self.p)).swapaxes(0, 1)
        top = tops.max(axis=0, initial=-np.inf)
        if not np.all(np.isfinite(top)):
            self._refuse("vanishes in float64 wherever keys fall")
        # fsum: the sum does not depend on how the panels were chunked, beyond their own rounding.
        scales = np.exp(tops - top)
        total = np.array([math.fsum(share) for share in (sums * scales).T])
        noise = (noises * scales).sum(axis=0)
        with np.errstate(over="ignore"):
            lost = np.exp(np.minimum(_log_sum(np.concatenate(self.lost, axis=1)) - top, 700.0))
        for power, out, blur in zip(self.p[:, 0], lost / total, noise / total, strict=True):
            if not out < _MOST_LOST:
                self._refuse_divergent(power)
            if not blur < _MOST_BLUR:
                self._refuse("loses all its digits where keys fall; write it without cancellation")
        relative = (noise + lost) / total
        return top + np.log(total), -np.log1p(-relative) + EPS * np.abs(top) + 4 * EPS


def _refuse_growing(goal: Moments) -> None:
    """Refuse a weight that outgrows Gaussian scores at every size, as exp(s³): cutting takes long.

    The cut would find it too, but only after panels out to |t| = 10²⁵ are bounded. Here it is
    enough that |f|^p·density exceeds the peak of the density at five places, ever farther out. At
    the nearest two f must have digits; of the others, where it may overflow, its upper bound is
    taken.

    Raises:
        InputError: E|f|^p is infinite.
    """
    law, f = goal.axis.law, goal.axis.f
    if not isinstance(law, Gaussian):
        return
    for side in (-1.0, 1.0):
        t = side * _GROWTH_PLACES
        values = f.values_at(0.0, Approx(law.beta + law.gamma * t))
        known = values.error[:2] < 1  # farther out, no digit need be
        log = np.append(values.log[:2], values.most[2:])
        over = goal.p * log + law.log_density(t) > 0  # false of NaN
        for p in goal.p[over.all(axis=-1) & known.all(), 0]:
            goal._refuse_endless(p)


def _cut(axis: Axis, powers: tuple[float, ...]) -> Moments:
    """Return the goal of some moments, reached."""
    goal = Moments(axis, powers)
    _refuse_growing(goal)
    cut(axis, goal)
    return goal


@np.errstate(all="ignore")  # overflow shows as a bound of infinity, and is refused
def panels_with_mass(axis: Axis, powers: tuple[float, ...]) -> Panels:
    """Return the panels that carry the mass of ∫|f|^p over an axis, each of them smooth.

    Raises:
        InputError: as in `log_moments`.
    """
    return Panels.joined(_cut(axis, powers).kept)


@np.errstate(all="ignore")
def log_moments(axis: Axis, powers: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the log of ∫|f|^p over an axis, density relative to its peak, and its error bounds.

    Args:
        axis: the definition and the law of the score.
        powers: p > 0.

    Returns:
        Two arrays, [powers].

    Raises:
        InputError: a moment that is infinite, an f that is not a finite real number where keys
            fall, or one that needs more pieces than there is room for.
    """
    return _cut(axis, powers).totals()
