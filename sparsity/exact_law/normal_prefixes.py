"""The second law of n_eff for normal tokens, s_j ~ N(β_j, γ_j²), from one table of transforms.

E f(u + 2s) for normal s is a trapezoidal sum over the score, to rounding: f is e^(−x) and its like,
x = e^u a². It depends on u + 2β_j and γ_j alone and is smooth in both, so tokens become weights on
a grid of β, as fine as that of u, times few values of γ: long rows cost little more than short
ones. All else is `mellin`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.exact_law.mellin import STEP, n_eff_by
from sparsity.exact_law.rules import lagrange_weights, log_complement

TAPS = 16  # of the polynomial between the points of the grid
_RATIO = 1.5  # of the largest γ of a group over its smallest
_SPREADS, _MORE = 10, 14  # values of γ in a group: if alike; how many more for that ratio
_REACH = 14.0  # standard deviations
_FINE = 0.6  # of them: the step of the trapezoidal sum, unless the grid is finer
_LEAST = -700.0  # of log φ: rows beyond add nothing
_AT_ONCE = 2**14  # tokens
_ERROR = 4e-12  # of the table between its points, relative


def _of_fixed_score(x: np.ndarray) -> np.ndarray:
    """Return 1 − φ, φ, m1 and m2 of a score that is not random, e^x its weight, [4, …]."""
    with np.errstate(over="ignore", under="ignore"):
        y = np.exp(np.minimum(x, 700.0))
        phi = np.exp(-y)
        return np.stack([-np.expm1(-y), phi, np.exp(np.minimum(x, 700.0) / 2) * phi, y * phi])


def _table(start: float, step: float, points: int, gamma: float) -> np.ndarray:
    """Return log φ, m2/φ, m1/φ and (m1/φ)² of scores of standard deviation γ, [4, points].

    At start, start + step, …: where the points are closer than a fraction of the spread they are
    the points of the trapezoidal sum as well, which is then a sliding product.
    """
    width = 2 * gamma
    if _FINE * width < STEP:
        eps = _FINE * np.arange(-np.ceil(_REACH / _FINE), np.ceil(_REACH / _FINE) + 1)
        x = start + step * np.arange(points)
        density = np.exp(-(eps**2) / 2) * (_FINE / np.sqrt(2 * np.pi))
        means = _of_fixed_score(x[:, None] + width * eps) @ density
    else:
        reach, stride = int(np.ceil(_REACH * width / STEP)), round(step / STEP)
        eps = np.arange(-reach, reach + 1) * (STEP / width)
        density = np.exp(-(eps**2) / 2) * (STEP / width / np.sqrt(2 * np.pi))
        of = _of_fixed_score(start + STEP * np.arange(-reach, (points - 1) * stride + reach + 1))
        windows = np.lib.stride_tricks.sliding_window_view(of, len(eps), axis=1)
        means = windows[:, ::stride] @ density
    psi, phi, m1, m2 = means
    with np.errstate(divide="ignore"):
        log_phi = np.maximum(log_complement(psi, phi), _LEAST)
    over = np.exp(-log_phi)
    return np.stack([log_phi, m2 * over, m1 * over, (m1 * over) ** 2])


class _Group:
    """Tokens of similar γ as weights on a grid of (β, γ), and what they sum to."""

    def __init__(self, beta: np.ndarray, gamma: np.ndarray, u: np.ndarray) -> None:
        self.points, self.spacing = len(u), (u[1] - u[0]) / 2
        own, low, high = np.unique(gamma), gamma.min(), gamma.max()
        count = _SPREADS + int(np.ceil(_MORE * np.log(high / low) / np.log(_RATIO)))
        # Chebyshev points: a polynomial through equally spaced ones would run off at the ends.
        angle = np.pi * (np.arange(count) + 0.5) / count
        between = (low + high - (high - low) * np.cos(angle)) / 2
        self.nodes = own if len(own) <= count else between
        self.first = float(beta.min()) - TAPS * self.spacing
        self.count = int((beta.max() - self.first) / self.spacing) + TAPS
        start, points = float(u[0]) + 2 * self.first, len(u) + self.count - 1
        self.tables = [_table(start, 2 * self.spacing, points, float(g)) for g in self.nodes]

    def __call__(self, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """Return the terms summed over some tokens, [4, points]."""
        # A token is two interpolations at once, along β by local polynomials and across γ by a
        # global one: it becomes TAPS·nodes weights, and all tokens together one correlation a node.
        times = np.zeros((self.count, len(self.nodes)))
        taps = np.arange(TAPS) - (TAPS // 2 - 1.0)
        for start in range(0, len(beta), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            place = (beta[part] - self.first) / self.spacing
            near = np.floor(place)
            along = lagrange_weights(place - near, taps)
            across = lagrange_weights(gamma[part], self.nodes)
            at = (near[:, None] + taps).astype(np.int64)[..., None] * len(self.nodes)
            at = at + np.arange(len(self.nodes))
            weight = along[..., None] * across[:, None, :]
            times += np.bincount(at.ravel(), weight.ravel(), times.size).reshape(times.shape)
        total = np.zeros((4, self.points))
        for table, column in zip(self.tables, times.T, strict=True):
            for sums, row in zip(total, table, strict=True):
                sums += np.correlate(row, column, "valid")
        return total


def n_eff_of_normal_prefixes(
    beta: np.ndarray, gamma: np.ndarray, lengths: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `mellin.n_eff_of_prefixes` does for normal scores s_j ~ N(β_j, γ_j²).

    Args:
        beta: β_j of the tokens 0, 1, …, as many as the longest row has.
        gamma: γ_j > 0, likewise.
        lengths: n, whole numbers ≥ 1, any shape.

    Returns:
        n_eff in [1, n], and a bound on its relative error, in the shape of `lengths`.

    Raises:
        InputError: as there.
    """

    def log_mgf(tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
        return beta[tokens][:, None] * p + (gamma[tokens][:, None] * p) ** 2 / 2

    def make(tokens: np.ndarray, offset: float, u: np.ndarray) -> Any:
        """Return the sums over groups of tokens whose γ differ by no more than a factor."""
        own, low, high = beta - offset, gamma[tokens].min(), gamma[tokens].max()
        parts = max(1, int(np.ceil(np.log(high / low) / np.log(_RATIO))))
        edges = low * (high / low) ** (np.arange(1, parts) / parts)
        group_of = np.searchsorted(edges, gamma)
        mine = {part: tokens[group_of[tokens] == part] for part in np.unique(group_of[tokens])}
        groups = {part: _Group(own[some], gamma[some], u) for part, some in mine.items()}

        def sums(some: np.ndarray) -> np.ndarray:
            total = np.zeros((5, len(u)))
            for part in np.unique(group_of[some]):
                each = some[group_of[some] == part]
                total[:4] += groups[part](own[each], gamma[each])
            return total

        return sums

    value, bound = n_eff_by(log_mgf, make, lengths, smooth=True)
    return value, bound + np.where(bound > 0, _ERROR, 0.0)
