"""Nodes and weights of the integral over the score that Laplace transforms are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels.base import Kernel
from sparsity.limit.panels import HIGH, NODES, WEIGHTS, WIDE, Axis, PanelBounds, Panels, cut
from sparsity.limit.score_laws import Gaussian

TAIL = 1e-15  # mass that truncation may lose
VARIATION, _TURN = 6.0, 0.6  # of 2·log|f| plus the log density, and of arg f, over a panel's box
_MOST_PANELS = 80_000  # that one law may have: seconds of work
_LOOSE = 20  # times as far as log|f| varies it may seem to, by its bounds over wide panels
_RULE = 5e-14  # relative error of the rule on such a panel, also for a law that is near
_WORK = 8_000_000  # segments, boxes and points evaluated, times the parts of f: seconds
_RAREST = 1e-32  # width of a panel at a pole of f that is not resolved
_REACH = 105.0  # depth of the Gaussian density, in e-folds, at which the integral ends
_MATTERS = 75.0  # down to which it is resolved: 10¹² tokens reach to 28


def _square(by: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The polynomials a + bt + ct²."""
    a, b, c = np.moveaxis(by[..., None], -2, 0)
    return a + t * (b + t * c)


class Nodes(NamedTuple):
    """Nodes where f ≠ 0, in the order of log|f|.

    Args:
        t: the coordinate.
        log_f: log|f|.
        log_w: log weights.
        error: of log|f|.
        density_error: relative error of the weights, slivers left out.
        slivers: t, most log|f| and log mass of each panel too narrow for nodes, [3, slivers].
        p_zero: P(f = 0), to all digits.
        zeros: ends in t of the intervals that it is the mass of, [2, intervals].
    """

    t: np.ndarray
    log_f: np.ndarray
    log_w: np.ndarray
    error: np.ndarray
    density_error: float
    slivers: np.ndarray
    p_zero: float
    zeros: np.ndarray

    def tilted(self, by: np.ndarray) -> np.ndarray:
        """Log weights of laws of densities e^(a + bt + ct²) over this one's, [..., nodes].

        Args:
            by: a, b and c, [..., 3].
        """
        return self.log_w + _square(by, self.t)

    def blur(self, by: np.ndarray) -> float:
        """What slivers add to the error: their mass beside that of all weights as large."""
        t, most, mass = self.slivers
        above = np.logaddexp.accumulate(self.tilted(by)[::-1])[::-1]
        at = np.searchsorted(self.log_f, most - 1.0)
        known = at < len(above)
        mass = (mass + _square(by, t))[known] - above[at[known]]
        return float(np.exp(np.minimum(mass, 0.0)).sum())


def too_wide(kernel: Kernel, gamma: float) -> TooFine:
    """The refusal of a weight that varies over too many orders of magnitude."""
    fix = f"spreads over too wide a range at gamma = {gamma:g} for the exact law; lower gamma"
    return TooFine("weight", kernel.weight, f"{fix} or use estimate")


class _Smooth:
    """The goal of the transforms: panels over which log|f| and the density vary little.

    On the box around a panel e^(−tf^c) is then bounded for every t > 0, whatever the power of f
    beside it, and the rule exact to about e^(VARIATION) · 10⁻¹⁶.
    """

    patience = 1

    def __init__(self, axis: Axis, powers: tuple[float, ...]) -> None:
        self.axis, self.powers = axis, [p for p in powers if self._decays(axis, p)]
        self.tops = [-np.inf] * len(self.powers)
        self.tilted = axis.law.tilts
        self.tilt = np.zeros(3)  # f = e^(c + bt + at²) times what the panels know of it
        if isinstance(axis.law, Gaussian):
            self.tilt += np.subtract(
                axis.law.exponent(axis.f.tilt), axis.law.exponent((0.0, 0.0, 0.0))
            )
        self.kept: list[Panels] = []
        self.count = 0
        self.slivers: list[np.ndarray] = [np.empty((3, 0))]
        self.zeros: list[np.ndarray] = []

    @staticmethod
    def _decays(axis: Axis, p: float) -> bool:
        law = axis.law
        return not isinstance(law, Gaussian) or law.exponent(_times(p, axis.f.tilt)).c < 0

    def _density(self, known: PanelBounds, p: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest log of |f|^p times the density; of |f|^−1 the tilt alone."""
        ends = known.t - known.half, known.t + known.half
        with np.errstate(all="ignore"):
            low, high = self.axis.law.bounds_on_segments(*ends, _times(p, self.axis.f.tilt))
            if p > 0:
                low = low + p * known.on_segment[0]
                high = high + p * np.where(
                    np.isfinite(known.on_segment[1]), known.on_segment[1], 0.0
                )
        return low, high

    def _depth(self, known: PanelBounds) -> np.ndarray:
        """Log of the largest share that a panel has in a moment, about."""
        highs = [self._density(known, p)[1] for p in self.powers]
        return np.max([high - top for high, top in zip(highs, self.tops, strict=True)], axis=0)

    def observe(self, known: PanelBounds) -> None:
        """Where keys fall and f is not zero, the density is at least this high."""
        alive = known.on_segment[0] > -np.inf
        for i, p in enumerate(self.powers):
            least = np.max(self._density(known, p)[0], where=alive, initial=-np.inf)
            self.tops[i] = max(self.tops[i], float(least))

    def negligible(self, known: PanelBounds) -> np.ndarray:
        """Panels where f is zero, or that no moment is made of."""
        zero = known.on_segment[1] == -np.inf
        self.zeros.append(np.stack([known.t - known.half, known.t + known.half])[:, zero])
        return zero | (self._depth(known) < -_REACH)

    def _excess(self, known: PanelBounds) -> np.ndarray:
        """How far f and the density vary over a panel's box, in units of what they may."""
        box = known.t, WIDE * known.half, HIGH * known.half
        with np.errstate(all="ignore"):
            density = self.axis.law.bound_on_boxes(*box, (0.0, 0.0, 0.0)) - self._density(known)[0]
            slope, (_, wide, high) = np.abs(self.tilt[1] + 2 * self.tilt[2] * known.t), box
            bend = abs(self.tilt[2])
            varies = 2 * slope * wide + bend * (wide**2 + high**2)
            varies = varies + known.on_box[1] - known.on_box[0]
            turns = known.on_box[2] + slope * high + 2 * bend * wide * high
            return np.maximum((2 * varies + density) / VARIATION, turns / _TURN)

    def resolved(self, known: PanelBounds) -> np.ndarray:
        """Panels over which neither f nor the density varies much.

        Raises:
            TooFine: log|f| varies so far that they would be too many.
        """
        with np.errstate(all="ignore"):
            slope = np.abs(self.tilt[1] + 2 * self.tilt[2] * known.t)
            # 2·log|f| of a panel varies by VARIATION at most.
            fall = known.on_segment[1] - known.on_segment[0] + 2 * slope * known.half
        needed = 2 / VARIATION * fall[np.isfinite(fall)].sum()
        # The first panels of a law with heavy tails are as wide as these: there `_WORK` ends it.
        light = isinstance(self.axis.law, Gaussian)
        if light and needed > _LOOSE * _MOST_PANELS:
            raise too_wide(self.axis.f.kernel, self.axis.law.gamma)
        return self._excess(known) < 1

    def singular(self, known: PanelBounds) -> np.ndarray:
        """Panels on which f may vanish, or be unbounded on the box."""
        return ~np.isfinite(known.on_box[1]) | (known.on_segment[0] == -np.inf)

    def parts(self, known: PanelBounds) -> np.ndarray:
        """As many as the excess asks for: it falls faster than the width does."""
        excess = self._excess(known)
        excess = np.where(np.isfinite(excess), excess, 2.0)
        return np.clip(np.ceil(0.8 * excess), 2, 8).astype(int)

    def collect(self, known: PanelBounds) -> None:
        """Keep the panels, as long as there are not too many."""
        self.kept.append(known.panels)
        self.count += len(known.half)
        if self.count > _MOST_PANELS:
            raise too_wide(self.axis.f.kernel, self.axis.law.gamma)

    def not_worth_cutting(self, known: PanelBounds) -> np.ndarray:
        """Panels next to a zero or a pole of f, or far out, that no more is asked of."""
        most = np.where(known.on_segment[1] == np.inf, _RAREST, TAIL / 10)
        low, high = self._density(known)
        tiny = 2 * known.half < most
        return tiny | ((self._depth(known) < -_MATTERS) & (high - low < 4))

    def give_up(self, known: PanelBounds) -> None:
        """Take panels as they are that cannot be cut further; refuse a pole among them."""
        if (known.on_segment[1][2 * known.half > _RAREST] == np.inf).any():
            fix = "is unbounded at a score known only to rounding; its rows have no exact law"
            raise InputError("weight", self.axis.f.kernel.weight, fix)
        self.kept.append(known.panels)
        density = self._density(known)[1]
        counts = self._depth(known) > -_MATTERS
        mass = density + np.log(2 * known.half)
        tilt = np.polyval(self.tilt[::-1], known.t)  # a sliver is too narrow for it to vary
        sliver = known.t, known.on_segment[1] + tilt, mass + self.axis.law.log_norm
        self.slivers.append(np.stack(sliver)[:, counts])

    def nodes(self) -> Nodes:
        panels = Panels.joined(self.kept) if self.kept else Panels(*np.empty((3, 0)))
        axis, zeros = self.axis, np.concatenate(self.zeros, axis=1)
        p_zero = float(axis.law.mass(*zeros).sum())
        half = ((panels.high - panels.low) / 2)[:, None]
        x = (panels.high + panels.low)[:, None] / 2 + half * NODES
        a = np.broadcast_to(panels.a[:, None], x.shape).astype(int)
        t = axis.t[a] + x
        density = axis.law.log_density(t)
        if not len(density):
            nothing = np.empty(0)
            slivers = np.empty((3, 0))
            return Nodes(nothing, nothing, nothing, nothing, 0.0, slivers, p_zero, zeros)
        found = axis.values_at(a, x)
        shares = [
            density + p * found.log - top for p, top in zip(self.powers, self.tops, strict=True)
        ]
        found = axis.refined(a, x, found, np.max(shares, axis=0) > -_MATTERS)
        keep = np.isfinite(found.log)
        own = axis.law.rounding(t) + axis.law.steep(t) * axis.shift[a]
        log_w = density + axis.law.log_norm + np.log(half) + np.log(WEIGHTS)
        error = float(np.max(own, where=keep, initial=0.0)) + _RULE
        order = np.argsort(found.log[keep], kind="stable")
        t, log_f, log_w, own = (x[keep][order] for x in (t, found.log, log_w, found.error))
        slivers = np.concatenate(self.slivers, axis=1)
        return Nodes(t, log_f, log_w, own, error, slivers, p_zero, zeros)


def _times(p: float, tilt: tuple[float, ...]) -> tuple[float, float, float]:
    c0, c1, c2 = tilt
    return p * c0, p * c1, p * c2


def of_density(axis: Axis, powers: tuple[float, ...]) -> Nodes:
    """The nodes of a law that has a density.

    Raises:
        InputError: f is unbounded where keys fall.
        TooFine: f has more structure than can be resolved in seconds.
    """
    goal = _Smooth(axis, powers)
    cut(axis, goal, _WORK)
    return goal.nodes()
