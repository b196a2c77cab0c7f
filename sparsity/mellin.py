"""The exact law of softmax rows whose scores are known by their moment generating function.

With y = e^u a², a = e^s and M(p) = E e^(ps), Mellin inversion gives
    E e^(−y), E[√y e^(−y)], E[y e^(−y)] = (1/2πi) ∫ G(z) e^(zu) M(2z) dz,
G = Γ(−z), Γ(½−z), Γ(1−z), Re z < 0, and E[1 − e^(−y)] with G = −Γ(−z), 0 < Re z < ½: no integral
over the score at all. With φ, m1, m2 the three means, rows of independent a_j have
    n_eff = E[(Σa)²/Σa²] = ∫ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ (m1_j/φ_j)²] Πφ_j du.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gamma

from sparsity.errors import InputError
from sparsity.kernels.parameters import LENGTH

__all__ = ["n_eff_of_normal_prefixes", "n_eff_of_prefixes"]

LogMGF = Callable[[np.ndarray, np.ndarray], np.ndarray]

_LINE = 0.25  # |Re z|: above zero where φ is near 1, below it where φ is small
_MARGIN = 110.0  # by which the period of the discrete inversion exceeds the range of u
_STEP = 0.25  # of u; the check runs at twice the step
_TOKENS, _FREQUENCIES = 1024, 32  # evaluated at once
_SPACING, _TAPS, _SPREADS = 0.1, 14, 16  # of the grid of β, of its polynomials; values of γ
_NEGLIGIBLE = 1e-15
_USELESS = 1e-6  # relative error at which the digits are noise
_ORDERS = np.geomspace(0.1, 20.0, 24)  # of the Chernoff bound on Πφ


def _ends(log_mgf: LogMGF, shortest: int, longest: int) -> tuple[float, float]:
    """The range of u that holds the integral of every prefix."""
    every = np.real(log_mgf(np.arange(longest), np.array([1.0, 2.0])))
    top = every.max(axis=0)
    first, second = top + np.log(np.exp(every - top).sum(axis=0))
    # E e^(−y) ≤ (z/e)^z E y^(−z), for every z > 0.
    z = _ORDERS
    bound = np.real(log_mgf(np.arange(shortest), -2 * z)).mean(axis=0) + z * np.log(z) - z
    return -36.0 - max(second, 2 * first), float(np.min((bound + 40.0 / shortest) / z))


def _invert(log_mgf: LogMGF, tokens: np.ndarray, u: np.ndarray, line: float) -> np.ndarray:
    """E[1 − e^(−y)] (line > 0) or E e^(−y), E[√y e^(−y)], E[y e^(−y)]: [3, tokens, len(u)]."""
    out = np.zeros((3, len(tokens), len(u)))
    spacing = 2 * np.pi / (u[-1] - u[0] + _MARGIN)
    scale = np.real(log_mgf(tokens, np.array([2 * line])))
    for start in range(0, 100 * _FREQUENCIES, _FREQUENCIES):
        z = line + 1j * spacing * np.arange(start, start + _FREQUENCIES)
        wave = np.exp(z[:, None] * u) * (spacing / np.pi)
        if start == 0:
            wave[0] /= 2
        mgf = np.exp(log_mgf(tokens, 2 * z) - scale)
        factors = (-np.sign(line) * gamma(-z), gamma(0.5 - z), gamma(1 - z))
        for rows, factor in zip(out, factors, strict=True):
            kernel = factor[:, None] * wave
            rows += np.real(mgf) @ np.real(kernel) - np.imag(mgf) @ np.imag(kernel)
        if max(np.abs(mgf[:, -1] * factor[-1]).max() for factor in factors) < _NEGLIGIBLE:
            break
    return out * np.exp(scale)


def _terms(log_mgf: LogMGF, tokens: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Log φ, m2/φ, m1/φ and (m1/φ)² of each token, [4, tokens, len(u)]."""
    psi, m1, m2 = _invert(log_mgf, tokens, u, _LINE)
    small = psi > 0.5  # φ is: there 1 − ψ has lost digits
    log_phi = np.log1p(-np.where(small, 0.0, psi))
    if small.any():
        right = slice(int(np.argmax(small.any(axis=0))), None)
        there = small[:, right]
        phi, *others = _invert(log_mgf, tokens, u[right], -_LINE)
        np.copyto(log_phi[:, right], np.log(np.maximum(phi, 1e-30)), where=there)
        for moment, other in zip((m1, m2), others, strict=True):
            np.copyto(moment[:, right], other, where=there)
    ratio = m1 * np.exp(-log_phi)
    return np.stack([log_phi, m2 * np.exp(-log_phi), ratio, ratio**2])


class _EachToken:
    """Every token by itself."""

    def __init__(self, log_mgf: LogMGF) -> None:
        self.log_mgf = log_mgf

    def sums(self, start: int, end: int, u: np.ndarray) -> np.ndarray:
        """The terms summed over the tokens start … end − 1, [4, len(u)]."""
        total = np.zeros((4, len(u)))
        for first in range(start, end, _TOKENS):
            tokens = np.arange(first, min(first + _TOKENS, end))
            total += _terms(self.log_mgf, tokens, u).sum(axis=1)
        return total


def _lagrange(offset: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Weights of the values at `nodes` in their interpolating polynomial, [offsets, nodes]."""
    count = len(nodes)
    gap = (nodes[:, None] - nodes + np.eye(count)).prod(axis=1)
    others = offset[:, None, None] - np.where(np.eye(count, dtype=bool), 0.0, nodes)
    own = np.eye(count, dtype=bool)
    return np.where(own, 1.0, others).prod(axis=2) / gap


class _Merged:
    """Normal tokens as weights on a grid of (β, γ): what is summed is smooth in both."""

    def __init__(self, beta: np.ndarray, gamma: np.ndarray) -> None:
        self.beta, self.gamma, self.table = beta, gamma, None
        low, high = gamma.min(), gamma.max()
        angle = np.pi * (np.arange(_SPREADS) + 0.5) / _SPREADS
        even = high - low < 1e-12 * high
        nodes = np.array([low]) if even else (low + high) / 2 + (high - low) / 2 * np.cos(angle)
        self.nodes, self.first = nodes, beta.min() - _TAPS * _SPACING
        self.count = int((beta.max() - self.first) / _SPACING) + _TAPS

    def log_mgf(self, tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Logarithm of E e^(p·s) of the points of the grid, γ varying fastest."""
        place, which = np.divmod(tokens, len(self.nodes))
        beta, gamma = self.first + _SPACING * place, self.nodes[which]
        return beta[:, None] * p + (gamma[:, None] * p) ** 2 / 2

    def sums(self, start: int, end: int, u: np.ndarray) -> np.ndarray:
        """The terms summed over the tokens start … end − 1, [4, len(u)]."""
        if self.table is None:
            points = np.arange(self.count * len(self.nodes))
            parts = np.array_split(points, -(-len(points) // _TOKENS))
            self.table = np.concatenate([_terms(self.log_mgf, x, u) for x in parts], axis=1)
        place = (self.beta[start:end] - self.first) / _SPACING
        near = np.floor(place)
        taps = np.arange(_TAPS) - (_TAPS // 2 - 1.0)
        along, across = (
            _lagrange(place - near, taps),
            _lagrange(self.gamma[start:end], self.nodes),
        )
        at = (near[:, None] + taps).astype(np.int64)[..., None] * len(self.nodes)
        at = at + np.arange(len(self.nodes))
        weight = along[..., None] * across[:, None, :]
        times = np.bincount(at.ravel(), weight.ravel(), minlength=self.table.shape[1])
        return times @ self.table


def n_eff_of_normal_prefixes(
    beta: np.ndarray, gamma: np.ndarray, lengths: Any
) -> tuple[np.ndarray, np.ndarray]:
    """As `n_eff_of_prefixes` for normal scores s_j ~ N(β_j, γ_j²), at little cost for long rows.

    Args:
        beta: β_j of the tokens 0, 1, …, as many as the longest row has.
        gamma: γ_j > 0, likewise.
        lengths: n, whole numbers ≥ 1, any shape.

    Returns:
        n_eff in [1, n], and a bound on its relative error, in the shape of `lengths`.
    """

    def log_mgf(tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
        return beta[tokens][:, None] * p + (gamma[tokens][:, None] * p) ** 2 / 2

    narrow = gamma.max() <= 3 * gamma.min()  # else few values of γ do not carry the rest
    return _prefixes(log_mgf, _Merged(beta, gamma) if narrow else _EachToken(log_mgf), lengths)


def n_eff_of_prefixes(log_mgf: LogMGF, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
    """Effective number of attended tokens E[(Σa)²/Σa²] of the first n tokens of a softmax row.

    Args:
        log_mgf: (tokens [T], p [P]) -> log E e^(p·s_j), [T, P], real or complex as p is; the
            scores are independent, and log E e^(ps) is finite for every real p.
        lengths: n, whole numbers ≥ 1, any shape; the tokens are 0 … n−1.

    Returns:
        n_eff in [1, n], and a bound on its relative error, in the shape of `lengths`.

    Raises:
        InputError: a length that is not a whole number ≥ 1, or scores so wide (standard deviation
            of 10 and more) that float64 holds no digit of the answer.
    """
    return _prefixes(log_mgf, _EachToken(log_mgf), lengths)


def _prefixes(
    log_mgf: LogMGF, stand: _EachToken | _Merged, lengths: Any
) -> tuple[np.ndarray, np.ndarray]:
    n = LENGTH.check(lengths).astype(np.int64)
    wanted, back = np.unique(n, return_inverse=True)
    longer = wanted[wanted > 1]
    if not longer.size:
        return np.ones(n.shape), np.zeros(n.shape)
    low, high = _ends(log_mgf, int(longer[0]), int(longer[-1]))
    u = np.arange(low, high + 2 * _STEP, _STEP)
    sums = np.zeros((4, len(u)))  # log Πφ, Σ m2/φ, Σ m1/φ, Σ (m1/φ)²
    values, bounds, done = [1.0] * (len(wanted) - len(longer)), [0.0] * len(wanted), 0
    for end in longer:
        sums += stand.sums(done, int(end), u)
        done = int(end)
        log_phi, s2, s1, s11 = sums
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            integrand = (s2 + s1 * s1 - s11) * np.exp(log_phi)
            fine, coarse = integrand.sum() * _STEP, integrand[::2].sum() * 2 * _STEP
            bound = abs(fine - coarse) / fine + 1e-15 * done
        if not (bound < _USELESS and 1 - _USELESS < fine < done * (1 + _USELESS)):
            raise InputError("log_mgf", log_mgf, "the scores spread too widely; keep γ below 8")
        values.append(fine)
        bounds[len(values) - 1] = bound
    shape = n.shape
    return np.array(values)[back].reshape(shape), np.array(bounds)[back].reshape(shape)
