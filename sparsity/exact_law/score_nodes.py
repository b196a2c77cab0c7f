"""The nodes of every law of scores: of one with a density, of points, and of sums of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.exact_law.nodes import Nodes, of_density
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.panels import Axis
from sparsity.limit.scores import at_points, score_law
from sparsity.rows.scores import StudentT


def nodes(
    kernel: Kernel, beta: float, gamma: float, scores: Any, powers: tuple[float, ...] = (0.0,)
) -> Nodes:
    """Where |f| is evaluated, and with what weights.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread; 0 is a fixed score.
        scores: the law of x in β + γx; None for Gaussian scores.
        powers: of |f| whose means the nodes reach: of a row of rare weights those are far out.

    Raises:
        InputError: f is not a finite real number where keys fall, or varies beyond all reach.
        TooFine: f has more structure than can be resolved in seconds.
    """
    if gamma == 0:
        return _points(kernel, beta, 0.0, np.zeros(1), np.ones(1))
    if scores is not None and scores.parts is not None:
        return _summed(kernel, beta, gamma, scores.parts, powers)
    try:
        return of_density(Axis(definition(kernel), score_law(kernel, beta, gamma, scores)), powers)
    except TooFine:
        if not isinstance(scores, StudentT):
            raise
        fix = f"spreads too wide for the exact law of {scores.typed} scores; use estimate"
        raise TooFine("weight", kernel.weight, fix) from None


def _points(kernel: Kernel, beta: float, gamma: float, x: np.ndarray, share: np.ndarray) -> Nodes:
    """The nodes of scores β + γx that are points, each with its share of the law."""
    found = at_points(kernel, beta, gamma, x)
    wrong = ~(found.log < np.inf)
    if wrong.any():
        fix = f"is not a finite real number at score {beta + gamma * x[wrong][0]:.6g}"
        raise InputError("weight", kernel.weight, fix)
    order = np.argsort(found.log, kind="stable")
    p_zero = float(share[found.log == -np.inf].sum())
    order = order[np.isfinite(found.log[order])]
    t, log_f, log_w, own = (y[order] for y in (x, found.log, np.log(share), found.error))
    error = EPS * (len(x) - 1)  # as they are summed
    return Nodes(t, log_f, log_w, own, error, np.empty((3, 0)), p_zero, np.empty((2, 0)))


def _summed(
    kernel: Kernel,
    beta: float,
    gamma: float,
    parts: tuple[np.ndarray, ...],
    powers: tuple[float, ...],
) -> Nodes:
    """The nodes of Gaussian laws and points, each with its law's share."""
    share, mean, deviation = parts
    point = deviation == 0
    found = [_points(kernel, beta, gamma, mean[point], share[point])] if point.any() else []
    for one, m, d in zip(share[~point], mean[~point], deviation[~point], strict=True):
        own = nodes(kernel, beta + gamma * m, gamma * d, None, powers)
        slivers = own.slivers + np.array([[0.0], [0.0], [np.log(one)]])
        weighed = own._replace(log_w=own.log_w + np.log(one), slivers=slivers)
        found.append(weighed._replace(p_zero=one * own.p_zero))
    order = np.argsort(np.concatenate([each.log_f for each in found]), kind="stable")
    t, log_f, log_w, own = (np.concatenate([each[i] for each in found])[order] for i in range(4))
    slivers = np.concatenate([each.slivers for each in found], axis=1)
    error, p_zero = max(each.density_error for each in found), sum(each.p_zero for each in found)
    return Nodes(t, log_f, log_w, own, error, slivers, p_zero, np.empty((2, 0)))
