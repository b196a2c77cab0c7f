"""Polynomials of the score on segments and boxes, by their Taylor series at the middle.

Term by term, 1 + s + s²/2 + … is a difference of large numbers at s = −20, and an enclosure of it
hopeless; its derivatives at a point are not.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sympy
from scipy.special import comb

from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.numeric.values import Split
from sparsity.kernels.symbols import s

_HIGHEST = 128  # degree


@functools.lru_cache(maxsize=512)
def coefficients(e: Any) -> tuple[float, ...]:
    """Coefficients of a polynomial of the score from degree 0 on; empty for anything else."""
    if not e.is_polynomial(s):
        return ()
    found = sympy.Poly(e, s).all_coeffs()[::-1]
    if not 3 <= len(found) <= _HIGHEST or not all(c.is_real for c in found):
        return ()
    return tuple(float(c) for c in found)


def polynomial(powers: tuple[float, ...], score: Split, direct: Split) -> Split:
    """A polynomial of the score: its series at the middle, or `direct` where that is narrower.

    Args:
        powers: its coefficients, from degree 0 on; rounded once.
        score: a value that is not a point.
        direct: the same polynomial term by term.
    """
    whole = score.whole()
    kind, middle = type(whole), whole.centre()
    gap = score.a - middle
    offset = score.d.plus(gap) + kind.exact(0.0, EPS * np.abs(gap))
    degree = np.arange(len(powers))
    terms = np.power(middle[..., None], degree) * 1.0
    total = None
    for j in reversed(range(len(powers))):
        scale = comb(degree[j:], j) * np.array(powers[j:])
        parts = terms[..., : len(powers) - j] * scale
        value, slack = parts.sum(axis=-1), np.abs(parts).sum(axis=-1) * EPS * (len(powers) + 4)
        term = kind.exact(value, slack)
        total = term if total is None else term + total * offset
    return direct.narrower(total)
