"""The entropy of softmax rows from their participation ratio alone: Stein's identity.

For i.i.d. scores s ~ N(β, γ²) and weights e^s, Stein's lemma gives E Σp s = β + γ²(1 − E Y₂), and
∂E ln Z/∂γ = γ(1 − E Y₂). With H = ln Z − Σp s,

    E H = ln n + ∫₀^γ g(1 − E Y₂(g)) dg − γ²(1 − E Y₂(γ)).

It is a second route to the entropy: the integral over u that is its exact law does not occur.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity import kernels, quantities
from sparsity.errors import InputError
from sparsity.exact_law import engine

_PANEL = 1.0  # of γ
_POINTS = 16  # in a panel; the bound comes from four fewer
MOST = 20.0  # of γ: seconds of work


def _rule(points: int, panels: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on as many panels of [0, γ]."""
    x, w = np.polynomial.legendre.leggauss(points)
    ends = np.linspace(0.0, gamma, panels + 1)
    half = np.diff(ends)[:, None] / 2
    return (ends[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


def entropy(gamma: float, length: int) -> tuple[float, float]:
    """E H of a softmax row of n i.i.d. scores of spread γ, and a bound on its absolute error.

    Args:
        gamma: spread γ in (0, 20].
        length: n ≥ 1.

    Raises:
        InputError: γ outside its domain.
    """
    if not 0 < gamma <= MOST:
        raise InputError("gamma", gamma, f"Stein's identity is integrated up to {MOST:g}")
    panels = math.ceil(gamma / _PANEL)
    rules = [_rule(points, panels, gamma) for points in (_POINTS, _POINTS - 4)]
    at = np.concatenate([*(nodes for nodes, _ in rules), [gamma]])
    n = np.array([float(length)])
    law = engine.laws(kernels.exp, np.zeros(at.size), at, quantities.participation, n)
    others, relative = 1 - law[0][:, 0], law[2][:, 0]
    error = law[0][:, 0] * relative
    fine, coarse = np.split(at[:-1] * others[:-1], [rules[0][0].size])
    (_, weights), (_, fewer) = rules
    grown = float(weights @ fine)
    off = abs(grown - float(fewer @ coarse))
    off += float(weights @ (rules[0][0] * error[: fine.size])) + gamma**2 * float(error[-1])
    value = math.log(length) + grown - gamma**2 * float(others[-1])
    return value, off + 1e-15 * (math.log(length) + grown + gamma**2)
