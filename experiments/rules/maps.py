"""Claims about maps of whole rows, with their judges: sparsemax and softpick."""

from __future__ import annotations

import math

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from sympy import Abs, Expr, Rational, erf, exp, sqrt

from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed, table_rows
from sparsity.claims_ledger.judging import Claim, Routes, seeds_of_claim
from sparsity.kernels import score_kernel
from sparsity.kernels.symbols import beta, gamma, s
from sparsity.kernels.zoo import softpick
from sparsity.rows.row import Row
from sparsity.sampling import Sampling

_GAMMAS = (0.25, 1.0, 2.0)
_DRAWS = 2**20  # scores: the share is then known to better than 1e-3
_WITHIN = 5.0  # standard errors, beyond which chance is less than 1e-6


def kept_share() -> Expr:
    """Return the share of the mass that softpick keeps at β = 0, as printed, a formula in γ."""
    grown, below = exp(gamma**2 / 2), (1 + erf(gamma / sqrt(2))) / 2  # Φ(γ)
    return (grown * below - Rational(1, 2)) / (grown * (2 * below - 1))


def _drawn(spread: float, seed: int) -> tuple[float, float]:
    """Return the share of many independent scores, and its standard error by the delta method."""
    rng = np.random.default_rng(seed)
    weight = np.expm1(spread * rng.standard_normal(_DRAWS))
    given, taken = np.maximum(weight, 0.0), np.abs(weight)
    share = given.mean() / taken.mean()
    return float(share), float((given - share * taken).std() / taken.mean() / _DRAWS**0.5)


def kept(routes: Routes, seed: int) -> Judged:
    """Compare the share of the mass by two derived means, by the printed formula and by draws."""
    denominator = score_kernel("softpick's denominator", Abs(exp(s) - 1))
    means = [routes.derive(kernel).first_moment for kernel in (softpick, denominator)]
    given, taken = (sympy.expand(mean.subs(beta, 0)) for mean in means)
    # SymPy proves given/taken = above/below when multiplied out: polynomials in e^(γ²/2) and erf.
    above, below = sympy.fraction(kept_share())
    printed = {g: float(kept_share().subs(gamma, Rational(g)).evalf(30)) for g in _GAMMAS}
    derived = {g: float((given / taken).subs(gamma, Rational(g)).evalf(30)) for g in _GAMMAS}
    seeds = seeds_of_claim(seed, 41, len(_GAMMAS))
    rows = []
    for (g, share), key in zip(derived.items(), seeds, strict=True):
        found, error = _drawn(g, key)
        row = {"gamma": g, "share": share, "printed": printed[g]}
        rows.append(row | {"drawn": found, "stderr": error, "z": (found - share) / error})
    # In 30 digits: at γ = 10⁻⁶ both numerator and denominator are small differences.
    small, large = (float(kept_share().subs(gamma, x).evalf(30)) for x in (Rational(1, 10**6), 40))
    findings = [
        core(
            "at β = 0 the derived share E max(e^s − 1, 0)/E|e^s − 1| is the printed one",
            sympy.simplify(sympy.expand(given * below - taken * above)) == 0,
        ),
        core(
            f"it is below 1: {listed(derived.values(), '.4f')} at γ = 1/4, 1, 2",
            all(0 < x < 1 for x in derived.values()),
        ),
        core(
            f"{_DRAWS} sampled scores keep the same share, within {_WITHIN:.0f} standard errors of "
            f"{max(row['stderr'] for row in rows):.1g} or less",
            all(abs(row["z"]) < _WITHIN for row in rows),
        ),
        instead(
            "it rises from ½, where the scores are narrow, to 1, where they are wide",
            abs(small - 0.5) < 1e-5
            and abs(large - 1) < 1e-9
            and derived[0.25] < derived[1.0] < derived[2.0],
        ),
    ]
    return findings, {"shares": rows}


_LENGTHS = np.array([16, 256, 4096, 65536])
_GAMMA, _DRAWN = 2.0, 256  # the spread of all rows, and the length of those that are drawn
_REL_ERROR = 5e-3  # of the mean over drawn rows; a tenth of it would cost a hundred times the rows


def _normal_density(t: float) -> float:
    return math.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)


def _poisson_rate(length: float, gamma: float) -> float:
    """Return λ = h(Φ̄⁻¹(1/n))/γ with the hazard h = φ/Φ̄: E K − 1 of sparsemax in long rows.

    Above the level that one score of n exceeds on the average, excesses are nearly exponential of
    rate h/γ. The threshold lies a total excess of 1 below the largest score.
    """
    # 1/Φ̄ is n there, and Φ̄⁻¹(1/n) = −Φ⁻¹(1/n), whose sign does not matter to an even density.
    return _normal_density(float(ndtri(1 / length))) * length / gamma


def mean_field(length: float, gamma: float) -> float:
    """Return E Σp² of sparsemax if its threshold were the fixed root of nE(s − τ)₊ = 1.

    A row has its own threshold, which rises with its largest score. Where that is left out a large
    score takes more than the whole mass, and the mean may exceed 1.
    """

    def total(t: float) -> float:
        """Return n·E(s − τ)₊ at τ = γt, which falls with t."""
        return length * gamma * (_normal_density(t) - t * float(ndtr(-t)))

    t = float(brentq(lambda t: total(t) - 1, -40.0, 40.0))  # type: ignore[arg-type]
    return length * gamma**2 * ((1 + t * t) * float(ndtr(-t)) - t * _normal_density(t))


def _z(routes: Routes, name: str, of: str, exact: float, seed: int) -> float:
    """Return how far rows drawn are from an exact mean, in standard errors of their logarithm."""
    row = Row(name, beta=0.0, gamma=_GAMMA)
    settings = Sampling(_REL_ERROR, seed=seed, dtype=np.float32)
    found = routes.rows(row, _DRAWN, settings, of)
    return (found.log_value - math.log(exact)) / found.rel_stderr


def few_keys(routes: Routes, seed: int) -> Judged:
    """Judge the support of sparsemax over lengths: exact, drawn, and by the law of long rows."""
    given = {"beta": 0.0, "gamma": _GAMMA}
    keys = routes.mean("sparsemax", _LENGTHS, "support", **given)
    focus = float(routes.mean("sparsemax", _DRAWN, "participation", **given))
    limit = np.array([1 + _poisson_rate(float(n), _GAMMA) for n in _LENGTHS])
    at = _LENGTHS.tolist().index(_DRAWN)  # one of the lengths of the exact law is drawn as well
    z = _z(routes, "sparsemax", "support", float(keys[at]), seed)
    findings = [
        core(
            f"at γ = {_GAMMA:g} the exact mean support is {listed(keys, '.3f')} keys at n = 16, "
            "2⁸, 2¹², 2¹⁶",
            np.all((keys >= 1) & (keys < 4)),
        ),
        core(f"rows of {_DRAWN} sampled at random have as many (z = {z:.1f})", abs(z) < _WITHIN),
        letter("it is the same at every length", np.ptp(keys) < 0.1),
        instead(
            "it grows without end, but only like 1 + √(2 ln n)/γ: the law of long rows, "
            "1 + h(Φ̄⁻¹(1/n))/γ, is high by "
            + listed(f"{100 * (x - 1):.1f} %" for x in limit / keys),
            np.all(np.diff(keys) > 0) and np.all(np.diff(limit / keys) < 0),
        ),
        instead(
            "a fixed threshold, nE(s − τ)₊ = 1, is wrong: it would give E Σp² = "
            f"{mean_field(_DRAWN, _GAMMA):.2f} at n = {_DRAWN}, more than any row has; the exact "
            f"value is {focus:.4f}",
            mean_field(_DRAWN, _GAMMA) > 1 > focus,
        ),
    ]
    rows = table_rows(n=_LENGTHS, support=keys, long_rows=limit)
    return findings, {"rows": rows, "z": z, "participation": focus}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="softpick-mass",
        source="Zuhri et al. (2025), Softpick, arXiv 2504.20966",
        statement="A row of softpick weights does not sum to one: negative scores take mass and "
        "give none.",
        formula="max(e^s−1, 0)/Σ|e^s−1| keeps [e^(γ²/2)Φ(γ) − ½]/[e^(γ²/2)(2Φ(γ) − 1)] at β = 0",
        proof="Numerator and denominator are integrals of exponentials over half lines; with many "
        "keys the share of a row is the ratio of their means.",
        judge=kept,
    ),
    Claim(
        key="sparsemax-keys",
        source="Martins and Astudillo (2016), From softmax to sparsemax, arXiv 1602.02068",
        statement="Sparsemax puts its mass on few keys, however long the row is.",
        formula="E K = 1 + λ in long rows, λ = h(Φ̄⁻¹(1/n))/γ ~ √(2 ln n)/γ with h = φ/Φ̄",
        proof="Kac–Rice for the threshold: E F = ∫dτ E[F K δ(Σ(s_j − τ)₊ − 1)]. In long rows the "
        "excesses of the largest scores are those of a Poisson process of exponential rate "
        "h/γ, so K − 1 ~ Poisson(λ).",
        judge=few_keys,
    ),
)
