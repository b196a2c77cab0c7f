"""A kernel's definition as numbers of known accuracy: log|f(s)| and a bound on its error.

Written naively, f loses digits or overflows in float64 (log(1 + e^s) at s = −40 or 800). Where
probes in high precision show that, the definition itself is evaluated in high precision.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import sympy

from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.lowering import kinks, log_abs, numpy_log_abs
from sparsity.kernels.symbols import s as score

__all__ = ["EPS", "GAUSS7", "KRONROD15", "NODES15", "Axis", "Definition", "definition"]

EPS = float(np.finfo(np.float64).eps)
# QUADPACK's Gauss–Kronrod pair on [−1, 1].
_X = [0.991455371120812639206854697526329, 0.949107912342758524526189684047851]
_X += [0.864864423359769072789712788640926, 0.741531185599394439863864773280788]
_X += [0.586087235467691130294144691693010, 0.405845151377397166906606412076961]
_X += [0.207784955007898467600689403773245, 0.0]
_K = [0.022935322010529224963732008058970, 0.063092092629978553290700663189204]
_K += [0.104790010322250183839876322541518, 0.140653259715525918745189590510238]
_K += [0.169004726639267902826583426598550, 0.190350578064785409913256402421014]
_K += [0.204432940075298892414161999234649, 0.209482141084727828012999174891714]
_G = [0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467771423780]
_G += [0.0, 0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327]
NODES15 = np.array([-x for x in _X] + _X[-2::-1])
KRONROD15 = np.array(_K + _K[-2::-1])
GAUSS7 = np.array(_G + _G[-2::-1])

_DECADES = np.geomspace(1e-9, 1e13, 67)
_PROBES = np.unique(np.concatenate([-_DECADES, _DECADES, np.arange(-60.0, 60.5, 0.5)]))
_GROWING = (sympy.exp, sympy.sinh, sympy.cosh, sympy.tanh, sympy.sin, sympy.cos, sympy.erf)
_TRUSTED = 512 * EPS  # error of log|f|, relative to 1 + |log|f||, up to which float64 serves


_PRECISION = threading.Lock()


class Definition:
    """log|f(s)| of a kernel of Law.SCORE, with error bounds.

    Args:
        kernel: the kernel.

    Raises:
        InputError: the kernel is not a function of the score.
    """

    def __init__(self, kernel: Kernel) -> None:
        """Lower the definition and probe where float64 can be trusted with it."""
        if kernel.law is not Law.SCORE:
            raise InputError(
                "kernel", kernel.name, "needs a kernel that is a function of the score"
            )
        self.kernel = kernel
        self._float64 = numpy_log_abs(kernel)
        self._weight = sympy.lambdify([score], kernel.weight, "mpmath")
        logarithm = log_abs(kernel.weight)
        self._exact = sympy.lambdify([score], logarithm, "mpmath")
        nested = any(e.args[0].has(*_GROWING) for e in logarithm.atoms(*_GROWING))
        self._reach = 1e3 if nested else np.inf  # e^(e^s) takes for ever at large s
        value, exact = self._float64(_PROBES), self._slowly(_PROBES)
        with np.errstate(invalid="ignore"):
            error = np.where(value == exact, 0.0, np.abs(value - exact) / (1 + np.abs(exact)))
        error = np.where(np.isnan(error), np.inf, error)
        # One probe samples the rounding error, so take the worst of its neighbours, four times.
        padded = np.pad(error, 2, mode="edge")
        self._error = 4 * np.max([padded[i : i + len(error) + 1] for i in range(4)], axis=0)

    def _slowly(self, s: np.ndarray) -> np.ndarray:
        return np.array([self._one(float(x)) for x in s], dtype=np.float64)

    def _one(self, x: float) -> float:
        """Log|f(x)| with more and more digits until they change nothing; NaN where f is not real.

        e^(±s) beside 1 needs |s|/ln 10 digits before it is seen at all: up to |s| = 1000 here.
        """
        if abs(x) > self._reach:
            return float(self._float64(x))
        value = mpmath.nan
        for digits in (30, 50, 30 + int(abs(x) / 2.3)):
            if digits > 470:
                break
            with mpmath.workdps(digits):
                try:
                    if abs(x) <= 60 and mpmath.im(self._weight(mpmath.mpf(x))) != 0:
                        return np.nan
                    last, value = value, self._exact(mpmath.mpf(x))
                except (ZeroDivisionError, OverflowError, ValueError):
                    return np.nan
                if mpmath.isfinite(value) and abs(value - last) <= EPS / 16 * (1 + abs(value)):
                    break
        return float(value)

    def __call__(self, s: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log|f| at scores s and a bound on its error, both of the shape of s; −inf where f = 0."""
        s = np.asarray(s, dtype=np.float64)
        value = np.array(self._float64(s))
        error = self._error[np.searchsorted(_PROBES, s)]
        slow = error > _TRUSTED
        if slow.any():
            value[slow] = self._slowly(s[slow])
            error = np.where(slow, 0.0, error)
        finite = np.isfinite(value)
        return value, np.where(finite, (error + 2 * EPS) * (1 + np.abs(value)), 0.0)


@functools.lru_cache(maxsize=128)
def definition(kernel: Kernel) -> Definition:
    """The (cached) numerical definition of a kernel of Law.SCORE."""
    return Definition(kernel)


class Axis:
    """The axis of t in s = β + γt, in coordinates x = t − t_a anchored at kinks of f (and t = 0).

    At a kink the score is s_a + γx, without the cancellation of β + γt there.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread.
    """

    def __init__(self, kernel: Kernel, beta: float, gamma: float) -> None:
        """Place the anchors; each serves the part of the axis that is nearest to it."""
        self.f, self.gamma = definition(kernel), gamma
        corners = {self.where((kink - beta) / gamma): kink for kink in kinks(kernel)}
        anchors = {0.0: beta, **{t: kink for t, kink in corners.items() if np.isfinite(t)}}
        self.t, self.s = np.array(sorted(anchors.items())).T
        middle = (self.t[1:] + self.t[:-1]) / 2
        self.low = np.concatenate([[-np.inf], middle]) - self.t
        self.high = np.concatenate([middle, [np.inf]]) - self.t
        self.shift = 2 * EPS * np.abs(self.t)  # an anchor's own rounding displaces the Gaussian
        self.shift += np.where(self.s == 0, 0, EPS * (abs(beta) + np.abs(self.s)) / gamma)
        self.shift[self.s == beta] = 0.0

    grid = np.arange(-15.0, 15.5, 0.5)  # of t: what lies beyond is e^−112 of the density's peak
    log_norm = -0.5 * np.log(2 * np.pi)  # of the density of t

    def where(self, z: float) -> float:
        """The t at which the standardised score (s − β)/γ is z; not finite if it never is."""
        return z

    def score(self, a: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The score at offsets x from anchors a."""
        return self.s[a] + self.gamma * x

    def log_density(self, t: np.ndarray) -> np.ndarray:
        """Log of the density of t over that of its peak."""
        return -t * t / 2

    def log_abs(self, a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log|f| at offsets x from anchors a, and its error given the score.

        Raises:
            InputError: f is not a finite real number there.
        """
        s = self.score(a, x)
        value, error = self.f(s)
        bad = ~(value < np.inf)
        if bad.any():
            fix = f"is not a finite real number at score {s[bad][0]:.6g}, where keys fall"
            raise InputError("weight", self.f.kernel.weight, fix)
        return value, error

    def score_rounding(self, a: np.ndarray, x: np.ndarray) -> np.ndarray:
        """What the rounding of s = s_a + γx does to log|f|, by a finite difference of it."""
        s, step = self.score(a, x), 2.0**-42
        exact = self.s[a] == 0  # then s = γx is rounded once, otherwise the product and the sum
        size = np.abs(s) + np.where(exact, 0, np.abs(self.gamma * x))
        here = self.f(s)[0]
        with np.errstate(invalid="ignore"):
            change = [np.abs(self.f(s + h * size)[0] - here) for h in (step, -step)]
        slope = np.where(np.isfinite(change), change, 0.0).max(axis=0) / step
        # Besides s itself, the first operation on it in f is rounded.
        return EPS * slope * np.where(exact, 3, 2)

    def meshes(self, x_of_anchor: Callable[[int], np.ndarray]) -> list[tuple[int, np.ndarray]]:
        """(anchor, ascending mesh in its coordinates), each clipped to the anchor's territory."""
        pieces = []
        for a in range(len(self.t)):
            ends = [end for end in (self.low[a], self.high[a]) if np.isfinite(end)]
            x = np.concatenate([x_of_anchor(a), ends])
            pieces.append((a, np.unique(x[(x >= self.low[a]) & (x <= self.high[a])])))
        return pieces
