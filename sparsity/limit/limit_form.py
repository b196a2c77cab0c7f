"""The limit form of S for rows whose tokens differ: moments of all tokens together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH
from sparsity.limit.scores import log_moments
from sparsity.rows import classes
from sparsity.rows.classes import Class, TokenClasses
from sparsity.rows.row import Row


def log_sums(given: TokenClasses, powers: tuple[int, int]) -> tuple[float, float, float]:
    """Log Σ w^p E|f|^p over tokens for two powers p, and the error of both together.

    Args:
        given: the tokens.
        powers: p.
    """
    bounds = []

    def logs(law: Class) -> np.ndarray:
        kernel, beta, gamma, scores = law
        found = log_moments(kernel, powers, beta, gamma, scores)
        bounds.append(found[0][1] + found[1][1])
        return np.array([value for value, _ in found])

    values, off = classes.interpolated(given.classes, logs)
    own = given.token > 0
    first, second = (
        float(np.logaddexp.reduce(log + np.log(given.token[own])))
        for log in (values[given.member[own]] + np.outer(given.log_w[own], powers)).T
    )
    size = float(np.abs(given.log_w).max())
    return first, second, max(bounds) + 2 * off + 8 * EPS * (1 + size)


def log_total(row: Row, n: int) -> float:
    """Log of the tokens' mean total weight."""
    return log_sums(classes.classed(row, n), (1, 2))[0]


def limit_form(row: Row, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """Log S of a row, S = Σ w_j E|f_j| / √(n Σ w_j² E f_j²) over its n tokens.

    What √(n_eff/n) tends to where |a| and a² average themselves. Sink logits are no tokens and do
    not enter.

    Args:
        row: any row whose kernel is a function of a score.
        length: row lengths n, whole numbers ≥ 1, any shape; None where tokens do not differ.

    Returns:
        log S and a bound on its error, in the shape of `length`.

    Raises:
        InputError: an infinite moment, a bad value, or no length where tokens differ.
    """
    if length is None:
        if not classes.identical_tokens(row, 64, 128, units=False):
            fix = "this row depends on its length; give one"
            raise InputError("length", None, fix)
        length = 64
    n = LENGTH.check(length)
    found = []
    for m in n.flat:
        given = classes.rescaled(classes.classed(row, int(m)), units=False)
        first, second, error = log_sums(given, (1, 2))
        found.append((first - 0.5 * (second + math.log(m)), error))
    value, error = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return value.reshape(n.shape), error.reshape(n.shape)
