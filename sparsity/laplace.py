"""Laplace transforms of a weight's law: E[1 − e^(−x)] and E[x^k e^(−x)] of x = t|f|^c, any t > 0.

What the exact law of finite rows is made of. The inner integral over the score is done once, on
panels over which log|f| varies little, and sorted by log|f|: at each t only the band of nodes
where e^(−x) is neither 1 − x nor 0 is evaluated, the rest are running sums.
"""

from __future__ import annotations

import functools

import numpy as np

from sparsity.definition import EPS, GAUSS7, KRONROD15, NODES15, Axis, definition
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel
from sparsity.sphere import SphereAxis

__all__ = ["TAIL", "Laplace", "laplace"]

TAIL = 1e-15  # mass that truncation may lose
_VARIATION = 2.5  # of 2·log|f| over a panel
_PANELS = 100_000  # more of them cannot be afforded
_SMOOTH = 1e-12  # disagreement of the two rules on |f|² over a panel
_REACH = 105.0  # depth of the Gaussian density, in e-folds, at which the integral ends
_MATTERS = 75.0  # down to which it is resolved: 10¹² tokens reach to 28
with np.errstate(divide="ignore"):
    _LOG_RULES = np.log(np.stack([KRONROD15, GAUSS7], axis=1))


class Laplace:
    """E[1 − e^(−x)] and E[x^k e^(−x)] of x = e^(u + c·log|f|), for any u; all over e^top.

    Two columns each: the 15-point Kronrod rule on every panel, and the 7-point Gauss rule in it.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread; 0 is a fixed score.
        c: the power of |f| in x.
        k: the powers of x.
        dim: d of keys on the sphere; None for Gaussian scores.

    Raises:
        InputError: f is not a finite real number where keys fall, or varies beyond all reach.
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
        if gamma == 0:
            log_f, log_w, error, density_error = _fixed(kernel, beta)
        else:
            axis = Axis(kernel, beta, gamma) if not dim else SphereAxis(kernel, beta, gamma, dim)
            log_f, log_w, error, density_error = _nodes(axis)
        if not len(log_f):
            raise InputError("weight", kernel.weight, "vanishes in float64 wherever keys fall")
        order = np.argsort(log_f, kind="stable")
        log_f, log_w = log_f[order], log_w[order]
        self.k, self.c_log_f = k, c * log_f
        self.top = float(log_w.max())
        log_w = log_w - self.top
        self.w = np.exp(log_w)
        self.p_nonzero = self.w.sum(axis=0)  # over e^top
        share = np.cumsum(self.w[:, 0]) / self.p_nonzero[0]
        # A relative error of a weight counts as far as the weight does in a typical row.
        typical = log_f[np.searchsorted(share, 0.05)]
        counts = np.exp(np.minimum(log_f - typical, 0.0)) * (self.w[:, 0] > 1e-30)
        self.rounding = 4 * float(np.max(counts * error[order]) + density_error)
        # A light sink, c = 1, lives on the rare rows whose other weights are lighter still.
        rare = TAIL if c == 2 else TAIL**2
        self.right = 5.0 - float(self.c_log_f[np.searchsorted(share, rare)])
        self.above = np.concatenate([np.cumsum(self.w[::-1], axis=0)[::-1], np.zeros((1, 2))])
        self.below = {}  # running Σ w x^k, in the log domain
        with np.errstate(divide="ignore"):
            for power in {1.0, *k}:
                terms = log_w + power * self.c_log_f[:, None]
                sums = np.logaddexp.accumulate(terms, axis=0)
                self.below[power] = np.concatenate([np.full((1, 2), -np.inf), sums])

    def range(self, longest: float) -> tuple[float, float]:
        """The range of u beyond which rows up to that length have no integrand left."""
        top = -self.c_log_f[-1]
        u = np.arange(top + 40, top - 60 - np.log(longest), -2.0)
        cut = np.searchsorted(self.c_log_f, -u)
        psi = np.exp(np.minimum(u + self.below[1.0][cut, 0], 700)) + self.above[cut, 0]
        # n(1 − φ) against the chance, at most 1, that the row holds anything.
        holds = min(np.exp(min(-self.top, 700.0)), longest * self.p_nonzero[0])
        small = longest * psi < TAIL * holds
        return float(u[np.argmax(small)] if small.any() else u[-1]), self.right

    def __call__(self, u: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """E[1 − e^(−x)] and the E[x^k e^(−x)], each of shape [len(u), 2], for ascending u."""
        psi = np.empty((len(u), 2))
        moments = [np.empty((len(u), 2)) for _ in self.k]
        for start in range(0, len(u), 48):
            part = slice(start, start + 48)
            low, high = u[part][0], u[part][-1]
            first = int(np.searchsorted(self.c_log_f, -37 - high))  # below: e^(−x) = 1 − x
            last = int(np.searchsorted(self.c_log_f, 6.7 - low))  # above: e^(−x) = 0
            centre = (low + high) / 2
            rise = np.exp(u[part] - centre)[:, None]
            x = np.exp(centre + self.c_log_f[first:last])
            x_at = rise * x
            w = self.w[first:last]
            psi[part] = self.above[last] - np.expm1(-x_at) @ w
            psi[part] += rise * np.exp(centre + self.below[1.0][first])
            less = np.exp(-x_at)
            for moment, k in zip(moments, self.k, strict=True):
                moment[part] = less @ (w * (x**k)[:, None])
                moment[part] += np.exp(k * centre + self.below[k][first])
                moment[part] *= rise**k
        return psi, moments


def _fixed(kernel: Kernel, score: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The one node of a score that is not random, in the form of `_nodes`."""
    log_f, error = definition(kernel)(np.array([score]))
    if not log_f[0] < np.inf:
        fix = f"is not a finite real number at score {score:.6g}"
        raise InputError("weight", kernel.weight, fix)
    alive = np.isfinite(log_f)
    return log_f[alive], np.zeros((int(alive.sum()), 2)), error[alive], 0.0


def _nodes(axis: Axis) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Nodes where f ≠ 0: log|f|, log weights [·, 2], error of log|f|; error of the density."""
    everywhere = np.concatenate([axis.grid, *(axis.t[:, None] + axis.grid)])
    meshes = axis.meshes(lambda a: np.concatenate([[0.0], everywhere - axis.t[a]]))
    a = np.concatenate([np.full(len(x) - 1, anchor) for anchor, x in meshes])
    left = np.concatenate([x[:-1] for _, x in meshes])
    right = np.concatenate([x[1:] for _, x in meshes])
    parts, top, density_error, panels = [], -np.inf, 0.0, 0
    while len(a):
        half = (right - left) / 2
        x = (left + right)[:, None] / 2 + half[:, None] * NODES15
        anchor = np.broadcast_to(a[:, None], x.shape)
        log_f, error = axis.log_abs(anchor, x)
        error = error + axis.score_rounding(anchor, x)
        t = axis.t[anchor] + x
        density = axis.log_density(t) + axis.log_norm
        alive = np.isfinite(log_f)
        top = max(top, float(np.max(density, where=alive, initial=-np.inf)))
        highest = density.max(axis=1)
        with np.errstate(invalid="ignore"):
            span = 2 * np.ptp(log_f, axis=1)
            shape = np.exp(density - highest[:, None] + 2 * (log_f - log_f.max(axis=1)[:, None]))
        allowed = (shape * (_SMOOTH + 8 * np.minimum(error, 1.0))) @ KRONROD15
        rough = np.abs(shape @ (KRONROD15 - GAUSS7)) > allowed
        # Zeros of f elsewhere than at an anchor 0 are known to a rounding error of the score only.
        finest = 1e-12 * (np.maximum(np.abs(left), np.abs(right)) + np.abs(axis.s[a]) / axis.gamma)
        finest = np.maximum(np.minimum(finest, 1e-9), TAIL / 10)
        split = (~(span < _VARIATION) | rough) & alive.any(axis=1) & (half > finest)
        split &= highest > top - _MATTERS
        split |= (np.ptp(density, axis=1) > 4) & (highest > top - _REACH)
        keep = alive & (~split & (highest > top - _REACH))[:, None]
        panels += int(split.sum())
        if panels > _PANELS:
            fix = f"varies too much at gamma = {axis.gamma:g} for the law of its rows; lower gamma"
            raise InputError("weight", axis.f.kernel.weight, fix)
        density_error = max(
            density_error,
            np.max(2 * EPS * t * t + np.abs(t) * axis.shift[anchor], where=keep, initial=0.0),
        )
        log_w = (density + np.log(half)[:, None])[..., None] + _LOG_RULES
        parts.append([part[keep] for part in (log_f, log_w, error)])
        middle = (left + right)[split] / 2
        left = np.concatenate([left[split], middle])
        right = np.concatenate([middle, right[split]])
        a = np.concatenate([a[split], a[split]])
    log_f, log_w, error = (np.concatenate(column) for column in zip(*parts, strict=True))
    return log_f, log_w, error, density_error


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
