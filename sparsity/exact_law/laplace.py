"""Laplace transforms of a weight's law: E[1 − e^(−x)] and E[x^k e^(−x)] of x = t|f|^c, any t > 0.

What the exact law of finite rows is made of. The inner integral over the score is done on panels
over which log|f| varies little, and sorted by log|f|: at each t only the band of nodes where e^(−x)
is neither its series nor 0 is evaluated, the rest are running sums. Laws that share their nodes
differ in the weights alone: their transforms are one product of matrices.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law import bands, families
from sparsity.exact_law.bands import Orders
from sparsity.exact_law.nodes import TAIL, too_wide
from sparsity.exact_law.score_nodes import nodes
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import Approx

_SMALLEST = float(np.finfo(np.float64).tiny)  # γ, of which 1/γ is a number
_TYPICAL = 4.0  # spreads around the mean, where most scores lie
_WIDEST = 1e5  # of log|f| over these: more than `_MOST_POINTS` of u
_MOST_POINTS = 1_000_000  # of u, that one law may be asked for: seconds of work
_FAR = (-1.0, 0.0, 2.0)  # powers of |f| in E Y₂ and sink masses next to nothing
_COARSE = np.arange(40.0, -176.0, -2.0)  # of u, from the largest |f|^c, where ranges are looked for
_NEAR = 1.25  # rounding error of a density over that of its reference


class Family:
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
        rounding: relative error of the transforms.

    Raises:
        InputError: f is not a finite real number where keys fall, or varies beyond all reach.
        TooFine: f spreads over too wide a range to be summed in seconds.
    """

    def __init__(
        self, kernel: Kernel, beta: float, gamma: float, scores: Any, c: int, shared: bool
    ) -> None:
        """Do what is common to the laws once."""
        self.kernel, self.near, self.shared = kernel, (beta, gamma), shared
        self.nodes = found = nodes(kernel, beta, gamma, scores, _FAR if c == 1 else (0.0,))
        if not len(found.log_f):
            raise InputError("weight", kernel.weight, "is 0 in float64 at every score that occurs")
        self.c_log_f = c * found.log_f
        by = np.zeros((1, 3))
        if shared:
            by = families.tilt(*families.corners(kernel, beta, gamma), self.near)
        log_w = found.tilted(by)
        self.tops = log_w.max(axis=-1)
        self.corners = np.exp(log_w - self.tops[:, None])
        share = np.cumsum(self.corners, axis=-1)
        self.p_nonzero = share[:, -1].copy()
        share /= share[:, -1:]
        # A relative error of a weight counts as far as the weight does in a typical row.
        typical = found.log_f[(share < 0.05).sum(axis=-1)]
        counts = np.exp(np.minimum(found.log_f - typical.min(), 0.0))
        heavy = self.corners.max(axis=0) > 1e-30
        error = np.max(counts * found.error, where=heavy, initial=0.0)
        blur = max(map(found.blur, by)) if found.slivers.size else 0.0
        self.rounding = 4 * (float(error) + found.density_error * _NEAR**shared + blur)
        self.right = 5.0 - min(self.c_log_f[self._rarest(one, c)] for one in share)
        # Beyond it the nodes next to a zero of f are not those of a neighbouring law.
        self.smooth = 5.0 - float(self.c_log_f[(share < TAIL).sum(axis=-1)].min())

    def _rarest(self, share: np.ndarray, c: int) -> int:
        """The first node that matters, of a law whose mass up to each node is given."""
        rarest = int(np.searchsorted(share, TAIL if c == 2 else TAIL**2))
        # A light sink, c = 1, matters in the rare rows whose other weights are lighter still: as
        # e^u · share does, where that falls off before the nodes end.
        with np.errstate(divide="ignore"):
            light = np.log(share) - self.nodes.log_f
        counts = light > light.max() + math.log(TAIL)
        return min(rarest, int(np.argmax(counts))) if c == 1 and not counts[0] else rarest

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

    def log_phi(self, u: np.ndarray) -> np.ndarray:
        """A bound on log E e^(−x) from above."""
        # E[1 − e^(−54x)] is at least E min(x, 1).
        hit = np.minimum(self._coarse * np.exp(self.tops), 1 - 1e-15)
        log_phi = np.log1p(-hit).max(axis=-1)
        at = np.searchsorted(-_COARSE, -(u - 4.0 + self.c_log_f[-1]))  # the next point below
        return np.where(at < len(log_phi), log_phi[np.minimum(at, len(log_phi) - 1)], 0.0)

    def low(self, longest: float) -> float:
        """The u below which rows up to that length have no integrand left."""
        # n(1 − φ) against the chance, at most 1, that the row holds anything.
        chance = np.exp(np.minimum(-self.tops, 700.0))
        holds = np.minimum(chance, longest * self.p_nonzero)
        small = (longest * self._coarse < TAIL * holds).all(axis=-1)
        return float(_COARSE[np.argmax(small) if small.any() else -1] - self.c_log_f[-1])

    def high(self, shortest: float, longest: float) -> float:
        """The u above which rows of these lengths have no integrand left.

        That is next to φ^(n−4): m_k/φ is of order 1/φ, and nothing is made of more than four.
        """
        # E[1 − e^(−54x)] is at least E min(x, 1).
        hit = np.minimum(self._coarse * np.exp(self.tops), 1 - 1e-15)
        log_phi = np.log1p(-hit).max(axis=-1)
        gone = max(shortest - 4, 0.0) * log_phi < math.log(TAIL) - 10 - 3 * math.log(longest)
        last = float(_COARSE[gone][-1] + 4.0 - self.c_log_f[-1]) if gone.any() else math.inf
        return min(last, self.right)


@functools.lru_cache(maxsize=128)
def _family(kernel: Kernel, beta: float, gamma: float, scores: Any, c: int, shared: bool) -> Family:
    return Family(kernel, beta, gamma, scores, c, shared)


def _refuse_wide(kernel: Kernel, beta: float, gamma: float, scores: Any) -> None:
    """Refuse at once what nodes would be looked for in vain, for long.

    Raises:
        InputError: a spread below the normal numbers.
        TooFine: a weight that spreads over too wide a range.
    """
    if 0 < gamma < _SMALLEST:
        raise InputError("gamma", gamma, f"is too small for float64; give {_SMALLEST:.2g} or more")
    ends = (-np.inf, np.inf) if scores is None else scores.ends
    low, high = np.clip(ends, -_TYPICAL, _TYPICAL)
    with np.errstate(all="ignore"):
        x = gamma * np.linspace(low, high, 9)
        log = definition(kernel).values_at(beta, Approx(x)).log
    known = log[log > -np.inf]
    if not np.all(np.isfinite(x)) or (known.size and not np.ptp(known) <= _WIDEST):
        raise too_wide(kernel, gamma)


def family(kernel: Kernel, beta: float, gamma: float, scores: Any, c: int) -> Family:
    """The (cached) family of a law; raises as `Family` does."""
    _refuse_wide(kernel, beta, gamma, scores)
    near = families.reference(kernel, beta, gamma, scores)
    if near is not None:
        try:
            return _family(kernel, *near, scores, c, True)
        except InputError:
            pass  # the law itself may be fine, and if not is what is to be named
    return _family(kernel, beta, gamma, scores, c, False)


def transforms(log: np.ndarray, weights: np.ndarray, k: Orders, u: np.ndarray) -> np.ndarray:
    """E[1 − e^(−x)] and the E[x^k e^(−x)] of x = e^(u + log), [1 + k, ..., points].

    Args:
        log: at the nodes, ascending.
        weights: of the nodes, [..., nodes].
        k: the powers of x.
        u: ascending.
    """
    shape, w, (powers, series, logged) = weights.shape[:-1], bands.blocks(weights), bands.series(k)
    out = np.empty((*w.shape[:-1], len(series), len(u)))
    above = np.cumsum(w[..., ::-1], axis=-1)[..., ::-1]
    light, done, was = np.zeros((*w.shape[:-1], len(powers))), 0, u[-1]
    logs, any_logged = np.zeros_like(light), bool(logged.any())  # logs have a factor ln x
    for start, stop, first, last in bands.parts(u, log):
        here = u[start:stop]
        high = here[-1]
        grown = np.exp((high - was) * powers)
        if any_logged:
            logs = (logs + (high - was) * light) * grown
        light = light * grown
        if done < first:
            fresh = np.exp(np.multiply.outer(high + log[done:first], powers))
            light = light + bands.product(w[..., done:first], fresh)
            if any_logged:
                logs += bands.product(w[..., done:first] * (high + log[done:first]), fresh)
        done, was = first, high
        rise = np.exp(np.multiply.outer(powers, here - high))
        terms = (series.T[:, :, None] * rise[:, None]).reshape(len(powers), -1)
        if any_logged:
            rows = np.repeat(logged, len(here))
            since = np.where(rows, np.tile(here - high, len(series)), 1.0)
            found = light @ (terms * since) + logs @ (terms * rows)
        else:
            found = light @ terms
        out[..., start:stop] = found.reshape(*found.shape[:-1], len(series), -1)
        if first < last:
            band = bands.band(log[first:last] + high, here - high, k)
            inside = bands.product(w[:, None, :, first:last], band)
            out[..., start:stop] += inside.swapaxes(1, 2)
        if last < len(log):
            out[..., 0, start:stop] += above[..., last, None]
    out = out.reshape(-1, *out.shape[2:])[: math.prod(shape)]
    return np.moveaxis(out, 1, 0).reshape(len(series), *shape, len(u))


class Laplace:
    """E[1 − e^(−x)] and E[x^k e^(−x)] of x = e^(u + c·log|f|), for any u; all over e^top.

    Args:
        family: of the laws.
        beta: bias of one law, or of several.
        gamma: likewise.
        k: the powers of x; a `LogMoment` has a factor ln x besides.

    Attributes:
        top: log of the scale, one for each law.
        p_nonzero: P(f ≠ 0) over e^top, likewise.
        p_zero: P(f = 0), likewise: to all digits, which 1 − P(f ≠ 0) does not have.
    """

    def __init__(self, family: Family, beta: Any, gamma: Any, k: Orders) -> None:
        """Weigh the nodes."""
        self.family, self.k, self.c_log_f = family, k, family.c_log_f
        self.right, self.smooth, self.rounding = family.right, family.smooth, family.rounding
        self.gamma = float(np.max(gamma))  # as an error says it
        by, p_zero = np.zeros((*np.shape(beta), 3)), np.full(np.shape(beta), family.nodes.p_zero)
        if family.shared:
            by = families.tilt(np.asarray(beta), np.asarray(gamma), family.near)
            p_zero = families.mass(np.asarray(beta), np.asarray(gamma), family.near,
                                   family.nodes.zeros)  # fmt: skip
        log_w = family.nodes.tilted(by)
        self.p_zero = p_zero
        self.top = log_w.max(axis=-1)
        self.w = np.exp(log_w - self.top[..., None])
        self.p_nonzero = self.w.sum(axis=-1)

    def joined(self, laws: list[Laplace]) -> Laplace:
        """Laws of the same family as one, each over its own e^top."""
        found = copy.copy(self)
        found.w = np.stack([law.w for law in laws])
        return found

    def range(self, longest: float, shortest: float = 1.0) -> tuple[float, float]:
        """The range of u beyond which rows of these lengths have no integrand left."""
        return self.family.low(longest), self.family.high(shortest, longest)

    def __call__(self, u: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """E[1 − e^(−x)] and the E[x^k e^(−x)], each of shape [..., len(u)], for ascending u."""
        if len(u) > _MOST_POINTS:
            raise too_wide(self.family.kernel, self.gamma)
        psi, *moments = transforms(self.c_log_f, self.w, self.k, u)
        return psi, moments


@functools.lru_cache(maxsize=256)
def laplace(
    kernel: Kernel,
    beta: float,
    gamma: float,
    c: int,
    k: Orders,
    scores: Any = None,
) -> Laplace:
    """The (cached) transforms of one law."""
    return Laplace(family(kernel, beta, gamma, scores, c), beta, gamma, k)
