"""Moments of a weight under any law of the scores, with a density or as a sum of laws."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import At, definition
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.limit import moments
from sparsity.limit.axis import Axis
from sparsity.limit.score_laws import Even, ScoreLaw, gaussian_law
from sparsity.limit.sphere import Sphere
from sparsity.limit.student import Student
from sparsity.rows.scores import StudentT, Uniform
from sparsity.rows.scores.uniform import END
from sparsity.rows.steps import QKNorm

# Laws with a density; those with `parts` are sums of Gaussian laws and points.
_LAWS: dict[type[Any], Callable[[float, float, Any], ScoreLaw]] = {
    QKNorm: lambda beta, gamma, scores: Sphere(beta, gamma, scores.dim),
    Uniform: lambda beta, gamma, scores: Even(beta, gamma, -END, END),
    StudentT: lambda beta, gamma, scores: Student(beta, gamma, scores.degrees),
}
_SLOWEST = 0.05  # power of t that the tail of a moment must fall by


def score_law(kernel: Kernel, beta: float, gamma: float, scores: Any = None) -> ScoreLaw:
    """The law of a score as a kernel sees it.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread > 0.
        scores: a law with a density; None for Gaussian scores.
    """
    if scores is None:
        return gaussian_law(kernel, beta, gamma)
    return _LAWS[type(scores)](beta, gamma, scores)


def at_points(kernel: Kernel, beta: float, gamma: float, x: np.ndarray) -> At:
    """|f(β + γx)| at points, their rounding errors known."""
    return definition(kernel).at(beta, Approx(x).times(gamma), fixed=True)


Moment = tuple[float, float]  # the logarithm, and a bound on its error


def log_moment(kernel: Kernel, p: float, beta: float, gamma: float, scores: Any = None) -> Moment:
    """`log_moments` of a single order."""
    return log_moments(kernel, (p,), beta, gamma, scores)[0]


@functools.lru_cache(maxsize=1024)  # rows of several lengths have tokens of the same laws
def log_moments(
    kernel: Kernel, orders: tuple[float, ...], beta: float, gamma: float, scores: Any = None
) -> tuple[Moment, ...]:
    """Log E|f(s)|^p by quadrature of the definition, of several orders on the same panels.

    Args:
        kernel: a kernel of Law.SCORE.
        orders: p, each > 0.
        beta: bias.
        gamma: spread ≥ 0; 0 is a fixed score.
        scores: the law of x in β + γx; None for Gaussian scores.

    Returns:
        The logarithm and a bound on its error, of each order.

    Raises:
        InputError: a moment is infinite, or the weight not a finite real number.
    """
    if gamma == 0:
        found = at_points(kernel, beta, 0.0, np.zeros(1))
        log, off = float(found.log[0]), float(found.error[0])
        return tuple((p * log, p * off) for p in orders)
    if scores is not None and scores.parts is not None:
        return _summed(kernel, orders, beta, gamma, scores.parts)
    law = score_law(kernel, beta, gamma, scores)
    values, errors = moments.log_moments(Axis(definition(kernel), law), orders)
    found = zip(orders, values.tolist(), errors.tolist(), strict=True)
    if isinstance(law, Student):
        return tuple((x + law.log_norm, off + _beyond(kernel, p, law, x)) for p, x, off in found)
    return tuple((x + law.log_norm, off) for _, x, off in found)


def _summed(
    kernel: Kernel,
    orders: tuple[float, ...],
    beta: float,
    gamma: float,
    parts: tuple[np.ndarray, ...],
) -> tuple[Moment, ...]:
    """The same of a sum of Gaussian laws and points."""
    share, mean, deviation = parts
    point = deviation == 0
    at = at_points(kernel, beta, gamma, mean[point])
    if np.any(np.isnan(at.log) | (at.log == np.inf)):
        raise InputError("weight", kernel.weight, "is not a finite real number at some score")
    laws = [
        log_moments(kernel, orders, beta + gamma * m, gamma * d)
        for m, d in zip(mean[~point], deviation[~point], strict=True)
    ]
    log_share = np.log(np.concatenate([share[point], share[~point]]))
    spread = np.array(laws).reshape(len(laws), len(orders), 2)
    return tuple(
        _together(
            kernel,
            log_share,
            np.concatenate([p * at.log, spread[:, i, 0]]),
            np.concatenate([p * at.error, spread[:, i, 1]]),
        )
        for i, p in enumerate(orders)
    )


def _together(
    kernel: Kernel, log_share: np.ndarray, logs: np.ndarray, errors: np.ndarray
) -> Moment:
    """Log Σ share · moment of laws, and a bound on its error."""
    masses = logs + log_share
    top = float(masses.max())
    if top == -math.inf:
        raise InputError("weight", kernel.weight, "vanishes at every score of the sample")
    held = masses > -np.inf
    mass = np.exp(masses[held] - top)
    total, blur = math.fsum(mass), errors[held] + 2 * EPS * (2 + np.abs(masses[held]))
    return top + math.log(total), float(mass @ blur) / total + 2 * EPS * (1 + abs(top))


def _beyond(kernel: Kernel, p: float, law: Student, log_moment: float) -> float:
    """What lies beyond the last panels, over the moment: the integrand falls like a power there.

    Raises:
        InputError: it does not fall fast enough for that to be known.
    """
    far = law.steps[-1] * np.array([[0.5, 1.0], [-0.5, -1.0]])
    log_f = at_points(kernel, law.beta, law.gamma, far.reshape(-1)).log.reshape(2, 2)
    mass = p * log_f + law.log_density(far) + np.log(np.abs(far))  # of an octave, about
    left = 0.0
    for near, end in mass:
        if end == -np.inf:
            continue
        fall = (near - end) / math.log(2)
        if not fall > _SLOWEST:
            fix = f"E|a|^{p:g} is infinite, or nearly: it must grow slower than {law.growth}"
            raise InputError("weight", kernel.weight, fix)
        left += math.exp(min(end - log_moment, 700.0)) / fall
    return 2 * left
