"""Laplace transforms of a weight's law: E[1 − e^(−x)] and E[x^k e^(−x)] of x = t|f|^c, any t > 0.

What the exact law of finite rows is made of. The inner integral over the score is done once, on
panels over which log|f| varies little, and sorted by log|f|: at each t only the band of nodes
where e^(−x) is neither its first few terms nor 0 is evaluated, the rest are running sums.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from sparsity.errors import InputError
from sparsity.finite.nodes import TAIL, nodes, too_wide
from sparsity.kernels.base import Kernel

_MOST_POINTS = 1_000_000  # of u, that one law may be asked for: seconds of work
_FAR = (-1.0, 0.0, 2.0)  # powers of |f| in E Y₂ and sink masses next to nothing
_TERMS, _SMALL = 4, -8.3  # of the series of e^(−x); log x below which they are all of it


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
        powers = _FAR if c == 1 else (0.0,)
        log_f, log_w, error, density_error = nodes(kernel, beta, gamma, dim, powers)
        self._too_wide = too_wide(kernel, gamma)
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
        # A light sink, c = 1, matters in the rare rows whose other weights are lighter still: as
        # e^u · share does, where that falls off before the nodes end.
        rarest = int(np.searchsorted(share, TAIL if c == 2 else TAIL**2))
        with np.errstate(divide="ignore"):
            light = np.log(share) - log_f
        counts = light > light.max() + math.log(TAIL)
        if c == 1 and not counts[0]:
            rarest = min(rarest, int(np.argmax(counts)))
        self.right = 5.0 - float(self.c_log_f[rarest])
        # Beyond it the nodes next to a zero of f are not those of a neighbouring law.
        self.smooth = 5.0 - float(self.c_log_f[np.searchsorted(share, TAIL)])
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
