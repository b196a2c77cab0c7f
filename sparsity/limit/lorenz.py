"""How the mass of long rows is shared out: the Lorenz curve of the law of one weight |f(β + γε)|.

The mass above a level is an integral between the places where |f| crosses it. The Gini coefficient
is E|f|(2F − 1)/E|f|, with the rank F of each weight. Of equal weights any are taken first.

The bound holds the same rules on panels of twice the width, and the rounding of the places.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import ndtri

from sparsity.errors import InputError
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.axis import NODES, WEIGHTS
from sparsity.limit.level_sets import FAR, LevelSets, between

_WIDTH = 0.5  # of a panel of the rule, at most
_GRADES = 2.0 ** -np.arange(1, 26)  # towards a place where ranks have a kink
_ALL = (-math.inf, math.inf)
_ROUNDING = 1e-13


class Lorenz(LevelSets):
    """The law of |f| of one score: shares of the mass against shares of the weights.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias β.
        gamma: spread γ > 0.

    Raises:
        InputError: as `LevelSets`, or a mass that lies beyond all scores that are looked at.
    """

    def __init__(self, kernel: Kernel, beta: float, gamma: float) -> None:
        """See that the mass is within reach."""
        super().__init__(kernel, beta, gamma)
        self._wholes: dict[float, float] = {}
        self._above: dict[float, list[tuple[float, float]]] = {}
        t, mass = self._rule(_ALL, np.empty(0), _WIDTH)
        if not mass[np.abs(t) > FAR - 1].sum() < _ROUNDING * mass.sum():
            fix = "its mass is too far out for its ranks to be followed; lower gamma"
            raise InputError("gamma", gamma, fix)
        self.rounding = _ROUNDING + 16 * EPS * abs(beta) / gamma

    def _rule(
        self, ends: tuple[float, float], cuts: np.ndarray, width: float
    ) -> tuple[np.ndarray, ...]:
        """Nodes and masses of |f| between two places, on panels up to a width."""
        low, high = max(ends[0], self.mass_edges[0]), min(ends[1], self.mass_edges[-1])
        if not high > low:
            return np.empty(0), np.empty(0)
        turns = [each.low for each in self.pieces[1:]]
        graded = np.concatenate([cuts + side * _GRADES[:, None] for side in (-1, 1)]).ravel()
        edges = np.concatenate([self.mass_edges, turns, cuts, graded, [low, high]])
        edges = np.unique(edges[(edges >= low) & (edges <= high)])
        count = np.ceil(np.diff(edges) / width).astype(int)
        number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        size = np.repeat(np.diff(edges) / count, count)
        start = np.repeat(edges[:-1], count) + number * size
        t = (start + size / 2)[:, None] + (size / 2)[:, None] * NODES
        log = self.log(t) - 0.5 * t * t - self._top
        mass = np.exp(log) * (size / 2)[:, None] * WEIGHTS / math.sqrt(2 * math.pi)
        return t.ravel(), mass.ravel()

    @functools.cached_property
    def _top(self) -> float:
        """About the log of the largest mass."""
        t = np.linspace(self.mass_edges[0], self.mass_edges[-1], 401)
        return float(np.nanmax(self.log(t) - 0.5 * t * t))

    def _kinks(self) -> np.ndarray:
        """Places at which the rank of |f| has a kink: where it is as large as at another turn."""
        turns = np.array([each.low for each in self.pieces[1:]])
        levels = self.log(turns)
        levels = levels[np.isfinite(levels)]
        if not len(levels):
            return np.empty(0)
        every = [self.crossing(piece, levels) for piece in self.pieces if piece.sign]
        return np.unique(np.concatenate([*every, turns]))

    def gini(self) -> tuple[float, float]:
        """E|f|(2F − 1)/E|f| with the rank F of each weight, and a bound on the error."""
        kinks, found = self._kinks(), []
        for width in (_WIDTH, 2 * _WIDTH):
            t, mass = self._rule(_ALL, kinks, width)
            rank = self.under(self.log(t), t)
            found.append(float(mass @ (2 * rank - 1) / mass.sum()))
        return found[0], abs(found[0] - found[1]) + self.rounding

    def _whole(self, width: float = _WIDTH) -> float:
        """The mass of all weights, by panels up to a width."""
        if width not in self._wholes:
            self._wholes[width] = float(self._rule(_ALL, np.empty(0), width)[1].sum())
        return self._wholes[width]

    def _relative(self, level: float) -> float:
        """The weight e^level over the mean weight."""
        return math.exp(level - self._top) / self._whole()

    def above(self, level: float) -> list[tuple[float, float]]:
        """The intervals on which |f| is above e^level; several shares of one level ask for them."""
        if level not in self._above:
            self._above[level] = super().above(level)
        return self._above[level]

    def _held(self, level: float, width: float = _WIDTH) -> float:
        """The share of the mass above a level."""
        parts = [self._rule(ends, np.empty(0), width)[1].sum() for ends in self.above(level)]
        return float(sum(parts) / self._whole(width))

    def _share(self, level: float) -> float:
        """The share of the weights above a level."""
        return float(sum(between(*ends) for ends in self.above(level)))

    def _range(self) -> tuple[float, float]:
        """Logs of weights below and above all that matter."""
        v = self.log(np.linspace(-FAR, FAR, 2001))
        v = v[np.isfinite(v)]
        return float(v.min()) - 1.0, float(v.max()) + 1.0

    def _level(self, over: float, by: str) -> float:
        """The level above which a share of the weights, or of the mass, is."""
        function = self._share if by == "weights" else self._held
        if by == "weights":  # of an f that rises with the score, those of the largest scores
            rising = float(self.log(np.array(-ndtri(over))))
            if abs(self._share(rising) - over) <= 1e-12 * over:  # `top` mends that
                return rising
        low, high = self._range()
        if function(low) <= over:
            return low
        goal = lambda level: function(level) - over  # noqa: E731
        from scipy.optimize import brentq  # slow to import

        return float(brentq(goal, low, high, xtol=1e-14, rtol=4 * EPS))  # type: ignore[arg-type]

    def top(self, share: float) -> tuple[float, float]:
        """The mass of the largest share of the weights, and a bound on the error."""
        if share >= 1:
            return 1.0, 0.0
        level = self._level(share, "weights")
        missing = share - self._share(level)  # of weights that are all as large as the level
        size, held = self._relative(level), self._held(level)
        value = held + missing * size
        gap = abs(held - self._held(level, 2 * _WIDTH))
        return min(value, 1.0), gap + self.rounding * (value + share * size)

    def keys(self, share: float) -> tuple[float, float]:
        """The share of the weights, the largest first, that holds a share of the mass."""
        level = self._level(share, "mass")
        size, held = self._relative(level), self._held(level)
        value = self._share(level) + (share - held) / size
        gap = abs(held - self._held(level, 2 * _WIDTH))
        return value, (gap + self.rounding) / size + self.rounding * value
