"""How the mass of long rows is shared out: the Lorenz curve of the law of one weight |f(β + γε)|.

The score axis is taken apart into pieces on which |f| is monotone. The chance, and the mass, of
what is above a level are then integrals between the places where |f| crosses it; the chance is a
sum of normal ones, with the digits of either tail. The Gini coefficient is E|f|(2F − 1)/E|f|, with
the rank F of each weight. Of equal weights any are taken first.

The bound holds the same rules on panels of twice the width, and the rounding of the places.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition, period
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.moments import panels_with_mass
from sparsity.limit.panels import NODES, WEIGHTS, Axis
from sparsity.limit.score_laws import Gaussian
from sparsity.special import ndtr, ndtri

_REACH = 38.0  # of t, at which the normal density has underflowed
# Of t: how finely turns are looked for, beside the ends of the panels. Two turns between neighbours
# of the grid are missed; the mass of |f| between them is then ranked wrongly by the rise they make.
_GRID_STEP = 0.01
_NOISE = 32 * EPS  # a relative rise of log|f| that is none
_MAX_TURNS = 40  # to follow: each takes a search, and each level a crossing beside it
_HALVINGS = 55  # from 76 to a rounding error of t
_HALVINGS_AHEAD = 11  # of a few levels, made in one call: a divisor of the halvings
_FEW_LEVELS = 4  # as many as that serves: 8,000 evaluations cost little more than a call does
# Of a panel of the rule, at most; of twice that the rule has to agree, and the difference is the
# bound. On it 24 nodes take the density to all digits, and leave kinks to the edges.
_MAX_WIDTH = 0.5
# Towards a place where ranks have a kink: a root from there has a share of 2^(−25·3/2) = 5e−12 of
# its mass on the innermost panel, of which the rule loses little.
_GRADES = 2.0 ** -np.arange(1, 26)
_EVERYWHERE = (-math.inf, math.inf)
_NO_CUTS = np.empty(0)
_ROUNDING = 1e-13  # of the places, and of a mass that is left out


class Piece(NamedTuple):
    """A piece [low, high] of the axis on which |f| rises (1), falls (−1) or is the same (0)."""

    low: float
    high: float
    sign: int


def _chance(low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Return P(low < ε < high), with the digits of either tail."""
    low, high = np.broadcast_arrays(low, high)
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _signs(rise: np.ndarray) -> np.ndarray:
    """Return signs of the rises; where it stays the same amid a rise or a fall, it goes on so."""
    sign = np.sign(rise).astype(int)
    known = np.flatnonzero(sign)
    if not len(known):
        return sign
    at = np.arange(len(sign))
    before = sign[known[np.maximum(np.searchsorted(known, at, "right") - 1, 0)]]
    after = sign[known[np.minimum(np.searchsorted(known, at), len(known) - 1)]]
    inside = (at > known[0]) & (at < known[-1])
    return np.where((sign == 0) & inside & (before == after), before, sign)


class Lorenz:
    """The law of |f| of one score: shares of the mass against shares of the weights.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias β.
        gamma: spread γ > 0.

    Raises:
        InputError: an infinite mean, a periodic weight, one that turns too often to be followed,
            or a mass that lies beyond all scores that are looked at.
    """

    def __init__(self, kernel: Kernel, beta: float, gamma: float) -> None:
        """Find the panels that carry the mean of |f|, and the pieces; see that it is in reach."""
        if period(kernel.weight) is not None:
            raise InputError(
                "weight", kernel.weight, "is periodic, so its values cannot be ranked here"
            )
        self.axis = axis = Axis(definition(kernel), Gaussian(beta, gamma))
        found = panels_with_mass(axis, (1.0,)).sorted(axis.t)
        edges = np.unique(np.concatenate([axis.t[found.a] + x for x in (found.low, found.high)]))
        self.mass_edges = edges[np.abs(edges) < 1e3]
        self.pieces = self._find_pieces()
        self._above: dict[float, list[tuple[float, float]]] = {}
        t, mass = self._nodes(_EVERYWHERE, _NO_CUTS, _MAX_WIDTH)
        if not mass[np.abs(t) > _REACH - 1].sum() < _ROUNDING * mass.sum():
            fix = "its mass is too far out for its ranks to be followed; lower gamma"
            raise InputError("gamma", gamma, fix)
        coarse = self._nodes(_EVERYWHERE, _NO_CUTS, 2 * _MAX_WIDTH)[1]
        self._whole = {
            _MAX_WIDTH: float(mass.sum()),
            2 * _MAX_WIDTH: float(coarse.sum()),
        }  # by panel width
        self.rounding = _ROUNDING + 16 * EPS * abs(beta) / gamma

    def _log_f(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log|f| at places, and bounds on its errors."""
        t = np.asarray(t, dtype=np.float64)
        # From the nearest anchor, next to which f keeps its digits.
        a = np.searchsorted((self.axis.t[1:] + self.axis.t[:-1]) / 2, t)
        with np.errstate(all="ignore"):
            found = self.axis.values_at(a, t - self.axis.t[a])
        return found.log, found.error

    def log(self, t: np.ndarray) -> np.ndarray:
        return self._log_f(t)[0]

    def _find_pieces(self) -> list[Piece]:
        """Look for turns on a grid, and on the ends of the panels, which are proven smooth."""
        t = np.unique(np.concatenate([np.arange(-_REACH, _REACH, _GRID_STEP), self.mass_edges]))
        v, error = self._log_f(t)
        with np.errstate(invalid="ignore"):
            rise = np.where(v[1:] == v[:-1], 0.0, v[1:] - v[:-1])
            noise = error[1:] + error[:-1] + _NOISE * (1 + np.abs(v[:-1]))
        sign = _signs(np.where(np.isinf(rise) | (np.abs(rise) > noise), rise, 0.0))
        turns = np.flatnonzero(np.diff(sign)) + 1
        if len(turns) > _MAX_TURNS:
            weight = self.axis.f.kernel.weight
            raise TooFine("weight", weight, "turns too often for its ranks to be followed")
        places = [self._turn(t[i - 1], t[i], t[i + 1], sign[i - 1], sign[i]) for i in turns]
        ends, signs = [-np.inf, *places, np.inf], [sign[0], *sign[turns]]
        return [Piece(a, b, int(s)) for a, b, s in zip(ends[:-1], ends[1:], signs, strict=True)]

    def _turn(self, low: float, middle: float, high: float, before: int, after: int) -> float:
        """Return where |f| turns, between three places of the grid, by ternary search."""
        if 0 in (before, after):
            return float(middle)
        for _ in range(_HALVINGS):
            one, two = low + (high - low) / 3, high - (high - low) / 3
            left, right = self.log(np.array([one, two]))
            if (left < right) == (before > 0):
                low = one
            else:
                high = two
        return float(0.5 * (low + high))

    def crossing(self, piece: Piece, level: np.ndarray) -> np.ndarray:
        """Return where |f| passes levels on a piece; an end of the piece where it does not.

        This is bisection, of all levels at once: |f| is monotone on a piece, but may jump, be flat
        or have no slope, where Newton's method or a secant fail. A call has a fixed cost, so for a
        few levels many halvings are made in one: |f| is evaluated at all 2^11 − 1 places that they
        could ask for, a sorted array `places`. Its answers `up` (the crossing is further right) are
        then followed as halvings would: in `places[at : at + 2·half]` `at + half` is the middle.
        """
        low = np.full(level.shape, max(piece.low, -_REACH))
        high = np.full(level.shape, min(piece.high, _REACH))
        ahead = _HALVINGS_AHEAD if level.size <= _FEW_LEVELS else 1
        for _ in range(_HALVINGS // ahead):
            places = np.stack([low, high])
            for _ in range(ahead):
                middle = 0.5 * (places[1:] + places[:-1])
                places = np.insert(places, np.arange(1, len(places)), middle, axis=0)
            inside = places[1:-1]
            log = self.log(inside.reshape(-1)).reshape(inside.shape)
            up = (log < level) == (piece.sign > 0)
            at = np.zeros(level.shape, dtype=int)
            for half in (2**k for k in reversed(range(ahead))):
                at += half * np.take_along_axis(up, (at + half - 1)[None], axis=0)[0]
            low, high = np.take_along_axis(places, np.stack([at, at + 1]), axis=0)
        return 0.5 * (low + high)

    def _flat_level(self, piece: Piece) -> float:
        """Return log|f| on a piece where it is the same."""
        low, high = max(piece.low, -_REACH), min(piece.high, _REACH)
        inside = np.clip(0.0, low, high)
        at = inside if piece.low < inside < piece.high else 0.5 * (low + high)
        return float(self.log(np.array(at)))

    def under(self, level: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return P(|f| < a) + ½P(|f| = a), given ln a and where on the axis a is attained."""
        found = np.zeros(level.shape)
        for piece in self.pieces:
            if piece.sign == 0:
                c = self._flat_level(piece)
                near = 16 * EPS * (1 + abs(c))
                same = np.abs(level - c) <= near if np.isfinite(c) else level == c
                part = np.where(same, 0.5, np.where(level > c, 1.0, 0.0))
                found += part * _chance(piece.low, piece.high)
                continue
            at = own.copy()
            sought = (at <= piece.low) | (at >= piece.high)
            if sought.any():
                at[sought] = self.crossing(piece, level[sought])
            found += _chance(*((piece.low, at) if piece.sign > 0 else (at, piece.high)))
        return found

    def above(self, level: float) -> list[tuple[float, float]]:
        """Return the intervals on which |f| is above e^level; several shares of it ask for them."""
        if level not in self._above:
            found = []
            for piece in self.pieces:
                if piece.sign == 0:
                    ends = (
                        (piece.low, piece.high) if self._flat_level(piece) > level else (0.0, 0.0)
                    )
                else:
                    at = float(self.crossing(piece, np.array(level)))
                    ends = (at, piece.high) if piece.sign > 0 else (piece.low, at)
                found.append(ends)
            self._above[level] = [(low, high) for low, high in found if high > low]
        return self._above[level]

    def _nodes(
        self, ends: tuple[float, float], cuts: np.ndarray, width: float
    ) -> tuple[np.ndarray, ...]:
        """Return nodes and masses of |f| between two places, on panels up to a width.

        Panels end wherever the integrand may have a kink: at ends of proven panels, at turns of
        |f|, and at `cuts`, kinks of the ranks. Towards the latter they shrink by halves, since a
        rank may leave its kink like a root: beside a maximum t₀ of |f| the level |f(t₀)| − ε is
        reached at t₀ ± √(ε/c), so that a weight elsewhere which comes from below to |f(t₀)| gains
        rank like √ε.

        Edges of panels are cut evenly to `width` in one array: a panel of `count` parts is repeated
        so often, and `number` counts them within it.
        """
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

    def _rank_kinks(self) -> np.ndarray:
        """Return places at which the rank of |f| has a kink: where |f| is as large as at a turn."""
        turns = np.array([each.low for each in self.pieces[1:]])
        levels = self.log(turns)
        levels = levels[np.isfinite(levels)]
        if not len(levels):
            return np.empty(0)
        every = [self.crossing(piece, levels) for piece in self.pieces if piece.sign]
        return np.unique(np.concatenate([*every, turns]))

    def gini(self) -> tuple[float, float]:
        """Return E|f|(2F − 1)/E|f| with the rank F of each weight, and a bound on the error."""
        kinks, found = self._rank_kinks(), []
        for width in (_MAX_WIDTH, 2 * _MAX_WIDTH):
            t, mass = self._nodes(_EVERYWHERE, kinks, width)
            rank = self.under(self.log(t), t)
            found.append(float(mass @ (2 * rank - 1) / mass.sum()))
        return found[0], abs(found[0] - found[1]) + self.rounding

    def _held(self, level: float, width: float = _MAX_WIDTH) -> float:
        """Return the share of the mass above a level."""
        parts = [self._nodes(ends, _NO_CUTS, width)[1].sum() for ends in self.above(level)]
        return float(sum(parts) / self._whole[width])

    def _share(self, level: float) -> float:
        """Return the share of the weights above a level."""
        return float(sum(_chance(*ends) for ends in self.above(level)))

    def _level(self, over: float, by: str) -> float:
        """Return the level above which a share of the weights, or of the mass, is."""
        function = self._share if by == "weights" else self._held
        if by == "weights":  # of an f that rises with the score, those of the largest scores
            rising = float(self.log(np.array(-ndtri(over))))
            if abs(self._share(rising) - over) <= 1e-12 * over:  # `top` mends that
                return rising
        logs = self.log(np.linspace(-_REACH, _REACH, 2001))
        logs = logs[np.isfinite(logs)]
        low, high = float(logs.min()) - 1.0, float(logs.max()) + 1.0  # all that matters is between
        if function(low) <= over:
            return low
        from scipy.optimize import brentq  # slow to import

        goal = lambda level: function(level) - over  # noqa: E731
        return float(brentq(goal, low, high, xtol=1e-14, rtol=4 * EPS))  # type: ignore[arg-type]

    def _at_level(self, level: float) -> tuple[float, float, float, float]:
        """Return what is above a level: shares of the weights and of the mass, and its error.

        The fourth is the weight e^level over the mean weight. The level is found only to rounding,
        and where |f| is flat a whole share of weights equals it. In either case the weights between
        what is above and what was asked for are all e^level, so that `top` and `keys` go on from
        there in a straight line.
        """
        held = self._held(level)
        gap = abs(held - self._held(level, 2 * _MAX_WIDTH))
        return self._share(level), held, gap, math.exp(level - self._top) / self._whole[_MAX_WIDTH]

    def top(self, share: float) -> tuple[float, float]:
        """Return the mass of the largest share of the weights, and a bound on the error."""
        if share >= 1:
            return 1.0, 0.0
        above, held, gap, size = self._at_level(self._level(share, "weights"))
        value = held + (share - above) * size
        return min(value, 1.0), gap + self.rounding * (value + share * size)

    def keys(self, share: float) -> tuple[float, float]:
        """Return the share of the weights, the largest first, that holds a share of the mass."""
        above, held, gap, size = self._at_level(self._level(share, "mass"))
        value = above + (share - held) / size
        return value, (gap + self.rounding) / size + self.rounding * value
