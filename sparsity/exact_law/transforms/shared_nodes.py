"""Laws of a score that are near each other: they share the nodes of one of them, the reference.

The density of a normal law over that of another is e^(a + bt + ct²). A reference is a point of a
lattice: of β/γ in whole numbers, and of ln γ, or of γ where that turns a factor e^(as) of the
weight faster. It depends on a law alone, never on what else was asked. So a curve over β and γ asks
for few sets of nodes, and laws that share nodes differ in the weights of the nodes alone.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law.transforms.nodes import TAIL, WORK, nodes, too_wide
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition, period
from sparsity.kernels.numeric.points import Approx
from sparsity.limit.densities import between
from sparsity.special import ndtr

# Of the lattice: of ln γ, or of aγ/2. A coarser one asks for fewer sets of nodes, on which the laws
# at its corners, with more of a tilt, are known to fewer digits.
_STEP = 0.125
_TURN = 2.0  # the aγ from which it is that
_FARTHEST = 2.0**40  # β/γ beyond which the offset of a bias loses digits
_SMALLEST = float(np.finfo(np.float64).tiny)  # γ, of which 1/γ is a number
_TYPICAL = 4.0  # spreads around the mean, where most scores lie
_WIDEST = 1e5  # of log|f| over these: a million points of u and more
# Powers of |f| whose means the nodes of c = 1 reach: of E Y₂, and of sink masses next to nothing.
_REACHED_POWERS = (-1.0, 0.0, 2.0)
_COARSE = np.arange(40.0, -176.0, -2.0)  # of u, from the largest |f|^c, where ranges are looked for
_NEAR = 1.25  # rounding error of a density over that of its reference


class Lattice:
    """The lattice of references of a kernel: places of γ, and what laws are over a reference."""

    def __init__(self, kernel: Kernel) -> None:
        rate = abs(definition(kernel).tilt[1])
        # γ at which places of ln γ become those of γ
        self.bend = _TURN / rate if rate else math.inf

    def spread(self, place: float) -> float:
        """Return the γ at a place."""
        # Logarithmic up to the bend and linear beyond, continuous with its slope: e^(aγt) of the
        # next place then differs by the same factor everywhere.
        turn = math.log(self.bend)
        return math.exp(place) if place <= turn else self.bend * (1 + place - turn)

    def place(self, gamma: float) -> float:
        """Return the place of a γ, in whole numbers of `_STEP` at a reference."""
        bent = gamma > self.bend
        return math.log(self.bend) + gamma / self.bend - 1 if bent else math.log(gamma)

    def corners(self, beta: float, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Return β and γ of the laws that are farthest from a reference."""
        ends = [self.spread(self.place(gamma) + half * _STEP) for half in (-0.5, 0.5)]
        biases = np.array([beta - gamma / 2, beta + gamma / 2])
        return np.tile(biases, 2), np.repeat(ends, 2)


def reference(kernel: Kernel, beta: float, gamma: float, scores: Any) -> tuple[float, float] | None:
    """Return β and γ of the law whose nodes a law shares; None where it has nodes of its own.

    Laws share nodes whose scores are normal, and whose f has no factor e^(cs²) and no period.
    """
    if scores is not None or not gamma > 0:
        return None
    if definition(kernel).tilt[2] or period(kernel.weight):
        return None
    lattice = Lattice(kernel)
    near = lattice.spread(_STEP * round(lattice.place(gamma) / _STEP))
    return (near * round(beta / near), near) if abs(beta) < _FARTHEST * near else None


def tilt(beta: np.ndarray, gamma: np.ndarray, near: tuple[float, float]) -> np.ndarray:
    """Return (a, b, c) with e^(a + bt + ct²) the density of laws over their reference's, [..., 3].

    Args:
        beta: of the laws.
        gamma: likewise.
        near: β and γ of the reference, whose standard score is t.
    """
    # s = β₀ + γ₀t, so z = (s − β)/γ = ratio·t − offset, and a + bt + ct² = (t² − z²)/2 + ln ratio.
    # c is a product of two factors, not a difference of squares: next to the reference it is tiny.
    offset, ratio = (beta - near[0]) / gamma, near[1] / gamma
    both = [gamma, np.full_like(gamma, near[1])]
    one, other = np.ldexp(both, -math.frexp(near[1])[1])  # γ and γ₀ over a power of 2, near 1
    square = (one - other) * (one + other) / (2 * one**2)
    return np.stack([np.log(ratio) - offset**2 / 2, offset * ratio, square], axis=-1)


def _refuse_too_wide(kernel: Kernel, beta: float, gamma: float, scores: Any) -> None:
    """Refuse at once what nodes would be looked for in vain, for long."""
    ends = (-np.inf, np.inf) if scores is None else scores.ends
    low, high = np.clip(ends, -_TYPICAL, _TYPICAL)
    with np.errstate(all="ignore"):
        x = gamma * np.linspace(low, high, 9)
        log = definition(kernel).values_at(beta, Approx(x)).log
    if np.isnan(log).any():
        return  # not real there, which the panels say with a score
    known = log[np.isfinite(log)]  # a pole is no range: the panels close in on it
    if not np.all(np.isfinite(x)) or (known.size and not np.ptp(known) <= _WIDEST):
        raise too_wide(kernel, gamma)


class LawNodes:
    """Nodes of laws that share them, and what holds for all of these laws.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias of the law that the nodes are made for, the reference.
        gamma: its spread; 0 is a fixed score.
        scores: the law of x in β + γx; None for Gaussian scores.
        c: the power of |f| in x.
        shared: whether there are other laws besides.

    Attributes:
        c_log_f: c·log|f| at the nodes, ascending.
        right: the u beyond which no row has an integrand left.
        smooth: the same for laws that are interpolated.
        transform_error: relative error of a transform: of f at the nodes, of their rule, and of
            slivers of the axis between them.

    Raises:
        InputError: f is not a finite real number where keys fall, or varies beyond all reach.
        TooFine: f spreads over too wide a range to be summed in seconds.
    """

    def __init__(
        self, kernel: Kernel, beta: float, gamma: float, scores: Any, c: int, shared: bool
    ) -> None:
        """Do what is common to the laws once, for those that are farthest from the reference."""
        self.kernel, self.near, self.shared = kernel, (beta, gamma), shared
        _refuse_too_wide(kernel, beta, gamma, scores)
        powers = _REACHED_POWERS if c == 1 else (0.0,)
        # A reference gets half the work: where it needs more, the law itself is tried with all.
        work = WORK / 2 if shared else WORK
        self.points = points = nodes(kernel, beta, gamma, scores, powers, work)
        if not len(points.log_f):
            raise InputError("weight", kernel.weight, "is 0 in float64 at every score that occurs")
        self.c_log_f = c * points.log_f
        # The laws at the corners of the cell around a reference are farthest from it: ranges and
        # errors are those of the worst of them.
        by = np.zeros((1, 3))
        if shared:
            by = tilt(*Lattice(kernel).corners(beta, gamma), self.near)
        log_w = points.tilted(by)
        self.tops = log_w.max(axis=-1)
        self.corners = np.exp(log_w - self.tops[:, None])
        share = np.cumsum(self.corners, axis=-1)
        self.p_nonzero = share[:, -1].copy()
        share /= share[:, -1:]
        # A relative error of a weight counts as far as the weight does in a typical row.
        typical = points.log_f[(share < 0.05).sum(axis=-1)]
        counts = np.exp(np.minimum(points.log_f - typical.min(), 0.0))
        heavy = self.corners.max(axis=0) > 1e-30
        error = np.max(counts * points.error, where=heavy, initial=0.0)
        blur = max(map(points.sliver_error, by)) if points.slivers.size else 0.0
        # x = |f|^c, c ≤ 2, has twice the error of |f|; and it is in φ and in the means beside it.
        # Mostly the density's error is the largest of the three: its own rounding, 1e-13 where it
        # is e^(−100), and `nodes._RULE`. That of f takes over at large spreads (exp from γ = 20).
        density_error = points.density_error * (_NEAR if shared else 1.0)
        self.transform_error = 4 * (float(error) + density_error + blur)
        self.right = 5.0 - min(self.c_log_f[self._lightest_node(one, c)] for one in share)
        # Beyond it the nodes next to a zero of f are not those of a neighbouring law.
        self.smooth = 5.0 - float(self.c_log_f[(share < TAIL).sum(axis=-1)].min())

    def _lightest_node(self, share: np.ndarray, c: int) -> int:
        """Return the first node that matters, of a law whose mass up to each node is given.

        Of rows that are rarely light, those whose mass is below the tail do not. A light sink,
        c = 1, matters in the rare rows whose other weights are lighter still: as e^u · share does,
        where that falls off before the nodes end.
        """
        rarest = int(np.searchsorted(share, TAIL if c == 2 else TAIL**2))
        if c != 1:
            return rarest
        with np.errstate(divide="ignore"):
            light = np.log(share) - self.points.log_f
        counts = light > light.max() + math.log(TAIL)
        return rarest if counts[0] else min(rarest, int(np.argmax(counts)))

    def mass(self, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """Return what laws have on the intervals where f is 0."""
        offset, ratio = (self.near[0] - beta) / gamma, self.near[1] / gamma
        low, high = (offset[..., None] + ratio[..., None] * end for end in self.points.zeros)
        return between(ndtr, low, high).sum(axis=-1)

    @functools.cached_property
    def _coarse(self) -> np.ndarray:
        """E min(x, 1) at the coarse points, about E[1 − e^(−x)], [points, corners].

        As nodes are sorted, x counts over the first of them and 1 over the rest.
        """
        log_x, w = self.c_log_f - self.c_log_f[-1], self.corners
        none = np.zeros((len(w), 1))
        below = np.concatenate([none, np.cumsum(w * np.exp(log_x), axis=-1)], axis=-1)
        above = np.concatenate([np.cumsum(w[:, ::-1], axis=-1)[:, ::-1], none], axis=-1)
        split = np.searchsorted(log_x, -_COARSE)
        return (np.exp(_COARSE) * below[:, split] + above[:, split]).T

    @functools.cached_property
    def _most_log_phi(self) -> np.ndarray:
        """A bound from above on log E e^(−x), 4 in u beyond the coarse points.

        E[1 − e^(−54x)] is at least E min(x, 1), and e^4 = 54.
        """
        hit = np.minimum(self._coarse * np.exp(self.tops), 1 - 1e-15)
        return np.log1p(-hit).max(axis=-1)

    def log_phi(self, u: np.ndarray) -> np.ndarray:
        """Return a bound on log E e^(−x) from above."""
        known = self._most_log_phi
        at = np.searchsorted(-_COARSE, -(u - 4.0 + self.c_log_f[-1]))  # the next point below
        return np.where(at < len(known), known[np.minimum(at, len(known) - 1)], 0.0)

    def first_u(self, longest: float) -> float:
        """Return the u below which rows up to that length have no integrand left."""
        # n(1 − φ) against the chance, at most 1, that the row holds anything.
        # Both are over e^top, as the coarse means are.
        chance = np.exp(np.minimum(-self.tops, 700.0))
        holds = np.minimum(chance, longest * self.p_nonzero)
        small = (longest * self._coarse < TAIL * holds).all(axis=-1)
        return float(_COARSE[np.argmax(small) if small.any() else -1] - self.c_log_f[-1])

    def last_u(self, shortest: float, longest: float) -> float:
        """Return the u above which rows of these lengths have no integrand left.

        That is next to φ^(n−4): m_k/φ is of order 1/φ, and nothing is made of more than four.
        """
        least = math.log(TAIL) - 10 - 3 * math.log(longest)
        gone = max(shortest - 4, 0.0) * self._most_log_phi < least
        last = float(_COARSE[gone][-1] + 4.0 - self.c_log_f[-1]) if gone.any() else math.inf
        return min(last, self.right)


class LawNodesCache:
    """The sets of nodes that were asked for last, up to a number and a number of nodes in all.

    Most have some thousands of nodes. A weight such as e^(−|s|) at γ = 1000 has 1.2 million, which
    are 200 MB: a scan over γ would fill the memory if only their number were bounded.

    Args:
        most: sets of nodes.
        most_nodes: of all of them; the last one is kept however many it has.
    """

    def __init__(self, most: int, most_nodes: int) -> None:
        self.most, self.most_nodes = most, most_nodes
        self._lock = threading.Lock()
        self.kept: OrderedDict[tuple[Any, ...], LawNodes] = OrderedDict()

    def get(self, *key: Any) -> LawNodes:
        """Return the `LawNodes` of these arguments, made now if they are not kept."""
        with self._lock:
            if key in self.kept:
                self.kept.move_to_end(key)
                return self.kept[key]
        made = LawNodes(*key)
        with self._lock:
            self.kept[key] = made
            while len(self.kept) > 1 and (
                len(self.kept) > self.most or self.count_nodes() > self.most_nodes
            ):
                self.kept.popitem(last=False)
        return made

    def count_nodes(self) -> int:
        """Return the number of nodes of all sets."""
        return sum(len(f.c_log_f) for f in self.kept.values())

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self.kept.clear()


CACHE = LawNodesCache(most=128, most_nodes=2**21)  # 2^21 nodes are some 350 MB


def nodes_of_law(kernel: Kernel, beta: float, gamma: float, scores: Any, c: int) -> LawNodes:
    """Return the (cached) nodes of a law.

    Raises:
        InputError: as `LawNodes` does, or a spread below the normal numbers.
        TooFine: a weight that spreads over too wide a range.
    """
    if 0 < gamma < _SMALLEST:
        raise InputError("gamma", gamma, f"is too small for float64; give {_SMALLEST:.2g} or more")
    if not math.isfinite(gamma * _TYPICAL):
        raise too_wide(kernel, gamma)
    near = reference(kernel, beta, gamma, scores)
    if near is not None:
        try:
            return CACHE.get(kernel, *near, scores, c, True)
        except InputError:
            pass  # the law itself may be fine, and if not is what is to be named
    return CACHE.get(kernel, beta, gamma, scores, c, False)
