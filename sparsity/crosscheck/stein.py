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
from sparsity.exact_law.rules import gauss_panels

_PANEL = 1.0  # of γ: E Y₂ is smooth in γ on the scale of 1
_POINTS = 16  # in a panel; the bound comes from the difference to the rule of four fewer
MAX_GAMMA = 20.0  # seconds of work: an exact law at each of 28 points in every panel


def entropy(gamma: float, length: int) -> tuple[float, float]:
    """Return E H of a softmax row of n i.i.d. scores of spread γ, and an absolute error bound.

    Args:
        gamma: spread γ in (0, 20].
        length: n ≥ 1.

    Raises:
        InputError: γ outside its domain.
    """
    if not 0 < gamma <= MAX_GAMMA:
        raise InputError("gamma", gamma, f"Stein's identity is integrated up to {MAX_GAMMA:g}")
    edges = np.linspace(0.0, gamma, math.ceil(gamma / _PANEL) + 1)
    (at, weights), (others_at, fewer) = (
        (x.ravel() for x in gauss_panels(edges, points)) for points in (_POINTS, _POINTS - 4)
    )
    # All spreads of both rules, and γ itself, are one call: laws of one family share nodes.
    every = np.concatenate([at, others_at, [gamma]])
    n = np.array([float(length)])
    y2, _, relative = (
        column[:, 0]
        for column in engine.laws(
            kernels.exp, np.zeros(every.size), every, quantities.participation, n
        )
    )
    others, error = 1 - y2, y2 * relative
    fine, coarse = np.split(every[:-1] * others[:-1], [at.size])
    grown = float(weights @ fine)
    off = abs(grown - float(fewer @ coarse))
    off += float(weights @ (at * error[: at.size])) + gamma**2 * float(error[-1])
    value = math.log(length) + grown - gamma**2 * float(others[-1])
    return value, off + 1e-15 * (math.log(length) + grown + gamma**2)
