"""A second exact law of n_eff, for softmax rows given by their moment generating functions.

It shares nothing with `engine`, and is kept for two things: as a check of it, and for what it does
not reach, CoCA whose scores are not normal.

With x = e^u a², a = e^s and M(p) = E e^(ps), Mellin inversion gives
    E e^(−x), E[√x e^(−x)], E[x e^(−x)] = (1/2πi) ∫ G(z) e^(zu) M(2z) dz,
G = Γ(−z), Γ(½−z), Γ(1−z), Re z < 0, and E[1 − e^(−x)] with G = −Γ(−z), 0 < Re z < ½: no integral
over the score at all. Normal scores are `normal_prefixes`; what follows from them is `prefixes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gamma

from sparsity.exact_law import normal_prefixes, prefixes
from sparsity.exact_law.prefixes import LogMGF
from sparsity.kernels.numeric.points import EPS

_ABOVE, _BELOW = 0.25, -1.0  # Re z, or nearer to zero: where φ is near 1, and where it is small
BACK = -36.0  # log of what the period may bring back
_NEARER = 2.0 ** (-np.arange(16) / 2)
_STEEP = 3.0  # log of what M may grow to there: rounding errors are relative to that
PERIOD = 42.0  # of the discrete inversion, times |Re z|: at least e^(−42) comes back
_END = 28.0  # of |Im z|: Γ is below 1e−18
_TOKENS, _FREQUENCIES = 1024, 32  # evaluated at once
_NEGLIGIBLE = 1e-15
_LEAST = 1e-30  # of φ


@dataclass(frozen=True, eq=False)
class _EachToken:
    """Every token by itself; scores count from `offset`."""

    log_mgf: LogMGF
    offset: float
    u: np.ndarray

    def relative(self, tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Logarithm of E e^(p·(s_j − offset))."""
        return self.log_mgf(tokens, p) - self.offset * p

    def growth(self, tokens: np.ndarray, line: float) -> tuple[np.ndarray, np.ndarray]:
        """Logs of how far M grows on the two sides of zero, and of what the period brings back.

        That is the transforms one period P away, times e^(P·|Re z|). Tails of the score make them
        small: they are at most e^(∓qP) M(2q), for any q ≤ ½ beyond Re z > 0 or Re z < 0.
        """
        q = min(3 * line, 0.5) if line > 0 else 3 * line
        up, down, tail = self.relative(tokens, 2 * np.array([line, -line, q])).T
        place = (up - down) / (4 * line)
        back = tail - 2 * q * place - PERIOD * (q / line - 1)
        return (up + down) / 2, np.maximum(back, -PERIOD)

    def lines(self, tokens: np.ndarray, farthest: float) -> np.ndarray:
        """Re z for each token: as far from zero as M allows."""
        lines = np.full(len(tokens), farthest)
        left = np.arange(len(tokens))
        for line in farthest * _NEARER:
            grown, back = self.growth(tokens[left], line)
            lines[left] = line
            left = left[(grown > _STEEP) | (back > BACK)]
            if not left.size:
                break
        return lines

    def invert(
        self, tokens: np.ndarray, u: np.ndarray, line: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """E[1 − e^(−x)] (line > 0) or E e^(−x), E[√x e^(−x)], E[x e^(−x)]; their rounding error.

        Shapes [3, tokens, len(u)] and [tokens, len(u)].
        """
        out = np.zeros((len(tokens), 3 * len(u)))
        spacing = 2 * np.pi * abs(line) / PERIOD
        scale, slips = self.relative(tokens, np.array([2 * line])), np.zeros(len(tokens))
        for start in range(0, int(_END / spacing) + 1, _FREQUENCIES):
            z = line + 1j * spacing * np.arange(start, start + _FREQUENCIES)
            wave = np.exp(z[:, None] * u - line * u[0]) * (spacing / np.pi)
            if start == 0:
                wave[0] /= 2
            log = self.relative(tokens, 2 * z) - scale
            mgf = np.exp(log)
            factors = np.stack([-np.sign(line) * gamma(-z), gamma(0.5 - z), gamma(1 - z)])
            kernel = (factors[..., None] * wave).swapaxes(0, 1).reshape(len(z), -1)
            both = np.concatenate([np.real(kernel), -np.imag(kernel)])
            out += np.concatenate([np.real(mgf), np.imag(mgf)], axis=1) @ both
            size = np.abs(mgf) * np.abs(factors).max(axis=0)
            phase = np.abs(z) * np.abs(u).max() + np.abs(log) + 8
            slips += (size * phase).sum(axis=1) * (EPS * spacing / np.pi)
            if size[:, -1].max() < _NEGLIGIBLE:
                break
        grown = np.exp(scale + line * u[0])
        out = out.reshape(len(tokens), 3, len(u)).swapaxes(0, 1)
        error = (slips[:, None] * np.exp(line * (u - u[0]))) * grown
        return out * grown, error + 2 * np.exp(self.growth(tokens, line)[1])[:, None]

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        total, lines = np.zeros((5, len(self.u))), self.lines(tokens, _ABOVE)
        for line in np.unique(lines):
            mine = tokens[lines == line]
            for first in range(0, len(mine), _TOKENS):
                total += self.terms(mine[first : first + _TOKENS], line).sum(axis=1)
        return total

    def terms(self, tokens: np.ndarray, line: float) -> np.ndarray:
        """Log φ, m2/φ, m1/φ, (m1/φ)² and the error over φ of each token, [5, tokens, len(u)]."""
        u = self.u
        (psi, m1, m2), error = self.invert(tokens, u, line)
        small = psi > 0.5  # φ is: there 1 − ψ has lost digits
        log_phi = np.log1p(-np.where(small, 0.0, psi))
        some = np.flatnonzero(small.any(axis=1))
        if some.size:
            heavy, right = tokens[some], slice(int(np.argmax(small.any(axis=0))), None)
            below = float(self.lines(heavy, _BELOW).max())
            (phi, *others), slips = self.invert(heavy, u[right], below)
            there, at = small[some, right], (some, right)
            for mine, other in (
                (log_phi, np.log(np.maximum(phi, _LEAST))),
                (m1, others[0]),
                (m2, others[1]),
                (error, slips),
            ):
                mine[at] = np.where(there, other, mine[at])
        over = np.exp(-log_phi)
        ratio = m1 * over
        return np.stack([log_phi, m2 * over, ratio, ratio**2, error * over])


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

    Raises:
        InputError: as there.
    """
    return normal_prefixes.n_eff(beta, gamma, lengths)


def n_eff_of_prefixes(log_mgf: LogMGF, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
    """Effective number of attended tokens E[(Σa)²/Σa²] of the first n tokens of a softmax row.

    Args:
        log_mgf: (tokens [T], p [P]) -> log E e^(p·s_j), [T, P], real or complex as p is; the
            scores are independent, and log E e^(ps) is finite for every real p.
        lengths: n, whole numbers ≥ 1, any shape; the tokens are 0 … n−1.

    Returns:
        n_eff in [1, n], and a bound on its relative error, in the shape of `lengths`.

    Raises:
        InputError: a length that is not a whole number ≥ 1, or scores so wide that float64 does
            not resolve their law (`prefixes.TooWide`).
    """

    def make(tokens: np.ndarray, offset: float, u: np.ndarray) -> _EachToken:
        return _EachToken(log_mgf, offset, u)

    return prefixes.n_eff(log_mgf, make, lengths)
