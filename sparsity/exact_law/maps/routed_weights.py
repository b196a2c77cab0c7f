"""The exact laws of the weights that a router reads: captured mass, n_eff, S, participation.

Given the k-th largest proxy t, tokens are independent in three kinds: k − 1 with a proxy above t,
one at t, and n − k below. With φ = E e^(−x), x = e^(u + s) or e^(u + 2s), and m = E x e^(−x) of
each kind, the captured mass of such rows is

    E[Σ_read e^s/Σ e^s] = ∫ [(k − 1) m₊ φ₀ + m₀ φ₊] φ₊^(k−2) φ₋^(n−k) du,

and n_eff of what is read is the same kind of integral over e^(2s), without φ₋. The law of t has one
peak; over it, over u and over ε in s = γε the trapezoidal rule converges geometrically. The bound
is the gap to twice each step.

In long rows the captured mass tends to Φ(ργ + Φ⁻¹(k/n)).
"""

from __future__ import annotations

import math

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law import integration
from sparsity.exact_law.maps.router import (
    DEPTH,
    HIGH,
    LEVELS,
    LOW,
    ROUNDING,
    log_rest,
    refuse_too_close,
)
from sparsity.exact_law.maps.top_k import kth_scores
from sparsity.special import ndtr

_STEP_U = 0.15  # of the trapezoid rule over u; twice as wide a step is its check
_STEP_E = 0.05  # of ε, at most
_STEP_V = 0.025  # of the table of a token at t: a spline of order 7 is then right to 1e-14
_POINTS = 4e6  # numbers of a block of [u, ε]


# Transforms of the tokens above t and at t, and 1 − φ of those below, each [u, t].
_Kinds = tuple[list[np.ndarray], list[np.ndarray], np.ndarray | None]


def _transforms(
    scores: np.ndarray, share: np.ndarray, u: np.ndarray, power: int, moments: bool = True
) -> list[np.ndarray]:
    """Return 1 − φ, and E x^p e^(−x) for p = ½, 1, 2, of x = e^(u + power·s), [u, t].

    Args:
        scores: s, [points].
        share: probabilities of them, [points, t].
        u: [u].
        power: of e^s in x.
        moments: whether more than 1 − φ is wanted.
    """
    blocks = []
    for block in np.array_split(u, math.ceil(len(u) * len(scores) / _POINTS)):
        with np.errstate(over="ignore", under="ignore"):
            x = np.exp(np.minimum(block[:, None] + power * scores, 300.0))  # x² is finite
            parts = [-np.expm1(-x)]
            if moments:
                fading = np.exp(-x)
                parts += [np.sqrt(x) * fading, x * fading, x * x * fading]
        blocks.append([part @ share for part in parts])
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _transforms_at(
    gamma: float, rho: float, t: np.ndarray, u: np.ndarray, power: int, step: float
) -> list[np.ndarray]:
    """Return the same of the token at t, whose score is γ(ρt + √(1 − ρ²) z)."""
    from scipy.interpolate import make_interp_spline  # slow to import, and every law reads this

    z = np.arange(-9.0, 9.0 + step, step)
    share = np.exp(-0.5 * z * z)[:, None]
    # They depend on v = u + power·γρt alone: a spline between points of v serves every u and t.
    v = u[:, None] + power * gamma * rho * t
    points = np.arange(v.min() - 8 * _STEP_V, v.max() + 9 * _STEP_V, _STEP_V)
    rest = math.sqrt((1 - rho) * (1 + rho))
    table = _transforms(gamma * rest * z, share / share.sum(), points, power)
    values = make_interp_spline(points, np.hstack(table), k=7)(v)
    return list(np.moveaxis(values, -1, 0))


def _kinds(
    gamma: float, rho: float, t: np.ndarray, u: np.ndarray, power: int, step: float, unread: bool
) -> _Kinds:
    """Return the transforms by the trapezoidal rule of a step in ε; of those unread if wanted."""
    rest = math.sqrt((1 - rho) * (1 + rho))
    e = np.arange(LOW, HIGH, step)
    density = np.exp(-0.5 * e * e)[:, None]
    above = density * ndtr((rho * e[:, None] - t) / rest)
    below = density * ndtr((t - rho * e[:, None]) / rest)
    # Divided by their own sums they are probabilities by the rule as well, whatever it loses.
    above, below = (x / x.sum(axis=0) for x in (above, below))
    return (
        _transforms(gamma * e, above, u, power),
        _transforms_at(gamma, rho, t, u, power, step),
        _transforms(gamma * e, below, u, power, moments=False)[0] if unread else None,
    )


def _captured(kinds: _Kinds, k: int, n: float) -> np.ndarray:
    """Return the integrand of the captured mass, [u, t]."""
    (above, _, more, _), (at, _, one, _), below = kinds
    assert below is not None
    others = np.exp((k - 2) * log_rest(above) + (n - k) * log_rest(below))
    return ((k - 1) * more * (1 - at) + one * (1 - above)) * others


def _squares(kinds: _Kinds, k: int, n: float) -> np.ndarray:
    """Return the integrand of n_eff of what is read, [u, t], for x = e^(u + 2s)."""
    (above, root, more, _), (at, root_at, one, _), _ = kinds
    phi, phi_at = 1 - above, 1 - at
    others = np.exp((k - 3) * log_rest(above))
    pairs = (k - 1) * (k - 2) * root**2 * phi_at + 2 * (k - 1) * root * root_at * phi
    return ((k - 1) * more * phi_at * phi + one * phi * phi + pairs) * others


def _participation(kinds: _Kinds, k: int, n: float) -> np.ndarray:
    """Return the integrand of Σp² of what is read, [u, t], for x = e^(u + s)."""
    (above, _, _, square), (at, _, _, square_at), _ = kinds
    others = np.exp((k - 2) * log_rest(above))
    return ((k - 1) * square * (1 - at) + square_at * (1 - above)) * others


def _root(kinds: _Kinds, k: int, n: float) -> np.ndarray:
    """Return the integrand of Σ|a|/√Σa² of what is read, [u, t], for x = e^(u + 2s)."""
    (above, root, _, _), (at, root_at, _, _), _ = kinds
    others = np.exp((k - 2) * log_rest(above))
    return ((k - 1) * root * (1 - at) + root_at * (1 - above)) * others / math.sqrt(math.pi)


# Of each quantity its integrand, the power of e^s in x, and how much farther than others it reaches
# towards small u: that of S falls like √x there.
_INTEGRANDS = {
    "abs_sum": (_captured, 1, 1.0),
    "n_eff": (_squares, 2, 1.0),
    "participation": (_participation, 1, 1.0),
    "S": (_root, 2, 2.0),
}


def _mean_and_coarser(fine: np.ndarray, coarse: np.ndarray, share: np.ndarray) -> list[float]:
    """Return the mean over t of the integral over u of a body, and three of coarser integration.

    Args:
        fine: the body, [u, t].
        coarse: the body by a coarser rule within: the second mean is of it.
        share: probabilities of t, but for a factor; the others have twice the step in t, and in u.
    """
    # t, u and what is within the body each have their own coarser rule: the gaps add up to a bound.
    rules_of_both = (fine, 1, 1), (coarse, 1, 1), (fine, 2, 1), (fine, 1, 2)
    means = []
    for body, every, skip in rules_of_both:
        over_u = body[::skip].sum(axis=0) * _STEP_U * skip
        means.append(float((over_u[::every] * share[::every]).sum() / share[::every].sum()))
    return means


def _mean(
    name: str, k: int, gamma: float, rho: float, n: float, t: np.ndarray, share: np.ndarray
) -> tuple[float, float]:
    """Return the mean of a quantity at one length, and a bound on its error."""
    integrand, power, reach = _INTEGRANDS[name]
    rest = math.sqrt((1 - rho) * (1 + rho))
    step = min(_STEP_E, 0.15 / (power * gamma), rest / 1.4 if rho else 1.0)
    # From where all of a row's Σx is below e^(−42) to where its largest x is above 42.
    start = -DEPTH * reach - math.log(n) - power * gamma * HIGH
    u = integration.grid_points(start, power * gamma * 11.0 + math.log(DEPTH), _STEP_U)
    if len(u) * (HIGH - LOW) / step > 2e7:  # 10 s of one core
        fix = "gives an exact law of more than seconds here; use estimate"
        raise InputError("gamma", gamma, fix)

    fine, coarse = (
        integrand(_kinds(gamma, rho, t, u, power, width, integrand is _captured), k, n)
        for width in (step, 1.5 * step)
    )
    value, *others = _mean_and_coarser(fine, coarse, share)
    gap = sum(abs(other - value) for other in others)
    scale = 1 / math.sqrt(n) if name == "S" else 1.0
    return value * scale, gap / value + ROUNDING


def routed_mean(
    name: str, k: int, gamma: float, rho: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of a quantity over rows of n > k tokens, and a bound on its relative error.

    Args:
        name: "abs_sum" (the captured mass), "n_eff", "participation" or "S", of the keys read.
        k: how many keys are read.
        gamma: spread of the scores.
        rho: correlation of score and proxy.
        length: n > k, [lengths].

    Raises:
        InputError: |ρ| too near to 1, or a spread at which the law takes more than seconds.
    """
    refuse_too_close(rho)
    n = np.asarray(length, dtype=np.float64)
    t, share = kth_scores(n, k)
    pairs = [
        _mean(name, k, gamma, rho, m, at[::LEVELS], chance[::LEVELS])
        for m, at, chance in zip(n.tolist(), t, share, strict=True)
    ]
    value, error = np.transpose(pairs)
    return value, error
