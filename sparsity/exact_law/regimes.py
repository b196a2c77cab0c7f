"""The regimes of softmax rows: annealed, extremes, condensed; and how far the limit law reaches.

A row of n weights e^s, s ~ N(0, γ²), is a random energy model with γ_c = √(2 ln n). In units of it:
    γ < γ_c/2           Σa and Σa² both average themselves: n_eff = n e^(−γ²);
    γ_c/2 < γ < γ_c     Σa still does, Σa² is its largest terms: ln n_eff ≈ (γ_c − γ)²;
    γ > γ_c             a few tokens hold it all: n_eff and E Y₂ depend on γ_c/γ alone.
Leading orders in ln n: at real lengths the transitions are wide. `exact` has the law itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sparsity.calls import public
from sparsity.checks import check_number
from sparsity.errors import InputError
from sparsity.exact_law.exact import exact
from sparsity.kernels.parameters import GAMMA, LENGTH
from sparsity.special import gammaln
from sparsity.tables import html_table


def critical_spread(length: Any) -> np.ndarray:
    """Return the spread γ_c = √(2 ln n) at which the largest of n weights is as large as the rest.

    Args:
        length: row lengths n ≥ 1, any shape.

    Raises:
        InputError: a length that is not a whole number ≥ 1.

    Source: the random energy model (Derrida 1981); for attention arXiv 2505.24333.
    """
    return np.sqrt(2 * np.log(LENGTH.check(length)))


def annealed_n_eff(length: Any, gamma: Any) -> np.ndarray:
    """Return n_eff ≈ n e^(−γ²), i.e. S = exp(−γ²/2): the limit law, for γ < √(½ ln n).

    It is n (E a)²/E a², a ratio of averages.

    Args:
        length: row lengths n ≥ 1.
        gamma: spreads γ > 0, broadcastable against `length`.

    Source: Su (2023), kexue.fm/archives/9889.
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(np.log(LENGTH.check(length)) - GAMMA.check(gamma) ** 2)


def condensed_n_eff(length: Any, gamma: Any) -> np.ndarray:
    """Return n_eff → 1 + (α/2) [Γ((1−α)/2)/Γ(1−α/2)]² with α = γ_c/γ < 1; ∞ for α ≥ 1.

    Above γ_c the largest weights are Poisson points of density α a^(−1−α) da. With these the exact
    law has Σ(1−φ) = Γ(1−α/2) t^(α/2), Σm2 = (α/2) Γ(1−α/2) t^(α/2−1) and
    Σm1 = (α/2) Γ((1−α)/2) t^((α−1)/2), and its integral is elementary.

    Args:
        length: row lengths n ≥ 1.
        gamma: spreads γ > 0, broadcastable against `length`.
    """
    alpha = critical_spread(length) / GAMMA.check(gamma)
    # By logarithms, as both gammas and their ratio grow without end towards α = 1.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_ratio = gammaln((1 - alpha) / 2) - gammaln(1 - alpha / 2)
        return np.where(alpha < 1, 1 + alpha / 2 * np.exp(2 * log_ratio), np.inf)


def limit_reach(length: Any, tolerance: float = 0.1) -> np.ndarray:
    """Return the spread up to which the limit exp(−γ²/2) is within a tolerance of S_rms(n).

    Solves S_rms = (1 + tolerance) exp(−γ²/2): a finite row is flatter than the limit, and from
    there on by more. As S_rms ≥ 1/√n, γ is below √(ln n + 2 ln(1 + tolerance)). At 10 % it is above
    ½√(ln n) at every length: n ≥ exp(4γ²) tokens suffice; it follows √(½ ln n) for long rows.

    Args:
        length: row lengths n ≥ 1, any shape.
        tolerance: relative, from 10⁻⁹ on.

    Returns:
        γ, in the shape of `length`.

    Raises:
        InputError: a bad length or tolerance.
    """
    n = LENGTH.check(length)
    fix = "give a relative error >= 1e-9: the exact law is known to 1e-12"
    check_number("tolerance", tolerance, fix, lambda x: x >= 1e-9)
    excess = np.log1p(tolerance)

    def reach(m: float) -> float:
        top = np.sqrt(np.log(m) + 2 * excess)
        # The logarithm of S_rms over its limit less that of 1 + tolerance: it ascends in γ, from
        # below 0 to above it, so that Brent's method has a bracket.
        if m == 1:  # S_rms = 1
            return float(top)

        def over(gamma: float) -> float:
            if gamma == 0:
                return -float(excess)
            law = exact("exp", length=m, gamma=gamma)
            return float(np.log(law.S_rms)) + gamma**2 / 2 - excess

        from scipy.optimize import brentq  # slow to import

        return float(brentq(over, 0.0, 1.001 * top, xtol=1e-11))  # type: ignore[arg-type]

    return np.array([reach(m) for m in n.ravel().tolist()]).reshape(n.shape)


@dataclass(frozen=True)
class Regime:
    """Where a softmax row stands.

    Args:
        length: n.
        gamma: spread γ.
        name: "annealed", "extremes" or "condensed".
        ratio: γ/γ_c.
        n_eff: exact.
        participation: E Y₂, exact.
        annealed_n_eff: n e^(−γ²), the limit law.
        condensed_n_eff: the condensed phase's, ∞ below γ_c.
        limit_holds: whether exp(−γ²/2) is within 10 % of the exact S_rms.
        limit_reach: up to which γ it is.
    """

    length: int
    gamma: float
    name: str
    ratio: float
    n_eff: float
    participation: float
    annealed_n_eff: float
    condensed_n_eff: float
    limit_holds: bool
    limit_reach: float

    def __repr__(self) -> str:
        """Return one line: the phase, and how many tokens the row attends to."""
        at = f"n = {self.length}, γ = {self.gamma:g} = {self.ratio:.3g} γ_c"
        return f"Regime({self.name}: {at}, n_eff = {self.n_eff:.6g})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: the exact law beside those of the regimes."""
        reach = f"up to γ = {self.limit_reach:.6g}: {'holds' if self.limit_holds else 'fails'} here"
        rows = [
            ("n_eff, exact law", self.n_eff),
            ("n_eff, limit law n·exp(−γ²)", self.annealed_n_eff),
            ("n_eff, condensed", self.condensed_n_eff),
            ("limit law within 10 %", reach),
        ]
        return html_table(["", ""], rows, repr(self))

    def summary(self) -> dict[str, Any]:
        """Return the fields in JSON's types."""
        return asdict(self)


@public
def regime(length: Any, gamma: Any) -> Regime:
    """Return the regime of a row length and spread, with the exact law beside those of the regimes.

    Args:
        length: row length n ≥ 2.
        gamma: spread γ > 0.

    Raises:
        InputError: a value outside its domain.
    """
    n, spread = int(LENGTH.one(length)), GAMMA.one(gamma)
    if n < 2:
        raise InputError("length", length, "one token has no regimes; give 2 or more")
    ratio, reach = spread / float(critical_spread(n)), float(limit_reach(n))
    name = "annealed" if ratio < 0.5 else "extremes" if ratio < 1 else "condensed"
    return Regime(
        n,
        spread,
        name,
        ratio,
        float(exact("exp", length=n, gamma=spread).value),
        float(exact("exp", length=n, of="participation", gamma=spread).value),
        float(annealed_n_eff(n, spread)),
        float(condensed_n_eff(n, spread)),
        spread <= reach,
        reach,
    )
