"""Row laws of RoPE and CoCA: what random keys make of the score at each distance from the query.

A law gives the mean β_m and standard deviation γ_m of the score at distance m, the logarithm of
its moment generating function, and with it the exact n_eff of softmax rows. RoPE's scores are
normal, so `Rope` is also a step of a `RowLaw`, for any kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.finite import finite_rows
from sparsity.finite.finite_length import FiniteLength
from sparsity.finite.mellin import n_eff_of_normal_prefixes, n_eff_of_prefixes
from sparsity.finite.prefixes import WIDEST, TooWide
from sparsity.kernels import Kernel
from sparsity.kernels.parameters import LENGTH
from sparsity.rows.rectified import log_exp_mean, rectified
from sparsity.rows.rotary import BASE, angles, planes, slack_coefficients
from sparsity.rows.steps import RowLaw, Tokens, every
from sparsity.rows.tokens import number

__all__ = ["Coca", "Rope", "rectified"]

_NORMAL = 8.0  # spreads from zero at which t is never cut: P(τ < 0) < 1e−15


def _vector(name: str, value: Any) -> np.ndarray:
    try:
        x = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        x = np.empty(0)
    if x.ndim != 1 or not np.all(np.isfinite(x)) or not np.any(x):
        raise InputError(name, value, "give one finite, nonzero vector")
    return x


class _Law:
    """What both laws are: a step that gives every distance its β and γ, and the law of rows."""

    query: np.ndarray
    base: float

    def beta(self, distance: Any) -> np.ndarray:
        """Mean β_m of the score at each distance m."""
        raise NotImplementedError

    def gamma(self, distance: Any) -> np.ndarray:
        """Standard deviation γ_m of the score at each distance m."""
        raise NotImplementedError

    @property
    def normal(self) -> bool:
        """Whether the scores are normal."""
        return True

    @property
    def theta(self) -> np.ndarray:
        """θ_i."""
        return angles(self.query.size, self.base)

    def breaks(self, length: int) -> np.ndarray:
        """As a step of a `RowLaw`: every distance differs."""
        return every(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """As a step of a `RowLaw`: β_m is added to β, γ becomes γ_m; sinks stay as they are.

        Raises:
            InputError: scores that are not normal.
        """
        if not self.normal:
            fix = f"must be >= {_NORMAL:g}·spread for normal scores; n_eff is exact for any"
            raise InputError("center", getattr(self, "center", None), fix)
        beta = np.where(tokens.sink, tokens.beta, tokens.beta + self.beta(tokens.distance))
        gamma = np.where(tokens.sink, tokens.gamma, self.gamma(tokens.distance))
        return replace(tokens, beta=beta, gamma=gamma)

    def n_eff(self, length: Any, kernel: str | Kernel = "exp") -> FiniteLength:
        """The exact law of one query and the `length` keys up to it.

        Args:
            length: row lengths n, whole numbers ≥ 1, any shape.
            kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.

        Returns:
            The law at each length, in the shape of `length`.

        Raises:
            InputError: an unknown kernel, a value outside its domain, or scores that are not normal
                under a kernel other than exp.
        """
        return finite_rows.n_eff(kernel, RowLaw(0.0, 1.0, (self,)), length)


@dataclass(frozen=True, eq=False)
class Rope(_Law):
    """RoPE with keys k ~ N(μ, σ²I) before rotation.

    s_m ~ N(β_m, γ²), β_m = Σ_i |q_i||μ_i| cos(Θ_i + mθ_i), γ = σ‖q‖ at every distance.

    Args:
        query: q, [d], d even.
        mean: μ, [d].
        spread: σ > 0.
        pairing: which entries make a plane, "interleaved" or "half".
        base: of the angles, > 1.

    Raises:
        InputError: an odd d, vectors that do not match, or a value outside its domain.
    """

    query: Any
    mean: Any
    spread: float
    pairing: str = "interleaved"
    base: float = BASE

    def __post_init__(self) -> None:
        """Check everything once."""
        q = _vector("query", self.query)
        angles(q.size, self.base)
        planes(q, self.pairing)
        try:
            mu = np.asarray(self.mean, dtype=np.float64)
        except (TypeError, ValueError):
            mu = np.empty(0)
        if mu.shape != q.shape or not np.all(np.isfinite(mu)):
            raise InputError("mean", self.mean, f"give a finite vector of shape {q.shape}")
        number("spread", self.spread, "must be > 0", lambda x: x > 0)
        object.__setattr__(self, "query", q)
        object.__setattr__(self, "mean", mu)

    def beta(self, distance: Any) -> np.ndarray:
        """β_m at each distance m."""
        h = planes(self.query, self.pairing) * np.conj(planes(self.mean, self.pairing))
        turned = np.exp(1j * np.asarray(distance, np.float64)[..., None] * self.theta)
        return (turned @ h).real

    def gamma(self, distance: Any) -> np.ndarray:
        """γ_m = σ‖q‖ at each distance m."""
        return np.full(np.shape(distance), self.spread * np.linalg.norm(self.query))


@dataclass(frozen=True, eq=False)
class Coca(_Law):
    """CoCA with t_i = max(τ_i, 0), τ_i ~ N(center, spread²) independent: one for each plane.

    s_m = Σ_i c_i t_i with c_i = |q_i|² cos(mθ_i); of the published slack form, c_i depends on the
    positions of query and key themselves. β_m and γ_m are the exact mean and standard deviation;
    the score is normal if center ≥ 8·spread. If not, the exact law of softmax rows takes a time
    that grows with d·n: seconds for 1000 tokens. Scores may have any mean and spreads up to 64.

    Args:
        query: q, [d], d even.
        center: of τ.
        spread: of τ, > 0.
        pairing: which entries make a plane, "interleaved" or "half".
        base: of the angles, > 1.
        slack_at: None for exact CoCA; the position of the query for the slack form.

    Raises:
        InputError: an odd d, or a value outside its domain.
    """

    query: Any
    center: float
    spread: float
    pairing: str = "interleaved"
    base: float = BASE
    slack_at: int | None = None

    def __post_init__(self) -> None:
        """Check everything once."""
        q = _vector("query", self.query)
        angles(q.size, self.base)
        planes(q, self.pairing)
        number("center", self.center, "give one finite number")
        number("spread", self.spread, "must be > 0", lambda x: x > 0)
        if self.center < -_NORMAL * self.spread:
            raise InputError("center", self.center, "at 8 spreads below 0, t is never positive")
        if self.slack_at is not None:
            fix = "give the position of the query, a whole number >= 0, or None for exact CoCA"
            number("slack_at", self.slack_at, fix, lambda x: x >= 0 and x == int(x))
        object.__setattr__(self, "query", q)

    @property
    def normal(self) -> bool:
        """Whether t is never cut at zero, so that the scores are normal."""
        return self.center >= _NORMAL * self.spread

    def coefficients(self, distance: Any) -> np.ndarray:
        """c_i at each distance m, [..., d/2]."""
        q, m = planes(self.query, self.pairing), np.asarray(distance, np.float64)
        if self.slack_at is None:
            return np.abs(q) ** 2 * np.cos(m[..., None] * self.theta)
        if np.any(m > self.slack_at):
            fix = f"the key at distance {np.max(m):.0f} would come before the first position, 0"
            raise InputError("slack_at", self.slack_at, fix)
        return slack_coefficients(q, self.slack_at, self.slack_at - m, self.theta)

    def beta(self, distance: Any) -> np.ndarray:
        """β_m = E t Σ_i c_i."""
        mean, _ = rectified(self.center, self.spread)
        return mean * self.coefficients(distance).sum(axis=-1)

    def gamma(self, distance: Any) -> np.ndarray:
        """γ_m = √(Var t Σ_i c_i²)."""
        _, variance = rectified(self.center, self.spread)
        return np.sqrt(variance * (self.coefficients(distance) ** 2).sum(axis=-1))

    def log_mgf(self, distance: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Logarithm of E e^(p·s_m) = Π_i E e^(p c_i t), [distances, p]."""
        total = np.zeros((len(distance), len(p)), np.result_type(p, np.float64))
        for c in self.coefficients(distance).T:  # a plane at a time: memory
            total += log_exp_mean(self.center / self.spread, self.spread * c[:, None] * p)
        return total

    def n_eff(self, length: Any, kernel: str | Kernel = "exp") -> FiniteLength:
        """As for any law; of exp through the moment generating function, normal or not."""
        if kernels.named(kernel) is not kernels.exp:
            return super().n_eff(length, kernel)
        n = LENGTH.check(length)
        distance = every(int(np.max(n, initial=1.0)))
        try:
            if self.normal:
                beta, gamma = self.beta(distance), self.gamma(distance)
                value, bound = n_eff_of_normal_prefixes(beta, gamma, length)
            else:
                value, bound = n_eff_of_prefixes(self.log_mgf, length)
        except TooWide as error:
            raise self._refusal(error) from None
        return FiniteLength(n, value, np.sqrt(value / n), np.ones_like(value), bound)

    def _refusal(self, error: TooWide) -> InputError:
        """The same error, of an argument of this law."""
        if not np.isfinite(error.location):
            shown = f"vector with entries up to {np.abs(self.query).max():.3g}"
            return InputError("query", shown, "its scores overflow; make it shorter")
        if error.blurred:
            fix = f"gives scores of {error.location:.3g}, too large to tell apart; lower it"
            return InputError("center", self.center, f"{fix}, or make the query shorter")
        fix = f"gives scores a standard deviation of about {error.deviation:.3g}; stay below "
        fix = f"{fix}{WIDEST:g}: lower it, or make the query shorter"
        return InputError("spread", self.spread, fix)
