"""The reference grid of the benchmark, and how many draws a peer needs in each of its cells.

The draws are exact: the variance of log S by the delta method from E|a|^p, p = 1 … 4, by
quadrature of the definition. A peer is given that number for nothing; ours has to find its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri_exp

from sparsity import kernels
from sparsity.kernels import Kernel
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.limit import closed_form, quadrature

GAMMAS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
ZS = (-6.0, -3.0, -1.0, 0.0, 1.0, 3.0)
SCRAMBLES = 8  # independent randomisations of a quasi-random peer, the least that give an error bar

_GRID = np.linspace(-48.0, 48.0, 2**16 + 1)  # of ε, wide enough for a⁴φ at γ = 6
_LARGEST = 10_000  # log₂ of the most points looked at


def _log_sum(terms: Any) -> float:
    return float(logsumexp(terms))  # type: ignore[arg-type]


def delta(batches: np.ndarray) -> tuple[float, float]:
    """Log S and its standard error by the delta method, with the covariance between batches.

    Args:
        batches: means of a and a² over independent batches, [batches, 2].
    """
    m1, m2 = means = batches.mean(axis=0)
    if not (np.all(np.isfinite(means)) and m1 > 0 and m2 > 0):
        return math.nan, math.inf
    influence = batches[:, 0] / m1 - batches[:, 1] / (2 * m2)
    return math.log(m1) - math.log(m2) / 2, float(influence.std(ddof=1) / math.sqrt(len(batches)))


@dataclass(frozen=True)
class Task:
    """A score kernel at one bias β and spread γ > 0."""

    kernel: Kernel
    beta: float
    gamma: float

    @property
    def label(self) -> str:
        """As written in tables: exp by γ, the others by z = β/γ."""
        if self.kernel is kernels.exp:
            return f"exp γ={self.gamma:g}"
        return f"{self.kernel.name} z={self.beta / self.gamma:g}"

    @cached_property
    def log_S(self) -> float:
        """The truth, by the closed form."""
        bound = self.kernel.bind({"beta": self.beta, "gamma": self.gamma})
        return float(closed_form.sparsity(self.kernel, bound)[1])

    @cached_property
    def _log_moments(self) -> list[float]:
        return [
            float(quadrature.moment(self.kernel, p, self.beta, self.gamma)[0]) for p in (1, 2, 3, 4)
        ]

    @cached_property
    def variance(self) -> float:
        """Variance of log S per plain draw: Var(a)/m₁² + Var(a²)/(4m₂²) − Cov(a, a²)/(m₁m₂)."""
        l1, l2, l3, l4 = self._log_moments
        return math.expm1(l2 - 2 * l1) + math.expm1(l4 - 2 * l2) / 4 - math.expm1(l3 - l1 - l2)

    def plain_draws(self, rel_error: float) -> float:
        """Draws of N(0, 1) after which the relative standard error of S is `rel_error`."""
        return self.variance / rel_error**2

    @cached_property
    def _influence(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """On the grid: log φ, log g² and log g′², and g, of the influence g = a/m₁ − a²/(2m₂)."""
        l1, l2 = self._log_moments[:2]
        log_a = numpy_log_abs(self.kernel)(self.beta + self.gamma * _GRID)
        g = np.exp(log_a - l1) - np.exp(2 * log_a - l2) / 2 - 0.5  # of mean 0
        log_phi = -_GRID * _GRID / 2 - 0.5 * math.log(2 * math.pi)
        with np.errstate(divide="ignore"):
            slope = 2 * np.log(np.abs(np.gradient(g, _GRID)))
            return log_phi, 2 * np.log(np.abs(g)), slope, g

    def log_stratified_variance(self, log2_points: int) -> float:
        """Log variance of the mean of g over one uniform point in each of N strata of the law."""
        log_phi, log_g2, log_slope2, g = self._influence
        log_points = log2_points * math.log(2)
        edge = -float(ndtri_exp(-log_points))  # the outermost strata are ε > edge and ε < −edge
        log_step = math.log(_GRID[1] - _GRID[0])
        terms = []
        for tail in (edge < _GRID, -edge > _GRID):
            if tail.any():
                second = _log_sum((log_phi + log_g2)[tail]) + log_step
                first = np.sum(g[tail] * np.exp(log_phi[tail] + log_points)) * np.exp(log_step)
                squared = np.exp(second + log_points) if second + log_points < 700 else np.inf
                share = 1.0 if np.isinf(squared) else max(1 - first**2 / squared, 1e-12)
                terms.append(second - log_points + math.log(share))
        inner = np.abs(_GRID) < edge
        terms.append(
            _log_sum((log_slope2 - log_phi)[inner]) + log_step - math.log(12) - 3 * log_points
        )
        return _log_sum(terms)

    def quasi_draws(self, rel_error: float) -> float:
        """Draws of scrambled Sobol points for `rel_error`: SCRAMBLES × the least power of two.

        In one dimension each scramble puts one uniform point in each of N equal strata, and its
        variance is that of stratified sampling; tails of more than 62 bits are granted.
        """
        log_needed = 2 * math.log(rel_error) + math.log(SCRAMBLES)
        for log2_points in range(4, _LARGEST):
            if self.log_stratified_variance(log2_points) <= log_needed:
                return SCRAMBLES * 2.0**log2_points
        return math.inf


def reference(quick: bool = False) -> tuple[Task, ...]:
    """Exp at each γ, relu² and identity at each z; an easy and a hard cell or so when quick."""
    if quick:
        return Task(kernels.exp, 0.0, 4.0), Task(kernels.relu2, -6, 1), Task(kernels.identity, 0, 1)
    return (
        *(Task(kernels.exp, 0.0, gamma) for gamma in GAMMAS),
        *(Task(kernels.relu2, z, 1.0) for z in ZS),
        *(Task(kernels.identity, z, 1.0) for z in ZS),
    )
