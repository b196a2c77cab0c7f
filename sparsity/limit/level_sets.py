"""Where |f| of a score is above a level: the score axis in pieces on which |f| is monotone.

Turns are looked for on a grid, and on the panels that quadrature has proven smooth. The chance of
what is above a level is then a sum of normal ones, with the digits of either tail.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from sparsity.errors import InputError, TooFine
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.periods import period
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.axis import Axis
from sparsity.limit.moments import panels
from sparsity.limit.score_laws import Gaussian

FAR, _FINE = 38.0, 0.01  # of t: how far, and how finely, turns are looked for
_NOISE = 32 * EPS  # a relative rise of log|f| that is none
_HALVINGS = 55
_AHEAD, _FEW = 11, 4  # halvings in one call, a divisor of theirs; where at most so many levels are
_MOST_TURNS = 40


class Piece(NamedTuple):
    """A piece [low, high] of the axis on which |f| rises (1), falls (−1) or is the same (0)."""

    low: float
    high: float
    sign: int


def between(low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """P(low < ε < high), with the digits of either tail."""
    low, high = np.broadcast_arrays(low, high)
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _signs(rise: np.ndarray) -> np.ndarray:
    """Signs of the rises; where it stays the same amid a rise or a fall, it goes on with that."""
    sign = np.sign(rise).astype(int)
    known = np.flatnonzero(sign)
    if not len(known):
        return sign
    at = np.arange(len(sign))
    before = sign[known[np.maximum(np.searchsorted(known, at, "right") - 1, 0)]]
    after = sign[known[np.minimum(np.searchsorted(known, at), len(known) - 1)]]
    inside = (at > known[0]) & (at < known[-1])
    return np.where((sign == 0) & inside & (before == after), before, sign)


class LevelSets:
    """The law of |f| of one score.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias β.
        gamma: spread γ > 0.

    Raises:
        InputError: an infinite mean, a periodic weight, or one that turns too often to be followed.
    """

    def __init__(self, kernel: Kernel, beta: float, gamma: float) -> None:
        """Find the pieces, and the panels that carry the mean of |f|."""
        if period(kernel.weight) is not None:
            raise InputError(
                "weight", kernel.weight, "is periodic, so its values cannot be ranked here"
            )
        self.axis = axis = Axis(definition(kernel), Gaussian(beta, gamma))
        cut = panels(axis, (1.0,)).sorted(axis.t)
        edges = np.unique(np.concatenate([axis.t[cut.a] + cut.low, axis.t[cut.a] + cut.high]))
        self.mass_edges = edges[np.abs(edges) < 1e3]
        self.pieces = self._pieces()

    def _at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log|f| at places, and bounds on its errors."""
        t = np.asarray(t, dtype=np.float64)
        a = np.searchsorted((self.axis.t[1:] + self.axis.t[:-1]) / 2, t)  # the nearest anchor
        with np.errstate(all="ignore"):
            found = self.axis.at(a, t - self.axis.t[a])
        return found.log, found.error

    def log(self, t: np.ndarray) -> np.ndarray:
        return self._at(t)[0]

    def _pieces(self) -> list[Piece]:
        t = np.unique(np.concatenate([np.arange(-FAR, FAR, _FINE), self.mass_edges]))
        v, error = self._at(t)
        with np.errstate(invalid="ignore"):
            rise = np.where(v[1:] == v[:-1], 0.0, v[1:] - v[:-1])
            noise = error[1:] + error[:-1] + _NOISE * (1 + np.abs(v[:-1]))
        sign = _signs(np.where(np.isinf(rise) | (np.abs(rise) > noise), rise, 0.0))
        turns = np.flatnonzero(np.diff(sign)) + 1
        if len(turns) > _MOST_TURNS:
            kernel = self.axis.f.kernel
            raise TooFine("weight", kernel.weight, "turns too often for its ranks to be followed")
        places = [self._turn(t[i - 1], t[i], t[i + 1], sign[i - 1], sign[i]) for i in turns]
        ends = [-np.inf, *places, np.inf]
        signs = [sign[0], *sign[turns]]
        return [Piece(a, b, int(s)) for a, b, s in zip(ends[:-1], ends[1:], signs, strict=True)]

    def _turn(self, low: float, middle: float, high: float, before: int, after: int) -> float:
        """Where |f| turns, between three places of the grid."""
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
        """Where |f| passes levels on a piece; an end of the piece where it does not."""
        low = np.full(level.shape, max(piece.low, -FAR))
        high = np.full(level.shape, min(piece.high, FAR))
        ahead = _AHEAD if level.size <= _FEW else 1  # the places of several halvings in one call
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

    def _flat(self, piece: Piece) -> float:
        """log|f| on a piece where it is the same."""
        inside = np.clip(0.0, max(piece.low, -FAR), min(piece.high, FAR))
        middle = 0.5 * (max(piece.low, -FAR) + min(piece.high, FAR))
        return float(self.log(np.array(inside if piece.low < inside < piece.high else middle)))

    def under(self, level: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        """P(|f| < a) + ½P(|f| = a), given ln a; and where on the axis a is attained, if known."""
        found = np.zeros(level.shape)
        for piece in self.pieces:
            if piece.sign == 0:
                c = self._flat(piece)
                same = (
                    np.abs(level - c) <= 16 * EPS * (1 + abs(c)) if np.isfinite(c) else level == c
                )
                part = np.where(same, 0.5, np.where(level > c, 1.0, 0.0))
                found += part * between(piece.low, piece.high)
                continue
            at = np.full(level.shape, np.nan) if own is None else own.copy()
            sought = np.isnan(at) | (at <= piece.low) | (at >= piece.high)
            if sought.any():
                at[sought] = self.crossing(piece, level[sought])
            ends = (piece.low, at) if piece.sign > 0 else (at, piece.high)
            found += between(*ends)
        return found

    def above(self, level: float) -> list[tuple[float, float]]:
        """The intervals on which |f| is above e^level."""
        found = []
        for piece in self.pieces:
            if piece.sign == 0:
                if self._flat(piece) > level:
                    found.append((piece.low, piece.high))
                continue
            at = float(self.crossing(piece, np.array(level)))
            found.append((at, piece.high) if piece.sign > 0 else (piece.low, at))
        return [(a, b) for a, b in found if b > a]
